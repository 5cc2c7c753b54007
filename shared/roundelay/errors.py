"""The error tree of the client.

::

    RoundelayError
    ├── InvalidSubmission (ValueError)   what was handed to submit() cannot be accepted; nothing was stored
    ├── IdempotencyConflict              the same idempotency key with another text or other options
    ├── ServiceUnavailable               Redis or the broker did not answer; nothing was accepted
    ├── MessageNotFound (LookupError)    no such message, or its records have expired
    └── AnswerTimeout (TimeoutError)     the message goes on running; carries its state
"""

from roundelay.updates import MessageState


class RoundelayError(Exception):
    """Base of all errors that this package raises on purpose."""


class InvalidSubmission(RoundelayError, ValueError):
    """The message cannot be accepted as it is; the text says what to mend. Nothing was stored."""


class IdempotencyConflict(RoundelayError):
    """The idempotency key was used before with another text or other options."""


class ServiceUnavailable(RoundelayError):
    """Redis did not answer in time; the message was not accepted."""


class MessageNotFound(RoundelayError, LookupError):
    """No message of this id is known under this prefix, or its records have expired."""


class AnswerTimeout(RoundelayError, TimeoutError):
    """The answer did not come in time; the message goes on. ``state`` is what was known last."""

    def __init__(self, message: str, state: MessageState) -> None:
        super().__init__(message)
        self.state = state
