"""Anthropic's Messages API as a provider."""

from collections.abc import Callable
from typing import Final

from roundelay_worker.loop.history import Turn
from roundelay_worker.providers.anthropic.reply import MessageAssembly
from roundelay_worker.providers.anthropic.request import body_of
from roundelay_worker.providers.base import ModelRequest, Patience
from roundelay_worker.providers.reading import BodyReader
from roundelay_worker.providers.transport import HttpRequest, HttpTransport
from roundelay_worker.providers.urls import trimmed

BASE_URL: Final = "https://api.anthropic.com"
VERSION: Final = "2023-06-01"


class AnthropicProvider:
    """A model behind the Messages API."""

    def __init__(self, model: str, base_url: str, api_key: str, transport: HttpTransport) -> None:
        self._model = model
        base = trimmed(base_url or BASE_URL, ("v1",))
        self._url = f"{base}/v1/messages"
        self._origin = f"anthropic:{model}@{base}"
        self._transport = transport
        self._headers = {"x-api-key": api_key, "anthropic-version": VERSION, "content-type": "application/json"}

    @property
    def origin(self) -> str:
        """Return ``format:model@base_url``, the place that native blocks hold for."""
        return self._origin

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:
        """Send one request and return the whole turn; raise ModelFailure, and close the socket when cancelled."""
        http = HttpRequest(self._url, self._headers, body_of(request, self._model, self.origin))
        reader = BodyReader(MessageAssembly(request, self.origin))
        if "no_stream" not in request.repairs:
            return await self._transport.stream(http, reader, on_text, patience)
        return await self._transport.whole(http, reader.read, patience)
