"""From the loop's notes to the JSON that readers get."""

import json
from datetime import UTC, datetime
from typing import Any, Final

from roundelay.messages import Submission
from roundelay_worker.loop.effects import Note
from roundelay_worker.loop.history import Call
from roundelay_worker.loop.state import Ended, Spent, State
from roundelay_worker.loop.summary import calls_with
from roundelay_worker.store.codec import dumps

LONGEST_NAME: Final = 64
"""Characters of a tool's name; no declared one is longer, but a model may make up any."""


def timestamp(seconds: float) -> str:
    """Return seconds since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def update_body(note: Note, seq: int, at: float, message_id: str, answer: dict[str, Any] | None = None) -> str:
    """Return a durable update as JSON."""
    body: dict[str, Any] = {"v": 1, "kind": note.kind, "at": timestamp(at), "message_id": message_id, "seq": seq}
    for name in ("round", "attempt", "tool", "call", "ok", "seconds", "code", "delay"):
        value = getattr(note, name)
        if value is not None:
            body[name] = value[:LONGEST_NAME] if name == "tool" else value
    if note.spent is not None:
        body["usage"] = usage(note.spent)
    if answer is not None and note.kind == "ended":
        body["answer"] = answer
    return dumps(body)


def provisional_body(kind: str, at: float, message_id: str, told: dict[str, Any]) -> bytes:
    """Return an update that has no number of its own; what is None in ``told`` is left out."""
    body = {"v": 1, "kind": kind, "at": timestamp(at), "message_id": message_id}
    body |= {name: value for name, value in told.items() if value is not None}
    return dumps(body).encode()


def usage(spent: Spent) -> dict[str, int]:
    """Return what was spent, in the answer's words."""
    return {
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cached_tokens": spent.cached_tokens,
        "reasoning_tokens": spent.reasoning_tokens,
        "model_calls": spent.model_calls,
        "tool_calls": spent.tool_calls,
        "calls_without_usage": spent.calls_without_usage,
    }


def answer(state: State, submission: Submission) -> dict[str, Any]:
    """Return the one final record of an ended message."""
    ended = state.stage
    if not isinstance(ended, Ended):
        raise TypeError("only an ended message has an answer")
    return {
        "v": 1,
        "message_id": submission.message_id,
        "conversation_id": submission.conversation_id,
        "user_id": submission.user_id,
        "status": ended.status,
        "text": ended.text,
        "rounds": state.rounds,
        "undone": [_named(call) for call in calls_with("not_executed", state.sequence)],
        "uncertain": [_named(call) for call in calls_with("unknown", state.sequence)],
        "usage": usage(state.spent),
        "error": {"code": ended.failure.code, "message": ended.failure.message} if ended.failure else None,
        "metadata": submission.metadata,
        "started_at": None if state.started_at is None else timestamp(state.started_at),
        "finished_at": timestamp(ended.finished_at),
    }


def _named(call: Call) -> dict[str, Any]:
    return {"name": call.name[:LONGEST_NAME], "arguments": json.loads(call.arguments)}
