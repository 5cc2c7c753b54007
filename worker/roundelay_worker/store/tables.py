"""The tables, declared with SQLModel: what the migrations must come to, on both databases.

The tests hold migrations and declarations together. Statements are written by hand all the same: a round's save
is one statement with data-modifying CTEs, which no query builder writes shorter, and building one costs more
CPU than the database's answer.

Names begin with ``roundelay_``, since the tables may share a database with a web app's own. JSON is TEXT: what
was stored comes back byte for byte. Times are seconds since the epoch by the database's clock. There are no
foreign keys: their checks would cost every round, and rows are only ever deleted message by message.

A message's row changes several times a round. Columns that do are in no index and no index's condition, so
that PostgreSQL can rewrite the row in its page without touching an index (a HOT update); ``STORAGE`` leaves
room for that.
"""

from typing import Any, Final

from sqlalchemy import BigInteger, Double, Index, MetaData, Text, false, text
from sqlmodel import Field, SQLModel

STORAGE: Final = {
    "roundelay_messages": "fillfactor=60, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000",
    "roundelay_conversations": "fillfactor=80, autovacuum_vacuum_scale_factor=0.02",
    "roundelay_calls": "fillfactor=80",
    "roundelay_processes": "fillfactor=50",
}
"""PostgreSQL's storage parameters; set by the migration, which alone knows that it is PostgreSQL."""


class _Table(SQLModel):
    """Base of all tables, with metadata of their own: a web app's SQLModel classes are none of ours."""

    metadata = MetaData()


def _text(**options: Any) -> Any:
    return Field(sa_type=Text, **options)


def _time(**options: Any) -> Any:
    return Field(sa_type=Double, **options)


def _number(**options: Any) -> Any:
    return Field(sa_type=BigInteger, **options)


def _count() -> Any:
    return _number(default=0, sa_column_kwargs={"server_default": text("0")})


def _flag() -> Any:
    return Field(default=False, sa_column_kwargs={"server_default": false()})


def _partial(name: str, columns: tuple[str, ...], where: str) -> Index:
    return Index(name, *columns, postgresql_where=text(where), sqlite_where=text(where))


class Message(_Table, table=True):
    """Where a message stands and who is to act.

    Running: ``owner``. Ready: no owner, no ``due_at``, not parked. Postponed: ``due_at``. Parked: an earlier
    message of the conversation goes first. Ended: ``ended_at``.
    """

    __tablename__ = "roundelay_messages"
    __table_args__ = (
        Index("roundelay_messages_order", "user_id", "conversation_id", "position", unique=True),
        _partial("roundelay_messages_live", ("begun", "submitted_at"), "ended_at IS NULL"),
        _partial("roundelay_messages_unfinished", ("user_id", "conversation_id", "position"), "ended_at IS NULL"),
        _partial(
            "roundelay_messages_to_end",
            ("accepted_at",),
            "ended_at IS NULL AND (verdict IS NOT NULL OR cancel_requested_at IS NOT NULL)",
        ),
        _partial("roundelay_messages_expiring", ("queue_deadline",), "queue_deadline IS NOT NULL AND ended_at IS NULL"),
        _partial("roundelay_messages_ended", ("ended_at",), "ended_at IS NOT NULL"),
        _partial("roundelay_messages_untold", ("accepted_at",), "NOT told"),
    )

    id: str = _text(primary_key=True)
    user_id: str = _text()
    conversation_id: str = _text()
    position: int = _number()
    """Order of acceptance within the conversation, from 1 without a hole."""
    submission: str = _text()
    resolved: str | None = _text()
    """What the start resolved (model, system prompt, tools), JSON; it holds to the end."""
    idempotency: str | None = _text()
    submitted_at: float = _time()
    accepted_at: float = _time()
    queue_deadline: float | None = _time()
    started_at: float | None = _time()
    deadline: float = _time()
    status: str | None = _text()
    ended_at: float | None = _time()
    answer: str | None = _text()
    head: str = _text()
    state_version: int = _number()
    version: int = _count()
    saved_by: str | None = _text()
    round: int = _number()
    seq: int = _number()
    published: int = _count()
    told: bool = _flag()
    """At rest, nothing is owed to readers: the first update of a waiting message, all of an ended one, is published."""
    owner: str | None = _text()
    attempt: int = _count()
    claimed_at: float | None = _time()
    progressed_at: float = _time()
    losses: int = _count()
    begun: bool = _flag()
    """It was claimed at least once."""
    queue: str = _text()
    queued_at: float | None = _time()
    """When its last task went to the queue of new messages; evidence of what that queue still holds."""
    dispatch: int = _number()
    dispatched_at: float | None = _time()
    redispatched: int = _count()
    due_at: float | None = _time()
    after_message: str | None = _text()
    """The message that it waited for when it was accepted; what its first update says."""
    parked: bool = _flag()
    verdict: str | None = _text()
    cancel_requested_at: float | None = _time()


