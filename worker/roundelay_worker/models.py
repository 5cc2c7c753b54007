"""From ``provider:model`` to the provider that speaks its wire format."""

from pydantic import SecretStr

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
        settings = self._settings
        match provider:
            case "demo":
                return DemoProvider(name)
            case "chat":
                return self._chat(name)
            case "openai":
                key = _key(settings.openai_api_key, "OPENAI_API_KEY", provider)
                return OpenAIProvider(name, settings.openai_base_url, key, self._transport)
            case "anthropic":
                key = _key(settings.anthropic_api_key, "ANTHROPIC_API_KEY", provider)
                return AnthropicProvider(name, settings.anthropic_base_url, key, self._transport)
            case "google":
                key = _key(settings.gemini_api_key, "GEMINI_API_KEY", provider)
                return GoogleProvider(name, settings.gemini_base_url, key, self._transport)
        raise CannotStart("unknown_provider", "The model's provider is not known; see the README for those that are.")

    def _chat(self, name: str) -> Provider:
        settings = self._settings
        if settings.chat_base_url:
            key = settings.chat_api_key.get_secret_value() if settings.chat_api_key else ""
            return ChatProvider(name, settings.chat_base_url, key, self._transport)
        key = _key(settings.openai_api_key, "OPENAI_API_KEY", "chat (or set ROUNDELAY_CHAT_BASE_URL)")
        return ChatProvider(name, settings.openai_base_url, key, self._transport)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


def _key(key: SecretStr | None, variable: str, what: str) -> str:
    if key is None:
        raise CannotStart("credentials", f"The worker has no {variable}, which {what} needs.")
    return key.get_secret_value()
