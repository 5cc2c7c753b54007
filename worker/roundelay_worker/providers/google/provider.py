"""Google's Gemini API (generateContent) as a provider."""

from collections.abc import Callable
from typing import Final

from roundelay_worker.loop.history import Turn
from roundelay_worker.providers.base import ModelRequest, Patience
from roundelay_worker.providers.google.reply import GenerationAssembly
from roundelay_worker.providers.google.request import body_of
from roundelay_worker.providers.reading import BodyReader
from roundelay_worker.providers.transport import HttpRequest, HttpTransport
from roundelay_worker.providers.urls import trimmed

BASE_URL: Final = "https://generativelanguage.googleapis.com"


class GoogleProvider:
    """A model behind the Gemini API. The key goes in a header, never in the address, since addresses are logged."""

    def __init__(self, model: str, base_url: str, api_key: str, transport: HttpTransport) -> None:
        self._model = model
        base = trimmed(base_url or BASE_URL, ("v1beta", "v1"))
        self._url = f"{base}/v1beta/{model if '/' in model else f'models/{model}'}"
        self._origin = f"google:{model}@{base}"
        self._transport = transport
        self._headers = {"x-goog-api-key": api_key, "content-type": "application/json"}

    @property
    def origin(self) -> str:
        """Return ``format:model@base_url``, the place that native parts hold for."""
        return self._origin

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:
        """Send one request and return the whole turn; raise ModelFailure, and close the socket when cancelled."""
        body = body_of(request, self._model, self.origin)
        reader = BodyReader(GenerationAssembly(request, self.origin))
        if "no_stream" not in request.repairs:
            http = HttpRequest(f"{self._url}:streamGenerateContent?alt=sse", self._headers, body)
            return await self._transport.stream(http, reader, on_text, patience)
        http = HttpRequest(f"{self._url}:generateContent", self._headers, body)
        return await self._transport.whole(http, reader.read, patience)