class TurnOfMessage(_Table, table=True):
    """One reply of the model; ``native`` is deleted when the message ends."""

    __tablename__ = "roundelay_turns"

    message_id: str = _text(primary_key=True)
    round: int = _number(primary_key=True)
    body: str = _text()
    origin: str | None = _text()
    native: str | None = _text()
    note: str = _text()
    created_at: float = _time()


class CallOfTurn(_Table, table=True):
    """One call of a turn; ``effect`` is NULL where a turn was saved together with its results."""

    __tablename__ = "roundelay_calls"
    __table_args__ = (_partial("roundelay_calls_loose", ("message_id",), "loose"),)

    message_id: str = _text(primary_key=True)
    round: int = _number(primary_key=True)
    position: int = _number(primary_key=True)
    effect: str | None = _text()
    idempotent: bool | None = Field(default=None)
    polling: bool | None = Field(default=None)
    status: str = _text()
    result: str | None = _text()
    started_at: float | None = _time()
    finished_at: float | None = _time()
    executor: str | None = _text()
    """The process that began it last."""
    loose: bool = _flag()
    """Its result was given up, and it may still be at work in ``executor``."""
    late_result: str | None = _text()
    """What it brought after its result was given up; for the record only."""


class DurableUpdate(_Table, table=True):
    """The outbox: the updates of one save, numbered from ``seq``; update 1 follows from the message's own row."""

    __tablename__ = "roundelay_updates"

    message_id: str = _text(primary_key=True)
    seq: int = _number(primary_key=True)
    body: str = _text()


class Conversation(_Table, table=True):
    """The lock of a conversation: how many messages it accepted, and the one whose turn it is."""

    __tablename__ = "roundelay_conversations"

    user_id: str = _text(primary_key=True)
    conversation_id: str = _text(primary_key=True)
    accepted: int = _number()
    running: str | None = _text()


class WorkerProcess(_Table, table=True):
    """A worker process and its lease.

    ``lost_at``: its lease ran out and its messages were given to others. ``gone_at``: it is known to have
    ended. ``cleared_at``: nothing in the store names it as owner any more.
    """

    __tablename__ = "roundelay_processes"

    id: str = _text(primary_key=True)
    host: str = _text()
    pid: int = _number()
    birth: str = _text()
    """What tells the process from a later one of the same number."""
    started_at: float = _time()
    lease_until: float = _time()
    lost_at: float | None = _time()
    gone_at: float | None = _time()
    cleared_at: float | None = _time()
    offers: str | None = _text()
    """The tools that it has and the providers that it can speak to, JSON; NULL from workers that did not tell."""


class Fact(_Table, table=True):
    """What the database knows of itself: its id (``database``), its last sweep (``swept``)."""

    __tablename__ = "roundelay_meta"

    key: str = _text(primary_key=True)
    value: str = _text()
    at: float = _time()


class OutboxRow(_Table, table=True):
    """A submission that a web app wrote in a transaction of its own."""

    __tablename__ = "roundelay_outbox"

    message_id: str = _text(primary_key=True)
    submission: str = _text()
    created_at: float = _time()


METADATA: Final = _Table.metadata
