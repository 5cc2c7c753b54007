"""PostgreSQL through asyncpg: a small pool of its own.

asyncpg's pool resets a connection with a statement of its own each time it comes back; here nothing that a
statement does outlives it, so connections are handed round as they are, the warmest first.

A statement whose connection broke may have happened. It is tried again, once and on a fresh connection, only
if it is known not to have happened or if the caller says that a second time is harmless.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final, TypeVar, cast

import asyncpg

from roundelay_worker.store.driver import Dialect, Query, Rows, Script
from roundelay_worker.store.errors import Conflict, StoreError, StoreUnavailable, UnsuitableDatabase

T = TypeVar("T")

CONNECT_TIMEOUT: Final = 5.0
COMMAND_TIMEOUT: Final = 20.0
POOL_SIZE: Final = 8

_MARKS: Final = {
    "{now}": "CAST(extract(epoch FROM clock_timestamp()) AS double precision)",
    "{began}": "CAST(extract(epoch FROM statement_timestamp()) AS double precision)",
    "{lock}": "FOR UPDATE",
    "{skip}": "FOR UPDATE SKIP LOCKED",
    "{relaxed}": "(SELECT set_config('synchronous_commit', 'off', TRUE)) = 'off'",
}
_UNREACHABLE: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
)
"""A server that is shut down may say so after a commit as well as before it."""
_ROLLED_BACK: Final = (
    asyncpg.QueryCanceledError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.ReadOnlySQLTransactionError,
)
_UNSUITABLE: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
)


class _Undone(Exception):
    """The server is known not to have done it."""


class _Unknown(Exception):
    """The connection broke while the server may have been at it."""


POOLED: Final = "pgbouncer=true"


def is_pooled(url: str) -> bool:
    """Say whether the URL tells of a pooler in transaction mode, where two statements may reach two servers."""
    return POOLED in url


async def fetched(connection: Any, sql: str, args: tuple[Any, ...], *, pooled: bool) -> Rows:
    """Run one statement on its own; behind a pooler in a transaction, which keeps its parts on one server."""
    if not pooled:
        return cast("Rows", await connection.fetch(render(sql), *args))
    async with connection.transaction():
        return cast("Rows", await connection.fetch(render(sql), *args))


@cache
def render(sql: str) -> str:
    """Return ``sql`` with its marks in PostgreSQL's words."""
    sql = re.sub(r"\{any \$(\d+)\}", r"= ANY (CAST($\1 AS text[]))", sql)
    return re.sub(r"\{(now|began|lock|skip|relaxed)\}", lambda mark: _MARKS[mark[0]], sql)


async def connect(url: str, *, timeout: float = CONNECT_TIMEOUT, command_timeout: float = COMMAND_TIMEOUT) -> Any:  # noqa: ASYNC109 - asyncpg's own
    """Open one connection; foreign errors become ``StoreError``.

    Each statement has one plan that suits all its values (making one each time costs a fifth of a save), and none of
    them reads a whole table that grows, whatever the planner makes of statistics from a quieter hour.
    """
    try:
        if is_pooled(url):
            # Nothing that we set may stay on a server connection that others are given next.
            plain = url.replace(POOLED, "").rstrip("?&").replace("?&", "?")
            bounds = {"timeout": timeout, "command_timeout": command_timeout}
            return await asyncpg.connect(plain, **bounds, statement_cache_size=0)
        connection = await asyncpg.connect(
            url, timeout=timeout, command_timeout=command_timeout, server_settings={"application_name": "roundelay"}
        )
        await connection.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
    except _UNSUITABLE as exc:
        raise UnsuitableDatabase(f"PostgreSQL refused the connection ({type(exc).__name__})") from exc
    except (*_UNREACHABLE, asyncpg.PostgresError) as exc:
        raise StoreUnavailable(f"PostgreSQL cannot be reached ({type(exc).__name__})") from exc
    return connection


