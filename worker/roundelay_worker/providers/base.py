"""The seam to the language models: what is asked, what comes back, how it fails.

One file per wire format holds a pure ``to_request``, a pure reader that is fed bytes cut anywhere, and
one method that sends. ``demo`` and the scripted provider of the tests are real implementations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from roundelay_worker.loop.history import History, Turn

Repair = str
"""One change to a request that may mend a refusal; each is tried once for a message, and kept:

``drop_reasoning``        send no reasoning, signatures or encrypted items of earlier turns
``drop:{parameter}``      leave out an optional parameter that the model refused (temperature, include …)
``rename:max_tokens``     use the other name of the output limit (chat)
``role:system``           use the other role for the system prompt (chat)
``role:user``             put the system prompt into the first user text (chat)
``role:bridge``           put an assistant's word between a result and a user text (chat)
``ids:nine``              write the ids of calls as nine letters and digits (chat)
``content:empty``         write no text beside calls as '' instead of null (chat)
``add:reasoning_content`` add an empty ``reasoning_content`` to turns that lack it (chat)
``no_stream``             ask for the reply in one piece
``shrink``                old tool results are shortened (done by the caller, not by the provider)
"""

FailureCode = Literal[
    "model_unreachable",
    "model_overloaded",
    "rate_limited",
    "quota",
    "model_stalled",
    "model_timeout",
    "reply_cut_off",
    "context_overflow",
    "request_too_large",
    "bad_request",
    "credentials",
    "model_not_found",
    "tools_unsupported",
    "provider_error",
]
"""Stable codes; they are also the ``error.code`` of a message that ends ``failed`` by them."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is declared to a model; ``schema`` is JSON Schema of an object."""

    name: str
    description: str
    schema: dict[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request for one turn.

    ``tool_choice`` is None when no tools are declared. ``nudge`` is a sentence to be put where the format
    takes steering text without breaking pairs (after the results; never stored). ``cache_key`` is stable
    for a conversation and holds no user data.
    """

    system: str
    history: History
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "none"] | None = None
    max_output_tokens: int = 8192
    temperature: float | None = None
    reasoning_effort: str | None = None
    repairs: frozenset[Repair] = frozenset()
    nudge: str = ""
    cache_key: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Members of the request's body that the caller added; what is ours wins."""


class ModelFailure(Exception):
    """A request that brought no usable turn.

    ``code`` is stable, ``message`` is safe to show (no key, no body, no user text), ``retryable`` says
    whether the same request may work later, ``delay`` is the server's wish in seconds, and ``repair``
    is a change after which the request may work at once. Only one of ``retryable`` and ``repair`` is acted
    upon; a repair goes first while it has not been tried. ``detail`` is what the provider said, as far as operators may
    read it; it is for the log alone.
    """

    def __init__(
        self,
        code: FailureCode,
        message: str,
        *,
        retryable: bool = False,
        delay: float | None = None,
        repair: Repair = "",
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.code: FailureCode = code
        self.message = message
        self.retryable = retryable
        self.delay = delay
        self.repair = repair
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one attempt may take, in seconds: to connect, and in silence once it is under way.

    The whole attempt is bounded by the caller, who cancels it.
    """

    connect: float = 10.0
    idle: float = 180.0


class Provider(Protocol):
    """A model behind one wire format."""

    @property
    def origin(self) -> str:
        """Return ``format:model@base_url``, the place that native blocks hold for."""

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:
        """Send one request and return the whole turn; raise ModelFailure, and close the socket when cancelled.

        ``on_text`` gets pieces of visible text as they come; it must not block.
        """
