"""Every string that crosses the wire between web app, worker and Redis, spelt once.

Redis layout (all names begin with the prefix, default ``roundelay``; an id's alphabet has no ``/``):

=============================================  =======  ==========================================================
name                                           type     meaning
=============================================  =======  ==========================================================
``{prefix}:answer:{message}``                  string   the final answer, JSON; also the channel it is published on
``{prefix}:updates:{message}``                 stream   numbered updates, field ``update``, JSON
``{prefix}:state:{message}``                   hash     what ``wait`` and ``state()`` read
``{prefix}:message:{message}``                 string   inbox record (a ``Submission``, JSON) until the database has it
``{prefix}:inbox``                             zset     ids of messages not yet in the database, scored by time
``{prefix}:waiting:{user}/{conversation}``     list     the same ids, in the conversation's order
``{prefix}:idempotency:{user}/{conv}/{hash}``  string   ``{message} {digest}`` of the key's first use
``{prefix}:cancels``                           zset     ids whose cancellation was asked for, scored by time
``{prefix}:control``                           channel  hints to every worker process: ``cancel {id}``, ``restore {id}``
``{prefix}:database``                          string   id of the database that this prefix belongs to
``{prefix}:filled``                            string   ``filled`` while Redis holds what the database knows: missing
                                                        where it was emptied and no worker has filled it again
``{prefix}:alive:{worker}``                    string   expires with the lease of the worker named in a state hash;
                                                        says whether it consumes
``{prefix}:wake:{reader}``                     both     stream and channel by which a client wakes its own reader
``{prefix}.messages``, ``{prefix}.rounds``     queues   Celery: new messages, continued rounds
=============================================  =======  ==========================================================

Inbox records, the inbox, and the waiting lists have no expiry: they are what a message is made of
until a worker copies it to the database, and they are deleted in that moment.
"""

from hashlib import sha256
from typing import Final, Literal

DEFAULT_PREFIX: Final = "roundelay"
ID_PATTERN: Final = r"[A-Za-z0-9._:-]{1,128}"

Status = Literal["answered", "round_limit", "token_limit", "timed_out", "no_progress", "refused", "cancelled", "failed"]
"""How a message ended; exactly one per message."""

SoftStop = Literal["round_limit", "token_limit", "timed_out", "no_progress"]
"""The statuses whose answer is written by a closing turn."""

SOFT_STOPS: Final[frozenset[str]] = frozenset({"round_limit", "token_limit", "timed_out", "no_progress"})

UpdateKind = Literal[
    "accepted",
    "started",
    "turn_started",
    "text_delta",
    "text_reset",
    "tool_started",
    "tool_finished",
    "tool_progress",
    "retrying",
    "turn_ended",
    "gap",
    "ended",
]
"""What an update says; each has a model in ``updates``, and readers ignore kinds they do not know."""

OnBusy = Literal["queue", "reject", "interrupt"]
"""What a message does when its conversation is busy."""

PROVIDERS: Final = ("openai", "chat", "anthropic", "google", "demo")
"""The part of a model's name before the first colon."""

ANSWER_TASK: Final = "roundelay.answer"
"""Celery task of a new message: args ``[message_id]``, task id = message id, root of its chain."""

ROUND_TASK: Final = "roundelay.round"
"""Celery task of a continued round: args ``[message_id, round, dispatch]``."""

OUTBOX_TABLE: Final = "roundelay_outbox"
"""Table of messages enqueued in a web app's own transaction: message_id, submission (JSON), created_at (seconds)."""


def messages_queue(prefix: str) -> str:
    """Return the Celery queue of new messages."""
    return f"{prefix}.messages"


def rounds_queue(prefix: str) -> str:
    """Return the Celery queue of continued rounds, served before new messages."""
    return f"{prefix}.rounds"


def answer_key(prefix: str, message_id: str) -> str:
    """Return the name of the kept answer and of the channel it is published on."""
    return f"{prefix}:answer:{message_id}"


def updates_key(prefix: str, message_id: str) -> str:
    """Return the name of the stream of updates."""
    return f"{prefix}:updates:{message_id}"


def state_key(prefix: str, message_id: str) -> str:
    """Return the name of the state hash."""
    return f"{prefix}:state:{message_id}"


def record_key(prefix: str, message_id: str) -> str:
    """Return the name of the inbox record."""
    return f"{prefix}:message:{message_id}"


def inbox_key(prefix: str) -> str:
    """Return the name of the set of messages that the database does not have yet."""
    return f"{prefix}:inbox"


def waiting_key(prefix: str, user_id: str, conversation_id: str) -> str:
    """Return the name of the list of a conversation's messages that the database does not have yet."""
    return f"{prefix}:waiting:{user_id}/{conversation_id}"


def idempotency_key(prefix: str, user_id: str, conversation_id: str, key: str) -> str:
    """Return the name of the record of a client's idempotency key (hashed: a key may hold anything)."""
    return f"{prefix}:idempotency:{user_id}/{conversation_id}/{sha256(key.encode()).hexdigest()}"


def cancels_key(prefix: str) -> str:
    """Return the name of the set of ids whose cancellation was asked for."""
    return f"{prefix}:cancels"


def control_channel(prefix: str) -> str:
    """Return the channel that every worker process listens to."""
    return f"{prefix}:control"


def database_key(prefix: str) -> str:
    """Return the name of the key that says which database this prefix belongs to."""
    return f"{prefix}:database"


FILLED: Final = "filled"
"""What the key of this name holds once all that the database knows is in Redis."""


def filled_key(prefix: str) -> str:
    """Return the name of the key that says whether Redis holds what the database knows."""
    return f"{prefix}:filled"


def alive_key(prefix: str, worker: str) -> str:
    """Return the name of the key that a worker process keeps as long as it has its lease."""
    return f"{prefix}:alive:{worker}"


def wake_key(prefix: str, reader: str) -> str:
    """Return the name of the short stream, and of the channel, by which a client process wakes its own reader."""
    return f"{prefix}:wake:{reader}"
