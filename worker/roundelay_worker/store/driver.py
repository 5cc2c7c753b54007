"""The seam between the store and its two databases.

What the store asks is either one statement (``fetch``) or a script (``run``): a generator that yields
``Query`` values and is sent their rows, so that the same steps run awaited on PostgreSQL and, without
leaving the database's thread, on SQLite. A script may be started again from its beginning; it must have no
effect but its queries.

Statements are written once, in the words that both databases share, with numbered parameters (``$1``) and
these marks:

===============  ===============================================  ================================
mark             PostgreSQL                                       SQLite
===============  ===============================================  ================================
``{now}``        seconds since the epoch, the server's            the same, from SQLite's clock
``{began}``      as the statement began: an index may be used     the same
``{lock}``       ``FOR UPDATE``                                   nothing: a writer is alone
``{skip}``       ``FOR UPDATE SKIP LOCKED``                       nothing
``{relaxed}``    true; the commit does not wait for the disk      true
``{any $1}``     ``= ANY ($1)``, of a list of strings             ``IN (SELECT … json_each($1))``
===============  ===============================================  ================================
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

Dialect = Literal["postgresql", "sqlite"]


def filled(sql: str, **parts: str) -> str:
    """Return ``sql`` with each ``{name}`` of ``parts`` replaced; other marks stay."""
    for name, part in parts.items():
        sql = sql.replace(f"{{{name}}}", part)
    return sql


class Row(Protocol):
    """One row, read by position or by name."""

    def __getitem__(self, key: Any, /) -> Any: ...


Rows = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Query:
    """One statement of a script; with ``many``, ``args`` holds one tuple for each execution and no rows come back."""

    sql: str
    args: tuple[Any, ...] = ()
    many: bool = False


T = TypeVar("T")
Script = Generator[Query, Rows, T]


class Driver(Protocol):
    """A database: statements in, rows out, foreign errors translated to ``StoreError``."""

    @property
    def dialect(self) -> Dialect:
        """Which of the two it is, for the few statements that are written twice."""

    async def fetch(self, sql: str, *args: Any, again: bool = False) -> Rows:
        """Run one statement on its own; ``again`` allows a second try although the first may have happened."""

    async def run(self, script: Callable[[], Script[T]], *, reading: bool = False) -> T:
        """Run a script as one transaction; ``reading``: one snapshot, no writes."""

    async def close(self) -> None:
        """Give the connections back."""
