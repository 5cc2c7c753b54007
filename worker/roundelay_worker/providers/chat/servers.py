"""What is known of single Chat Completions servers; whatever is not known here, a repair finds out.

Sources are the vendors' references and recorded exchanges; the default suits servers that only follow OpenAI.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from roundelay_worker.providers.wire_ids import IdRule

Limit = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True, slots=True)
class Server:
    """How one server differs.

    ``limit``: its name of the output limit (many know only the old one and ignore the other silently).
    ``content``: what stands for no text beside calls. ``ids``: what it takes for a call's id.
    ``usage_option``: whether it must be asked for usage in a stream. ``cache_key``: whether it routes its
    cache by a key. ``key_header``: where the API key goes. ``marks_cache``: whether Anthropic models behind it
    want their cache breakpoints marked.
    """

    limit: Limit = "max_tokens"
    content: Literal[""] | None = None
    ids: IdRule = field(default_factory=IdRule)
    usage_option: bool = True
    cache_key: bool = False
    key_header: Literal["authorization", "api-key"] = "authorization"
    marks_cache: bool = False


_DEFAULT: Final = Server()
_AZURE: Final = Server(limit="max_completion_tokens", key_header="api-key")

_SERVERS: Final = (
    (re.compile(r"api\.openai\.com\Z|\w+\.api\.openai\.com\Z"), Server(limit="max_completion_tokens", cache_key=True)),
    (re.compile(r"\.(?:openai|services\.ai|cognitiveservices)\.azure\.com\Z"), _AZURE),
    (re.compile(r"(?:\A|\.)mistral\.ai\Z"), Server(content="", ids=IdRule(exact=9), usage_option=False)),
    (re.compile(r"(?:\A|\.)openrouter\.ai\Z"), replace(_DEFAULT, marks_cache=True)),
)


def server_of(base_url: str) -> Server:
    """Return what is known of the server at a base URL."""
    host = (urlsplit(base_url).hostname or "").lower()
    return next((server for pattern, server in _SERVERS if pattern.search(host)), _DEFAULT)