class PostgresDriver:
    """Up to ``size`` connections to one PostgreSQL database, opened when first needed, for one event loop."""

    def __init__(self, url: str, size: int = POOL_SIZE, command_timeout: float = COMMAND_TIMEOUT) -> None:
        self._url = url
        self._pooled = is_pooled(url)
        self._command_timeout = command_timeout
        self._idle: list[tuple[Any, float]] = []
        self._trusted_since = 0.0
        self._opening: set[asyncio.Future[Any]] = set()
        self._room = asyncio.Semaphore(size)

    @property
    def dialect(self) -> Dialect:
        """Say that this is PostgreSQL."""
        return "postgresql"

    async def fetch(self, sql: str, *args: Any, again: bool = False) -> Rows:
        """Run one statement on its own, in one round trip."""

        async def statement(connection: Any) -> Rows:
            return await fetched(connection, sql, args, pooled=self._pooled)

        return await self._tried(statement, again=again)

    async def run(self, script: Callable[[], Script[T]], *, reading: bool = False) -> T:
        """Run a script in one transaction: READ COMMITTED, or a snapshot if ``reading``."""

        async def transaction(connection: Any) -> T:
            isolation = "repeatable_read" if reading else "read_committed"
            async with connection.transaction(isolation=isolation, readonly=reading):
                return await _play(script(), connection)

        return await self._tried(transaction, again=reading)

    def distrust(self) -> None:
        """Lend no connection that was idle until now: nobody may be at its other end. Safe from any thread."""
        self._trusted_since = time.monotonic()

    async def close(self) -> None:
        """Close the idle connections, and those about to be."""
        await asyncio.gather(*self._opening, return_exceptions=True)
        while self._idle:
            connection, _ = self._idle.pop()
            await connection.close(timeout=CONNECT_TIMEOUT)

    async def _tried(self, work: Callable[[Any], Awaitable[T]], *, again: bool) -> T:
        try:
            return await self._once(work)
        except _Unknown as exc:
            if not again:
                raise StoreUnavailable("PostgreSQL broke off") from exc.__cause__
        except _Undone:
            pass
        try:
            return await self._once(work)
        except (_Undone, _Unknown) as exc:
            raise StoreUnavailable(f"PostgreSQL broke off ({type(exc.__cause__).__name__})") from exc.__cause__

    async def _once(self, work: Callable[[Any], Awaitable[T]]) -> T:
        async with self._connection() as connection:
            try:
                return await work(connection)
            except asyncpg.UniqueViolationError as exc:
                raise Conflict("such a row is there already") from exc
            except _ROLLED_BACK as exc:
                raise _Undone from exc
            except _UNSUITABLE as exc:
                raise UnsuitableDatabase(f"PostgreSQL refused a statement ({type(exc).__name__})") from exc
            except _UNREACHABLE as exc:
                self._distrust(exc)
                raise _Unknown from exc
            except asyncpg.PostgresError as exc:
                raise StoreError(f"PostgreSQL refused a statement ({type(exc).__name__})") from exc

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """Lend a connection; one that was left in the middle of a statement is not lent again."""
        async with self._room:
            connection = self._warmest() or await self._opened()
            try:
                yield connection
            except (_Unknown, asyncio.CancelledError, GeneratorExit):
                connection.terminate()
                raise
            finally:
                if not connection.is_closed():
                    self._put_back(connection)

    async def _opened(self) -> Any:
        """Connect; if the caller does not wait for it any more, the connection serves the next one."""
        opening = asyncio.ensure_future(connect(self._url, command_timeout=self._command_timeout))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._keep)
            raise

    def _keep(self, opening: asyncio.Future[Any]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._put_back(opening.result())

    def _put_back(self, connection: Any) -> None:
        self._idle.append((connection, time.monotonic()))

    def _warmest(self) -> Any:
        while self._idle and self._idle[0][1] <= self._trusted_since:
            self._idle.pop(0)[0].terminate()
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _distrust(self, exc: Exception) -> None:
        """After a broken connection, drop the idle ones: the server has restarted more often than not.

        After a silent one, drop those that have been idle all the while: the network has forgotten them more often
        than not. Those that answered meanwhile show that the server is slow.
        """
        silent_for = self._command_timeout if isinstance(exc, TimeoutError) else 0.0
        self._trusted_since = max(self._trusted_since, time.monotonic() - silent_for)


async def _play(script: Script[T], connection: Any) -> T:
    try:
        query = next(script)
        while True:
            query = script.send(await _answered(connection, query))
    except StopIteration as stop:
        return cast("T", stop.value)


async def _answered(connection: Any, query: Query) -> Rows:
    if query.many:
        await connection.executemany(render(query.sql), query.args)
        return ()
    return cast("Rows", await connection.fetch(render(query.sql), *query.args))
