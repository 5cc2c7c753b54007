"""The error tree of the client.

::

    RoundelayError
    ├── NotConfigured                    no address of Redis is known, or a setting cannot be read
    ├── InvalidSubmission (ValueError)   what was handed to submit() cannot be accepted; nothing was stored
    ├── IdempotencyConflict              the same idempotency key with another text or other options
    ├── ServiceUnavailable               Redis did not answer, or refuses; nothing was accepted
    │   └── Unreachable                  … for now: it may be back in a moment
    ├── UnreadableRecord                 Redis holds something of this message that this version cannot read
    ├── MessageNotFound (LookupError)    no such message, or its records have expired
    └── AnswerTimeout (TimeoutError)     the message goes on running; carries its state
"""

from roundelay.updates import MessageState


class RoundelayError(Exception):
    """Base of all errors that this package raises on purpose."""


class NotConfigured(RoundelayError):
    """No address of Redis is known, or a setting cannot be read; the text says which."""


class InvalidSubmission(RoundelayError, ValueError):
    """The message cannot be accepted as it is; the text says what to mend. Nothing was stored."""


class IdempotencyConflict(RoundelayError):
    """The idempotency key was used before with another text or other options."""


class ServiceUnavailable(RoundelayError):
    """Redis did not answer in time; the message was not accepted.

    Where the network was lost in mid-call nobody can know whether the message was stored: submit it
    again with the same ``idempotency_key``.
    """


class Unreachable(ServiceUnavailable):
    """Redis is away for now; what waits or follows tries again by itself."""


class UnreadableRecord(RoundelayError):
    """What Redis holds of a message cannot be read: a newer worker wrote it, or somebody else did."""


class MessageNotFound(RoundelayError, LookupError):
    """No message of this id is known under this prefix, or its records have expired."""


class AnswerTimeout(RoundelayError, TimeoutError):
    """The answer did not come in time; the message goes on. ``state`` is what was known last."""

    def __init__(self, message: str, state: MessageState) -> None:
        super().__init__(message)
        self.state = state
