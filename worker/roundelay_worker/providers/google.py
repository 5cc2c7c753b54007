"""Google's Gemini API (generateContent) as a provider."""

from collections.abc import Callable
from typing import Final

import orjson

from roundelay_worker.loop.history import Turn
from roundelay_worker.providers.base import ModelRequest, Patience
from roundelay_worker.providers.google_reply import GenerationAssembly
from roundelay_worker.providers.google_request import to_request
from roundelay_worker.providers.reading import BodyReader
from roundelay_worker.providers.transport import HttpRequest, HttpTransport
from roundelay_worker.providers.urls import trimmed

BASE_URL: Final = "https://generativelanguage.googleapis.com"


class GoogleProvider:
    """A model behind the Gemini API."""

    def __init__(self, model: str, base_url: str, api_key: str, transport: HttpTransport) -> None:
        self._model = model
        self._base_url = trimmed(base_url or BASE_URL, ("v1beta", "v1"))
        self._transport = transport
        self._headers = {"x-goog-api-key": api_key, "content-type": "application/json"}

    @property
    def origin(self) -> str:
        """Return ``format:model@base_url``, the place that native parts hold for."""
        return f"google:{self._model}@{self._base_url}"

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:
        """Send one request and return the whole turn; raise ModelFailure, and close the socket when cancelled."""
        body = orjson.dumps(to_request(request, self._model, self.origin))
        reader = BodyReader(GenerationAssembly(self.origin, [tool.name for tool in request.tools]))
        url = self._url(in_one_piece="no_stream" in request.repairs)
        return await self._transport.stream(HttpRequest(url, self._headers, body), reader, on_text, patience)

    def _url(self, *, in_one_piece: bool) -> str:
        """Return the address; the key is never in it, since addresses are logged."""
        model = self._model if "/" in self._model else f"models/{self._model}"
        method = "generateContent" if in_one_piece else "streamGenerateContent?alt=sse"
        return f"{self._base_url}/v1beta/{model}:{method}"
