"""From what the web app hands over to a ``Submission``: every fault is found before anything is stored."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypedDict
from uuid import uuid4

from pydantic import JsonValue, ValidationError

from roundelay.errors import InvalidSubmission
from roundelay.messages import MAX_CONTEXT_BYTES, ModelOptions, Submission, TextPart
from roundelay.names import OnBusy

_ID_SHAPE = "must be 1 to 128 letters, digits and . _ : -"
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
DEEPEST: Final = 100
"""Levels of arrays and objects: readers of JSON give up at 200 or so, and an update holds the metadata a few down."""
LONGEST_NAME: Final = 1_024
"""Bytes of the name of a model or tool."""


class Options(TypedDict, total=False):
    """What ``submit`` takes beside the text; what is left out is decided by the worker's settings.

    ``conversation_id`` and ``user_id`` are of ``[A-Za-z0-9._:-]{1,128}``; a conversation left out is a fresh one.
    ``model`` is ``provider:model``; ``system`` is what the model is told first. ``tools`` are names (left out: all;
    ``[]``: none). ``max_rounds`` caps the rounds of tools (0: none), ``max_total_tokens`` input and output together,
    ``message_timeout`` (seconds) the whole message from its first start. ``model_options`` are ``temperature``,
    ``max_output_tokens`` and ``reasoning_effort``; what a model refuses is left out once and logged. ``context``
    (JSON, at most 16 KiB) reaches tools only; ``metadata`` (JSON) comes back in the answer. ``language`` is a tag
    (``pt-BR``) for texts that are not the model's own; left out, it is guessed from the message. ``on_busy`` says what
    to do while the conversation has a message that has not ended: ``queue`` (the default) goes after it, ``reject``
    ends at once as ``failed`` with the code ``busy``, ``interrupt`` cancels all such and follows. ``idempotency_key``
    (1 to 255 characters, per user and conversation) makes a repeated submit return the first handle.
    """

    conversation_id: str | None
    user_id: str | None
    model: str | None
    system: str | None
    tools: Sequence[str] | None
    max_rounds: int | None
    message_timeout: float | None
    max_total_tokens: int | None
    model_options: ModelOptions | Mapping[str, Any] | None
    context: JsonValue
    metadata: JsonValue
    language: str | None
    on_busy: OnBusy
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class ValidatedSubmission:
    """A checked submission, with what its idempotency record needs."""

    submission: Submission
    scope: str
    """The conversation as the caller named it; '' if it is a fresh one."""
    digest: str


def validate(text: str, options: Mapping[str, Any], *, max_message_bytes: int) -> ValidatedSubmission:
    """Return the submission, or raise ``InvalidSubmission`` that names every fault and shows no value."""
    given = {name: value for name, value in options.items() if value is not None}
    faults = [*_unknown(options), *_faults_of_content(text, given, max_message_bytes)]
    known = {name: value for name, value in given.items() if name in Options.__annotations__}
    fields = {"message_id": str(uuid4()), "conversation_id": str(uuid4()), **known, "content": _content(text)}
    if isinstance(fields.get("model_options"), Mapping):
        fields["model_options"] = dict(fields["model_options"])
    try:
        submission = Submission.model_validate(fields)
    except ValidationError as error:
        faults += [fault for fault in _faults_of_fields(error) if fault.partition(":")[0] not in _named(faults)]
        raise _invalid(faults) from None  # pydantic's own text shows values
    if faults:
        raise _invalid(faults)
    return ValidatedSubmission(submission, str(given.get("conversation_id", "")), _digest(submission))


def _invalid(faults: list[str]) -> InvalidSubmission:
    return InvalidSubmission("the message was not accepted: " + "; ".join(dict.fromkeys(faults)))


def _named(faults: list[str]) -> set[str]:
    return {fault.partition(":")[0] for fault in faults}


def _content(text: Any) -> tuple[TextPart, ...]:
    return (TextPart.model_construct(text=text),) if isinstance(text, str) else ()


def _unknown(options: Mapping[str, Any]) -> list[str]:
    names = sorted(set(options) - set(Options.__annotations__))
    return [f"{name}: unknown option; known are {', '.join(Options.__annotations__)}" for name in names]


def _faults_of_content(text: Any, given: Mapping[str, Any], limit: int) -> Iterator[str]:
    if not isinstance(text, str):
        yield "text: must be a string"
    elif not text.strip():
        yield "text: the message is empty"
    texts = (("text", text, limit), ("system", given.get("system"), limit), *_names(given))
    for name, value, most in texts:
        if isinstance(value, str):
            yield from _faults_of_text(name, value, most)
    options = given.get("model_options")
    extra = options.get("extra") if isinstance(options, Mapping) else None
    for name, value, most in (
        ("context", given.get("context"), MAX_CONTEXT_BYTES),
        ("metadata", given.get("metadata"), limit),
        ("model_options.extra", extra, MAX_CONTEXT_BYTES),
    ):
        yield from _faults_of_json(name, value, most)


def _names(given: Mapping[str, Any]) -> Iterator[tuple[str, Any, int]]:
    yield "model", given.get("model"), LONGEST_NAME
    tools = given.get("tools")
    for place, tool in enumerate(tools if isinstance(tools, list | tuple) else ()):
        yield f"tools.{place}", tool, LONGEST_NAME


def _faults_of_text(name: str, text: str, limit: int) -> Iterator[str]:
    if "\0" in text:
        yield f"{name}: contains a NUL character, which databases refuse"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        yield f"{name}: is not valid Unicode (it contains half of a surrogate pair)"
    else:
        if size > limit:
            yield f"{name}: is {size} bytes, more than the limit of {limit}"


def _faults_of_json(name: str, value: Any, limit: int) -> Iterator[str]:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError):
        yield f"{name}: is not JSON (objects with string keys, arrays, strings, finite numbers, booleans, null)"
        return
    if _NUL.search(text):
        yield f"{name}: contains a NUL character, which databases refuse"
    if size > limit:
        yield f"{name}: is {size} bytes as JSON, more than the limit of {limit}"
    if _is_too_deep(value):
        yield f"{name}: is nested deeper than {DEEPEST} levels"


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for outer in level for inner in _inside(outer)]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _faults_of_fields(error: ValidationError) -> Iterator[str]:
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        place = fault["loc"]
        name = "text" if place[:1] == ("content",) else str(place[0])
        # Below context and metadata the place itself is the caller's content.
        path = ".".join(map(str, place)) if name in {"model_options", "tools"} else name
        yield f"{path}: {_rule(name, fault['type'], fault['msg'])}"


def _rule(name: str, kind: str, told: str) -> str:
    if name == "model_options" and kind == "extra_forbidden":
        return f"unknown option; known are {', '.join(ModelOptions.model_fields)}"
    if name in {"conversation_id", "user_id"} and kind == "string_pattern_mismatch":
        return _ID_SHAPE
    if name == "tools" and kind == "tuple_type":
        return "must be a list of names"
    return told.removeprefix("Value error, ")


def _digest(submission: Submission) -> str:
    # Fields at their defaults are left out, so that a newer client with more fields has the same digests.
    fields = submission.model_dump(mode="json", exclude={"v", "message_id", "conversation_id"}, exclude_defaults=True)
    return sha256(json.dumps(fields, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
