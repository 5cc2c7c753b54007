"""Enqueue inside the web app's own transaction (``pip install roundelay[sql]``).

The message is a row of the web app's database until a worker with the same ``ROUNDELAY_DATABASE_URL`` takes it, so
it exists if and only if the transaction is committed::

    with Session(engine) as session, session.begin():
        session.add(order)
        message_id = enqueue(session, "Write to the customer", user_id="u7")
    job = client.nudge(message_id)   # after the commit; without it a worker finds the row by itself in a moment

From async code: ``message_id = await session.run_sync(enqueue, "Write to the customer", user_id="u7")``.
An ``idempotency_key`` is not compared here: what happens once is what the transaction makes happen once.
"""

import os
import time
from typing import Any, Unpack

from sqlalchemy import Column, Connection, Double, MetaData, Table, Text, func
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.sql.expression import extract

from roundelay._core.validation import Options, validate
from roundelay.names import OUTBOX_TABLE
from roundelay.settings import read_max_message_bytes


def outbox_table(metadata: MetaData) -> Table:
    """Return the outbox as part of ``metadata``, so that the web app's own migrations create it."""
    known = metadata.tables.get(OUTBOX_TABLE)
    if known is not None:
        return known
    return Table(
        OUTBOX_TABLE,
        metadata,
        Column("message_id", Text, primary_key=True),
        Column("submission", Text, nullable=False),
        Column("created_at", Double, nullable=False),
    )


_OUTBOX = outbox_table(MetaData())


def enqueue(connection: Connection | Session | scoped_session[Any], text: str, **options: Unpack[Options]) -> str:
    """Write the message to the outbox within the caller's transaction and return its id.

    Raises:
        InvalidSubmission: something cannot be accepted; all faults are named.
        NotConfigured: ``ROUNDELAY_MAX_MESSAGE_BYTES`` cannot be read.
    """
    submission = validate(text, options, max_message_bytes=read_max_message_bytes(os.environ)).submission
    row = {"message_id": submission.message_id, "submission": submission.model_dump_json()}
    connection.execute(_OUTBOX.insert().values(**row, created_at=_now(connection)))
    return submission.message_id


def _now(connection: Connection | Session | scoped_session[Any]) -> Any:
    # Rows are ordered by this time: where several hosts write, the database's clock is the one they share.
    bind = connection if isinstance(connection, Connection) else connection.get_bind()
    if bind.dialect.name == "postgresql":
        return extract("epoch", func.clock_timestamp())
    return time.time()
