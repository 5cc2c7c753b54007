"""SQLite through the standard library, one connection in a thread of its own.

Several processes may share the file, on a local disk: it is kept in WAL mode, every write transaction begins
as a writer (``BEGIN IMMEDIATE``: one that begins as a reader can be refused half-way), and commits reach the
disk before they count.
"""

import asyncio
import json
import os
import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeVar, cast

from roundelay_worker.store.driver import Dialect, Query, Rows, Script
from roundelay_worker.store.errors import Conflict, StoreBusy, StoreError, StoreUnavailable, UnsuitableDatabase

T = TypeVar("T")

BUSY_TIMEOUT: Final = 1.5
"""Seconds; below a third of a worker's lease."""

OLDEST: Final = (3, 35, 0)
"""RETURNING and MATERIALIZED."""

_TRIES: Final = 4
_NOW: Final = "((julianday('now') - 2440587.5) * 86400.0)"
_MARKS: Final = {"{now}": _NOW, "{began}": _NOW, "{lock}": "", "{skip}": "", "{relaxed}": "TRUE"}


@cache
def render(sql: str) -> str:
    """Return ``sql`` with its marks and parameters in SQLite's words."""
    sql = re.sub(r"\{(now|began|lock|skip|relaxed)\}", lambda mark: _MARKS[mark[0]], sql)
    sql = re.sub(r"\{any \$(\d+)\}", r"IN (SELECT value FROM json_each(?\1))", sql)
    return re.sub(r"\$(\d+)", r"?\1", sql)


def connect(path: str) -> sqlite3.Connection:
    """Open the file at ``path``, made if need be, for the calling thread."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise UnsuitableDatabase(f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or newer is needed")
    _make_private(path)
    try:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error as exc:
        raise translated(exc) from exc
    return connection


def _make_private(path: str) -> None:
    """Make a new file its owner's alone: it holds what users say. SQLite gives its other files the same mode."""
    with suppress(OSError):  # it is there already, or SQLite says what is wrong
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def translated(exc: sqlite3.Error) -> StoreError:
    """Return our error for one of SQLite's."""
    code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
    if isinstance(exc, sqlite3.IntegrityError):
        return Conflict("such a row is there already")
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StoreBusy("the SQLite file is held by another process")
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
        return UnsuitableDatabase(f"the SQLite file cannot be used ({getattr(exc, 'sqlite_errorname', '')})")
    if code == sqlite3.SQLITE_ERROR:
        return UnsuitableDatabase("SQLite does not know a table or column; has it been migrated?")
    return StoreUnavailable(f"SQLite failed ({getattr(exc, 'sqlite_errorname', type(exc).__name__)})")


class SqliteDriver:
    """One SQLite file, for one event loop of one process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="roundelay-sqlite")
        self._connection: sqlite3.Connection | None = None

    @property
    def dialect(self) -> Dialect:
        """Say that this is SQLite."""
        return "sqlite"

    async def fetch(self, sql: str, *args: Any, again: bool = False) -> Rows:  # noqa: ARG002 - a file does not break off
        """Run one statement on its own."""
        return await self._in_thread(lambda connection: execute(connection, Query(sql, args)))

    async def run(self, script: Callable[[], Script[T]], *, reading: bool = False) -> T:
        """Run a script in one transaction, without leaving the thread."""
        begin = "BEGIN" if reading else "BEGIN IMMEDIATE"
        return await self._in_thread(lambda connection: play(connection, script, begin))

    async def close(self) -> None:
        """Close the connection and end the thread."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._tried, work)

    def _tried(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do ``work``; SQLite's own waiting is not fair, so a busy file gets a few tries."""
        if self._connection is None:
            self._connection = connect(self._path)
        for _ in range(_TRIES - 1):
            try:
                return work(self._connection)
            except StoreBusy:
                continue
        return work(self._connection)


def execute(connection: sqlite3.Connection, query: Query) -> Rows:
    """Run one query; its rows are fetched whole, since a statement is not done before."""
    try:
        if query.many:
            connection.executemany(render(query.sql), query.args)
            return ()
        args = tuple([json.dumps(arg) if isinstance(arg, list) else arg for arg in query.args])
        return cast("Rows", connection.execute(render(query.sql), args).fetchall())
    except sqlite3.Error as exc:
        raise translated(exc) from exc


def play(connection: sqlite3.Connection, script: Callable[[], Script[T]], begin: str = "BEGIN IMMEDIATE") -> T:
    """Run a script between ``begin`` and COMMIT; nothing of it stays if anything is raised."""
    execute(connection, Query(begin))
    try:
        result = _played(connection, script())
        execute(connection, Query("COMMIT"))
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _played(connection: sqlite3.Connection, script: Script[T]) -> T:
    try:
        query = next(script)
        while True:
            query = script.send(execute(connection, query))
    except StopIteration as stop:
        return cast("T", stop.value)
