"""Everything that Roundelay needs on one machine, started and ended together: ``roundelay up`` and ``demo``."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from roundelay.names import DEFAULT_PREFIX
from roundelay.settings import ADDRESSES
from roundelay_worker.embedded.child import EmbeddedError, locked, write_private
from roundelay_worker.embedded.postgres import running_postgres
from roundelay_worker.embedded.valkey import running_valkey
from roundelay_worker.settings import make_home, sqlite_url

__all__ = ["Addresses", "EmbeddedError", "announced", "running_services"]


@dataclass(frozen=True, slots=True)
class Addresses:
    """What clients and commands need to find the embedded services."""

    redis_url: str
    broker_url: str
    database_url: str
    prefix: str = DEFAULT_PREFIX
    flower_url: str | None = None


@contextmanager
def running_services(home: Path, *, postgres: bool = False) -> Iterator[Addresses]:
    """Keep Valkey, and PostgreSQL if asked for, running on ``home``; SQLite is the database otherwise.

    Raises EmbeddedError if another process does so on the same home. What a killed process left is taken over.
    """
    make_home(home)
    refusal = f"`roundelay up` already runs on {home}: stop it first, or set ROUNDELAY_HOME to another folder"
    with ExitStack() as stack:
        stack.enter_context(locked(home / "lock", refusal))
        (home / ADDRESSES).unlink(missing_ok=True)
        # Its memory is of messages of one database, so each has its own.
        url = stack.enter_context(running_valkey(home / ("valkey-postgres" if postgres else "valkey")))
        database = stack.enter_context(running_postgres(home / "postgres")) if postgres else sqlite_url(home)
        yield Addresses(url, url, database)


@contextmanager
def announced(home: Path, addresses: Addresses) -> Iterator[None]:
    """Keep the addresses in the home folder, where clients and commands look when no URL is set."""
    file = home / ADDRESSES
    write_private(file, json.dumps({name: value for name, value in asdict(addresses).items() if value}, indent=2))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
