"""From ``provider:model`` to the provider that speaks its wire format."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.request import getproxies

from roundelay_worker.engine.setup import CannotStart
from roundelay_worker.loop.history import Turn
from roundelay_worker.providers.anthropic.provider import AnthropicProvider
from roundelay_worker.providers.base import ModelFailure, ModelRequest, Patience, Provider, Repair
from roundelay_worker.providers.chat.provider import ChatProvider
from roundelay_worker.providers.demo.provider import DemoProvider
from roundelay_worker.providers.excerpt import without
from roundelay_worker.providers.google.provider import GoogleProvider
from roundelay_worker.providers.responses.provider import OpenAIProvider
from roundelay_worker.providers.transport import HttpTransport
from roundelay_worker.settings import Settings, secrets_of

Maker = Callable[[str, str, str, HttpTransport], Provider]

_MAKERS: Final[dict[str, tuple[Maker, str]]] = {
    "chat": (ChatProvider, "https://api.openai.com/v1"),
    "openai": (OpenAIProvider, "https://api.openai.com"),
    "anthropic": (AnthropicProvider, "https://api.anthropic.com"),
    "google": (GoogleProvider, "https://generativelanguage.googleapis.com"),
}
"""What speaks each format, and where its own service is."""

_KEYS: Final = {
    "chat": "OPENAI_API_KEY",
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GEMINI_API_KEY (or GOOGLE_API_KEY)",
}
_OF_THE_SERVER: Final = ("drop:", "rename:", "role:", "ids:", "content:", "add:", "no_stream")
"""Repairs that hold for a model and its server, whatever the message."""
_OWN_SERVER_KEY: Final = "ROUNDELAY_CHAT_API_KEY"


def usable_providers(settings: Settings) -> tuple[str, ...]:
    """Return the providers whose models can be spoken to with these settings."""
    return ("demo", *(provider for provider in _MAKERS if _can_use(settings, provider)))


def _can_use(settings: Settings, provider: str) -> bool:
    return settings.endpoint(provider).api_key is not None or _is_own_server(settings, provider)


def _is_own_server(settings: Settings, provider: str) -> bool:
    return provider == "chat" and settings.chat_base_url is not None


@dataclass(frozen=True, slots=True)
class Keyed:
    """A provider whose failures name what to mend and hold no secret, and which remembers what its server refuses."""

    inner: Provider
    variable: str
    name: str
    setting: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    learnt: set[Repair] = field(default_factory=set)
    """Changes to requests that this model was found to need: they are not found out anew by each message."""

    @property
    def origin(self) -> str:
        """Return ``format:model@base_url``, the place that native blocks hold for."""
        return self.inner.origin

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:
        """Send one request and return the whole turn; raise ModelFailure, and close the socket when cancelled."""
        wiser = replace(request, repairs=request.repairs | self.learnt) if self.learnt else request
        try:
            turn = await self.inner.ask(wiser, on_text, patience)
        except ModelFailure as failure:
            raise self._told(failure) from failure
        self.learnt.update(repair for repair in request.repairs if repair.startswith(_OF_THE_SERVER))
        return turn

    def _told(self, failure: ModelFailure) -> ModelFailure:
        advice = {
            "credentials": f" Check {self.variable} in the worker's environment.",
            "model_not_found": f" The model is {self.name}; check {self.setting}, or model= at submit.",
        }
        return ModelFailure(
            failure.code,
            without(self.secrets, failure.message) + advice.get(failure.code, ""),
            retryable=failure.retryable,
            delay=failure.delay,
            repair=failure.repair,
            detail=without(self.secrets, failure.detail),
        )


class Models:
    """Builds each provider once per process, all over one pool of connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Only where there is a proxy: aiohttp would look for one, and into ~/.netrc, at every request.
        self._transport = HttpTransport(trust_env=bool(getproxies()))
        self._built: dict[str, Provider] = {}

    def provider(self, model: str) -> Provider:
        """Return the provider of a model; raise CannotStart if its credentials are missing."""
        if model not in self._built:
            self._built[model] = self._build(*model.split(":", 1))
        return self._built[model]

    def _build(self, provider: str, name: str) -> Provider:
        if provider == "demo":
            return DemoProvider(name)
        if provider not in _MAKERS:
            known = ("openai", "chat", "anthropic", "google", "demo")
            near = difflib.get_close_matches(provider, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}."
            raise CannotStart("unknown_provider", f"The model's provider is not known: {hint}")
        maker, home = _MAKERS[provider]
        endpoint = self._settings.endpoint(provider)
        own_server = _is_own_server(self._settings, provider)
        if not _can_use(self._settings, provider):
            other = ", or ROUNDELAY_CHAT_BASE_URL for a server of your own" if provider == "chat" else ""
            text = f"The worker cannot use {provider}: models: it needs {_KEYS[provider]}{other}."
            raise CannotStart("credentials", text)
        key = endpoint.api_key.get_secret_value() if endpoint.api_key else ""
        built = maker(name, endpoint.base_url or home, key, self._transport)
        variable = _OWN_SERVER_KEY if own_server else _KEYS[provider]
        return Keyed(built, variable, f"{provider}:{name}", "ROUNDELAY_MODEL", secrets_of(self._settings))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.close()
