"""Any Chat Completions server: OpenAI, Azure, Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek, Groq, Mistral and kin."""

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from roundelay_worker.loop.history import Turn
from roundelay_worker.providers.base import ModelRequest, Patience
from roundelay_worker.providers.chat.reply import ChatAssembly
from roundelay_worker.providers.chat.request import ChatTarget, body_of
from roundelay_worker.providers.chat.servers import server_of
from roundelay_worker.providers.reading import BodyReader
from roundelay_worker.providers.transport import HttpRequest, HttpTransport
from roundelay_worker.providers.urls import key_headers, trimmed

OPENAI_URL: Final = "https://api.openai.com/v1"
_PATH: Final = "/chat/completions"


class ChatProvider:
    """A model behind a Chat Completions server.

    ``base_url`` keeps its path (``https://host/openai/v1``) and its query; only OpenAI's own may lack its ``/v1``.
    """

    def __init__(self, model: str, base_url: str, api_key: str, transport: HttpTransport) -> None:
        parts = urlsplit(trimmed(base_url))
        base = trimmed(urlunsplit(parts._replace(query="")), (_PATH.lstrip("/"),))
        if base == "https://api.openai.com":
            base = OPENAI_URL
        self._url = f"{base}{_PATH}?{parts.query}" if parts.query else f"{base}{_PATH}"
        self._target = ChatTarget(model=model, origin=f"chat:{model}@{base}", server=server_of(base))
        self._headers = key_headers(self._target.server.key_header, api_key)
        self._transport = transport

    @property
    def origin(self) -> str:
        """Return ``chat:model@base_url``, the place that native blocks hold for."""
        return self._target.origin

    @property
    def target(self) -> ChatTarget:
        """Return whom requests are written for."""
        return self._target

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:
        """Send one request and return the whole turn; raise ModelFailure, and close the socket when cancelled."""
        http = HttpRequest(self._url, self._headers, body_of(request, self._target))
        reader = BodyReader(ChatAssembly(request, self.origin))
        if "no_stream" not in request.repairs:
            return await self._transport.stream(http, reader, on_text, patience)
        return await self._transport.whole(http, reader.read, patience)
