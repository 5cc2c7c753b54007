"""Services that the durability tests share, and deployments of their own on them."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.deployment import NUMBERS, Deployment
from harness.services import create_database
from harness.workers import Zygote

from roundelay_worker.embedded.postgres import running_postgres
from roundelay_worker.embedded.valkey import running_valkey
from roundelay_worker.testing.fake_llm import FakeLLM


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Return a folder that other users may pass through: PostgreSQL refuses to run as root."""
    made = Path(tempfile.mkdtemp(prefix="roundelay-"))
    made.chmod(0o755)
    yield made
    if not os.environ.get("HARNESS_KEEP"):
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def valkey(folder: Path) -> Iterator[str]:
    with running_valkey(folder / "valkey") as url:
        yield url


@pytest.fixture(scope="session")
def postgres(folder: Path) -> Iterator[str]:
    with running_postgres(folder / "postgres") as url:
        yield url


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeLLM]:
    with FakeLLM(keep=5000) as fake:
        yield fake


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture
def deploy(
    folder: Path, valkey: str, request: pytest.FixtureRequest, fake: FakeLLM, zygote: Zygote
) -> Iterator[Callable[..., Deployment]]:
    """Make deployments: ``deploy()`` on PostgreSQL, ``deploy("sqlite")``; settings as keyword arguments."""
    with ExitStack() as stack:

        def made(database: str = "postgres", redis_url: str = valkey, **env: str) -> Deployment:
            home = folder / f"home{next(NUMBERS)}"
            home.mkdir()
            url = f"sqlite:///{home}/db" if database == "sqlite" else database
            if database == "postgres":
                url = create_database(request.getfixturevalue("postgres"), f"d{os.getpid()}_{next(NUMBERS)}")
            deployment = Deployment(zygote, home, redis_url, url, fake, **env)
            stack.callback(deployment.close)
            return deployment

        yield made
