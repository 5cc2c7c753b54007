"""OpenAI's Responses API, used without leaving anything stored, and the servers that speak its stateless part."""

from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

from roundelay_worker.loop.history import Turn
from roundelay_worker.providers.base import ModelRequest, Patience
from roundelay_worker.providers.chat.servers import server_of
from roundelay_worker.providers.reading import BodyReader
from roundelay_worker.providers.responses.reply import ResponsesAssembly
from roundelay_worker.providers.responses.request import ResponsesTarget, body_of
from roundelay_worker.providers.transport import HttpRequest, HttpTransport
from roundelay_worker.providers.urls import key_headers, trimmed


class OpenAIProvider:
    """A model behind the Responses API; ``base_url`` may end in ``/``, ``/v1`` or neither."""

    def __init__(self, model: str, base_url: str, api_key: str, transport: HttpTransport) -> None:
        parts = urlsplit(trimmed(base_url))
        base = trimmed(urlunsplit(parts._replace(query="")), ("responses",))
        base = trimmed(base, ("v1",))
        self._url = f"{base}/v1/responses?{parts.query}" if parts.query else f"{base}/v1/responses"
        self._target = ResponsesTarget(model=model, origin=f"openai:{model}@{base}")
        self._headers = key_headers(server_of(base).key_header, api_key)
        self._transport = transport

    @property
    def origin(self) -> str:
        """Return ``openai:model@base_url``, the place that native blocks hold for."""
        return self._target.origin

    @property
    def target(self) -> ResponsesTarget:
        """Return whom requests are written for."""
        return self._target

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:
        """Send one request and return the whole turn; raise ModelFailure, and close the socket when cancelled."""
        http = HttpRequest(self._url, self._headers, body_of(request, self._target))
        reader = BodyReader(ResponsesAssembly(request, self.origin))
        if "no_stream" not in request.repairs:
            return await self._transport.stream(http, reader, on_text, patience)
        return await self._transport.whole(http, reader.read, patience)
