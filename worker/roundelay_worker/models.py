"""From ``provider:model`` to the provider that speaks its wire format."""

from collections.abc import Callable

from roundelay_worker.providers.anthropic import AnthropicProvider
from roundelay_worker.providers.base import Provider
from roundelay_worker.providers.chat import ChatProvider
from roundelay_worker.providers.demo import DemoProvider
from roundelay_worker.providers.google import GoogleProvider
from roundelay_worker.providers.openai import OpenAIProvider
from roundelay_worker.providers.transport import HttpTransport
from roundelay_worker.resolve import CannotStart
from roundelay_worker.settings import Settings


class Models:
    """Builds each provider once per process, all over one pool of connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._transport = HttpTransport()
        self._built: dict[str, Provider] = {}

    def provider(self, model: str) -> Provider:
        """Return the provider of a model; raise CannotStart if its credentials are missing."""
        if model not in self._built:
            self._built[model] = self._build(*model.split(":", 1))
        return self._built[model]

    def _build(self, provider: str, name: str) -> Provider:
        if provider == "demo":
            return DemoProvider(name)
        makers: dict[str, tuple[Callable[[str, str, str, HttpTransport], Provider], str, str]] = {
            "chat": (ChatProvider, "https://api.openai.com/v1", "ROUNDELAY_CHAT_BASE_URL, or OPENAI_API_KEY"),
            "openai": (OpenAIProvider, "https://api.openai.com", "OPENAI_API_KEY"),
            "anthropic": (AnthropicProvider, "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
            "google": (GoogleProvider, "https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
        }
        if provider not in makers:
            raise CannotStart(
                "unknown_provider", "The model's provider is not known; see the README for those that are."
            )
        maker, home, variables = makers[provider]
        endpoint = self._settings.endpoint(provider)
        keyless = provider == "chat" and self._settings.chat_base_url is not None
        if endpoint.api_key is None and not keyless:
            raise CannotStart("credentials", f"The worker cannot use {provider}: models: it needs {variables}.")
        key = endpoint.api_key.get_secret_value() if endpoint.api_key else ""
        return maker(name, endpoint.base_url or home, key, self._transport)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.close()
