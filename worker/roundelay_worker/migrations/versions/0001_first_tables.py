"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_STORAGE = {
    "roundelay_messages": "fillfactor=60, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000",
    "roundelay_conversations": "fillfactor=80, autovacuum_vacuum_scale_factor=0.02",
    "roundelay_calls": "fillfactor=80",
    "roundelay_processes": "fillfactor=50",
}


def upgrade() -> None:
    """Make everything."""
    _messages()
    _turns()
    _calls()
    _updates()
    _conversations()
    _processes()
    _meta()
    _outbox()
    if op.get_context().dialect.name == "postgresql":
        for table, parameters in _STORAGE.items():
            op.execute(f"ALTER TABLE {table} SET ({parameters})")


def _partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))


def _messages() -> None:
    op.create_table(
        "roundelay_messages",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("submission", sa.Text(), nullable=False),
        sa.Column("resolved", sa.Text()),
        sa.Column("idempotency", sa.Text()),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("accepted_at", sa.Double(), nullable=False),
        sa.Column("queue_deadline", sa.Double()),
        sa.Column("started_at", sa.Double()),
        sa.Column("deadline", sa.Double(), nullable=False),
        sa.Column("status", sa.Text()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("answer", sa.Text()),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("state_version", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("saved_by", sa.Text()),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("published", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("told", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("owner", sa.Text()),
        sa.Column("attempt", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("claimed_at", sa.Double()),
        sa.Column("progressed_at", sa.Double(), nullable=False),
        sa.Column("losses", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("begun", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("queued_at", sa.Double()),
        sa.Column("dispatch", sa.BigInteger(), nullable=False),
        sa.Column("dispatched_at", sa.Double()),
        sa.Column("redispatched", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("due_at", sa.Double()),
        sa.Column("after_message", sa.Text()),
        sa.Column("parked", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("verdict", sa.Text()),
        sa.Column("cancel_requested_at", sa.Double()),
        sa.PrimaryKeyConstraint("id"),
    )
    _partial_index("roundelay_messages_ended", "roundelay_messages", ["ended_at"], "ended_at IS NOT NULL")
    _partial_index(
        "roundelay_messages_expiring",
        "roundelay_messages",
        ["queue_deadline"],
        "queue_deadline IS NOT NULL AND ended_at IS NULL",
    )
    _partial_index("roundelay_messages_live", "roundelay_messages", ["begun", "submitted_at"], "ended_at IS NULL")
    op.create_index(
        "roundelay_messages_order", "roundelay_messages", ["user_id", "conversation_id", "position"], unique=True
    )
    _partial_index(
        "roundelay_messages_to_end",
        "roundelay_messages",
        ["accepted_at"],
        "ended_at IS NULL AND (verdict IS NOT NULL OR cancel_requested_at IS NOT NULL)",
    )
    _partial_index(
        "roundelay_messages_unfinished",
        "roundelay_messages",
        ["user_id", "conversation_id", "position"],
        "ended_at IS NULL",
    )
    _partial_index("roundelay_messages_untold", "roundelay_messages", ["accepted_at"], "NOT told")


def _turns() -> None:
    op.create_table(
        "roundelay_turns",
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text()),
        sa.Column("native", sa.Text()),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("message_id", "round"),
    )


def _calls() -> None:
    op.create_table(
        "roundelay_calls",
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("effect", sa.Text()),
        sa.Column("idempotent", sa.Boolean()),
        sa.Column("polling", sa.Boolean()),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("result", sa.Text()),
        sa.Column("started_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.Column("executor", sa.Text()),
        sa.Column("loose", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("late_result", sa.Text()),
        sa.PrimaryKeyConstraint("message_id", "round", "position"),
    )
    _partial_index("roundelay_calls_loose", "roundelay_calls", ["message_id"], "loose")


def _updates() -> None:
    op.create_table(
        "roundelay_updates",
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("message_id", "seq"),
    )


def _conversations() -> None:
    op.create_table(
        "roundelay_conversations",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("accepted", sa.BigInteger(), nullable=False),
        sa.Column("running", sa.Text()),
        sa.PrimaryKeyConstraint("user_id", "conversation_id"),
    )


def _processes() -> None:
    op.create_table(
        "roundelay_processes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("birth", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=False),
        sa.Column("lost_at", sa.Double()),
        sa.Column("gone_at", sa.Double()),
        sa.Column("cleared_at", sa.Double()),
        sa.PrimaryKeyConstraint("id"),
    )


def _meta() -> None:
    op.create_table(
        "roundelay_meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )


def _outbox() -> None:
    op.create_table(
        "roundelay_outbox",
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("submission", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("message_id"),
    )
