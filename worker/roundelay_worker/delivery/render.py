"""From the loop's notes to the JSON that readers get."""

import json
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime
from typing import Any, Final

from roundelay import updates
from roundelay.messages import Submission
from roundelay.names import SOFT_STOPS
from roundelay_worker.loop.effects import Note
from roundelay_worker.loop.history import Outcome
from roundelay_worker.loop.state import Ended, Failure, Spent, State
from roundelay_worker.loop.summary import Deed, deeds
from roundelay_worker.loop.surrogates import readable
from roundelay_worker.loop.texts import FAREWELLS, retryable
from roundelay_worker.store.codec import dumps

UNFINISHED: Final = SOFT_STOPS | {"cancelled", "failed"}
"""Statuses after which "go on" continues from what was done."""
LONGEST_NAME: Final = 64
"""Characters of a tool's name; no declared one is longer, but a model may make up any."""


def timestamp(seconds: float) -> str:
    """Return seconds since the epoch as ISO 8601 in UTC."""
    return moment(seconds).isoformat(timespec="microseconds").replace("+00:00", "Z")


def update_body(note: Note, seq: int, at: float, message_id: str, answer: dict[str, Any] | None = None) -> str:
    """Return a durable update as JSON; the note of the end needs the answer."""
    place: dict[str, Any] = {"at": moment(at), "message_id": message_id, "seq": seq}
    if note.kind == "ended":
        # The answer is JSON already: read again, a deep argument of the model's could fail here, and the end with it.
        frame = updates.Ended.model_construct(**place).model_dump(mode="json", exclude_none=True)
        return dumps(frame | {"answer": answer})
    return updates.UPDATE_MODELS[note.kind].model_validate(place | told(note)).to_json()


def told(note: Note) -> dict[str, Any]:
    """Return what a note tells, in the words of its update."""
    fields = {name: value for name in _NOTED if (value := getattr(note, name)) is not None}
    if "tool" in fields:
        fields["tool"] = tool_name(fields["tool"])
    if "spent" in fields:
        fields["usage"] = usage(fields.pop("spent"))
    return fields


_NOTED: Final = tuple(field.name for field in dataclass_fields(Note) if field.name != "kind")


def tool_name(name: str) -> str:
    """Return a tool's name as readers are told it."""
    return readable(name[:LONGEST_NAME])


def moment(seconds: float) -> datetime:
    """Return seconds since the epoch as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


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


def answer(state: State, submission: Submission, accepted_at: float | None = None) -> dict[str, Any]:
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
        **_lists(deeds(state)),
        "can_continue": ended.status in UNFINISHED,
        "language": state.language,
        "models": list(state.models),
        "usage": usage(state.spent),
        "error": _error(ended.failure) if ended.failure else None,
        "metadata": submission.metadata,
        "accepted_at": None if accepted_at is None else timestamp(accepted_at),
        "started_at": None if state.started_at is None else timestamp(state.started_at),
        "finished_at": timestamp(ended.finished_at),
    }


def _lists(done: tuple[Deed, ...]) -> dict[str, list[dict[str, Any]]]:
    """Return what was done, what was not, and what nobody knows, in order."""
    names: tuple[tuple[str, Outcome], ...] = (("done", "done"), ("undone", "not_executed"), ("uncertain", "unknown"))
    return {name: [_listed(deed) for deed in done if deed.outcome == outcome] for name, outcome in names}


def _listed(deed: Deed) -> dict[str, Any]:
    arguments = {} if deed.words.private is True else json.loads(deed.call.arguments)
    return {
        "name": deed.call.name[:LONGEST_NAME],
        "title": deed.words.title,
        "effect": deed.effect,
        "ok": deed.outcome == "done" and not deed.result.is_error,
        "arguments": {name: value for name, value in arguments.items() if name not in deed.words.hidden},
        "at": None if deed.result.at is None else timestamp(deed.result.at),
        "seconds": deed.result.seconds,
    }


def _error(failure: Failure) -> dict[str, Any]:
    return {
        "code": failure.code,
        "message": failure.message,
        "retryable": retryable(failure.code),
        "retry_after": failure.delay,
        "for": "operator" if FAREWELLS.get(failure.code) in ("report", "persists") else "user",
    }
