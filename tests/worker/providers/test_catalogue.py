"""What is said of a model's failures, and what is remembered of its server."""

import asyncio
from collections.abc import Callable

import pytest

from roundelay_worker.engine.setup import CannotStart
from roundelay_worker.loop.history import Turn
from roundelay_worker.providers.base import ModelFailure, ModelRequest, Patience
from roundelay_worker.providers.catalogue import Keyed, Models
from roundelay_worker.settings import Settings, secrets_of

REQUEST = ModelRequest(system="", history=())
ENV = {
    "ROUNDELAY_REDIS_URL": "redis://:p%40ss@host/0",
    "ROUNDELAY_DATABASE_URL": "postgresql://u:database-word@host/db",
    "OPENAI_API_KEY": "team-blue-42",
}


class Scripted:
    """A provider that fails with what it is given, or answers."""

    origin = "chat:m@here"

    def __init__(self, *failures: ModelFailure) -> None:
        self.failures = list(failures)
        self.asked: list[ModelRequest] = []

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:
        self.asked.append(request)
        if self.failures:
            raise self.failures.pop(0)
        return Turn("ok")


def keyed(provider: Scripted) -> Keyed:
    return Keyed(provider, "OPENAI_API_KEY", "chat:m", "ROUNDELAY_MODEL", secrets_of(Settings.from_env(ENV)))


def ask(provider: Keyed, request: ModelRequest = REQUEST) -> Turn:
    return asyncio.run(provider.ask(request, print, Patience()))


@pytest.mark.parametrize("secret", ["team-blue-42", "p@ss", "database-word"])
def test_no_configured_secret_is_in_what_a_failure_says(secret: str) -> None:
    failing = ModelFailure("bad_request", f"refused ({secret})", detail=f"Bearer {secret} is odd")

    with pytest.raises(ModelFailure) as caught:
        ask(keyed(Scripted(failing)))

    assert secret not in caught.value.message + caught.value.detail


def test_a_model_that_is_not_known_is_named_with_its_setting() -> None:
    with pytest.raises(ModelFailure, match=r"The model is chat:m; check ROUNDELAY_MODEL"):
        ask(keyed(Scripted(ModelFailure("model_not_found", "The model server does not know this model."))))


def test_what_a_server_refuses_is_found_out_once_and_not_by_each_message() -> None:
    provider = Scripted()
    model = keyed(provider)
    ask(model, ModelRequest(system="", history=(), repairs=frozenset({"drop:prompt_cache_key", "shrink"})))

    ask(model)

    assert provider.asked[1].repairs == {"drop:prompt_cache_key"}


def test_a_provider_with_a_typo_is_told_with_the_likely_one() -> None:
    with pytest.raises(CannotStart, match=r"did you mean openai\?"):
        Models(Settings.from_env(ENV)).provider("opnai:gpt-5")
