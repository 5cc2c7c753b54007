"""Redis and PostgreSQL on folders of their own, which can be ended in several ways and started again."""

import asyncio
import json
import os
import random
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from pathlib import Path

import asyncpg
import redis

from roundelay_worker.embedded.child import LOOPBACK, Address, last_address, write_private
from roundelay_worker.embedded.postgres import running_postgres
from roundelay_worker.embedded.valkey import running_valkey

EPHEMERAL = 32_768
"""Ports from here on the kernel gives to whoever connects: a server that is away could find its own taken."""

Start = Callable[[Path], AbstractContextManager[str]]


class Server:
    """A server that keeps its folder, and with it its port, over all restarts."""

    def __init__(self, start: Start, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True)
        port = _port_of_our_own()
        write_private(folder / "address.json", json.dumps(asdict(Address(port, last_address(folder).password))))
        self._make = start
        self._folder = folder
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start it; its URL stays what it was."""
        self._running = self._make(self._folder)
        url = self._running.__enter__()
        if self.url not in {"", url}:
            raise RuntimeError(f"the port of {self._folder.name} was taken while it was away")
        self.url = url

    def stop(self) -> None:
        """End it in good order (Redis: SIGTERM, PostgreSQL: its fast shutdown), or note that it is dead."""
        self._running.__exit__(None, None, None)


class Redis(Server):
    """The Redis-protocol server."""

    def __init__(self, home: Path) -> None:
        super().__init__(running_valkey, home / "valkey")

    def client(self) -> redis.Redis:
        """Return a connection."""
        return redis.Redis.from_url(self.url, socket_timeout=10)

    def kill(self) -> None:
        """Kill it by SIGKILL."""
        with self.client() as client:
            number = int(client.info("server")["process_id"])
        os.kill(number, signal.SIGKILL)
        self.stop()


class Postgres(Server):
    """The database server."""

    def __init__(self, home: Path) -> None:
        super().__init__(running_postgres, home / "postgres")

    def kill(self) -> None:
        """Kill the postmaster by SIGKILL; its backends notice and end."""
        lines = (self._folder / "cluster" / "postmaster.pid").read_text().splitlines()
        os.kill(int(lines[0]), signal.SIGKILL)
        self.stop()

    def kill_backend(self, dice: random.Random) -> bool:
        """Kill one of the backends by SIGKILL, which makes PostgreSQL restart all of them."""
        found = self.ask("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")
        pids = [int(row["pid"]) for row in found]
        with suppress(ProcessLookupError, IndexError):
            os.kill(dice.choice(pids), signal.SIGKILL)
            return True
        return False

    def ask(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        """Return the rows of a query; none if the server is away."""
        try:
            return asyncio.run(self._ask(query, arguments))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return []

    async def _ask(self, query: str, arguments: tuple[object, ...]) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.url, timeout=5)
        try:
            return list(await connection.fetch(query, *arguments))
        finally:
            await connection.close()


def _port_of_our_own() -> int:
    dice = random.SystemRandom()
    while True:
        port = dice.randrange(20_000, EPHEMERAL)
        with socket.socket() as listener, suppress(OSError):
            listener.bind((LOOPBACK, port))
            return port
