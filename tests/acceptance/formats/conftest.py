"""One Valkey for all modules; one fake and one runtime for each."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from formats_stage import Stage

from roundelay_worker.embedded.valkey import running_valkey
from roundelay_worker.testing.fake_llm import FakeLLM


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_valkey(tmp_path_factory.mktemp("valkey")) as url:
        yield url


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeLLM]:
    with FakeLLM(keep=5000) as fake:
        yield fake


@pytest.fixture(scope="module")
def build(valkey_url: str, tmp_path_factory: pytest.TempPathFactory, fake: FakeLLM) -> Iterator[Callable[..., Stage]]:
    """Make stages of other settings: ``build(idle_timeout=1)``."""
    with ExitStack() as stack:

        def built(**settings: object) -> Stage:
            return stack.enter_context(Stage(valkey_url, tmp_path_factory.mktemp("stage"), fake, **settings))

        yield built


@pytest.fixture(scope="module")
def stage(build: Callable[..., Stage]) -> Stage:
    return build()
