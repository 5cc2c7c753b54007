"""Roundelay's client: ask a language model in the background from any web app.

::

    from roundelay import Client

    client = Client.from_env()
    job = client.submit("How much did I progress this month?", conversation_id="c1", user_id="u7")
    answer = job.wait(timeout=60)

Names are imported at their first use: ``import roundelay`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers read; at run time __getattr__ does the same
    from roundelay._core.validation import Options
    from roundelay.async_client import AsyncClient, AsyncJob
    from roundelay.client import Client, Job
    from roundelay.errors import (
        AnswerTimeout,
        IdempotencyConflict,
        InvalidSubmission,
        MessageNotFound,
        NotConfigured,
        RoundelayError,
        ServiceUnavailable,
        UnreadableRecord,
    )
    from roundelay.messages import ModelOptions, Submission
    from roundelay.updates import Answer, CallNote, ErrorNote, MessageState, Update, Usage

__all__ = [
    "Answer",
    "AnswerTimeout",
    "AsyncClient",
    "AsyncJob",
    "CallNote",
    "Client",
    "ErrorNote",
    "IdempotencyConflict",
    "InvalidSubmission",
    "Job",
    "MessageNotFound",
    "MessageState",
    "ModelOptions",
    "NotConfigured",
    "Options",
    "RoundelayError",
    "ServiceUnavailable",
    "Submission",
    "UnreadableRecord",
    "Update",
    "Usage",
]

_HOMES = {
    "async_client": ("AsyncClient", "AsyncJob"),
    "client": ("Client", "Job"),
    "_core.validation": ("Options",),
    "errors": (
        "AnswerTimeout",
        "IdempotencyConflict",
        "InvalidSubmission",
        "MessageNotFound",
        "NotConfigured",
        "RoundelayError",
        "ServiceUnavailable",
        "UnreadableRecord",
    ),
    "messages": ("ModelOptions", "Submission"),
    "updates": ("Answer", "CallNote", "ErrorNote", "MessageState", "Update", "Usage"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'roundelay' has no attribute {name!r}")
    value = getattr(import_module(f"roundelay.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
