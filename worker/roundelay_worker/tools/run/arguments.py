"""Reads the arguments that a model wrote, and tells it places and reasons, never the values."""

import json
from dataclasses import fields
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from roundelay_worker.loop.history import Call
from roundelay_worker.tools.context import ToolContext
from roundelay_worker.tools.declare.declared import Tool
from roundelay_worker.tools.run.results import Outcome, failure, tool_failure

_REPEATS_INPUT = {"value_error", "assertion_error", "union_tag_invalid", "uuid_parsing", "get_attribute_error"}
_TELLING = frozenset(get_args(ErrorType)) - _REPEATS_INPUT
"""Kinds of error whose text is pydantic's own and holds nothing of the input."""

_EXPECTED = {
    "uuid_parsing": "Input should be a valid UUID",
    "union_tag_invalid": "Input should carry one of the expected tags",
}
_WANTS_STRUCTURE = frozenset(
    {
        "list_type",
        "tuple_type",
        "set_type",
        "frozen_set_type",
        "dict_type",
        "model_type",
        "dataclass_type",
        "model_attributes_type",
        "mapping_type",
        "iterable_type",
    }
)
"""Kinds of error of a value that should be an array or an object."""

_UNPACKED_AT_MOST = 3
"""Strings of JSON inside strings of JSON."""

_SHOWN_FAULTS = 10
_SHOWN_PLACE = 64


def read_arguments(tool: Tool, call: Call) -> dict[str, Any] | Outcome:
    """Return the validated arguments of ``call`` by name, or its error result; never raises."""
    if call.fault:
        return _refusal(call.fault)
    text = call.arguments if call.arguments.strip() else "{}"
    try:
        arguments = _validated(tool, text)
    except ValidationError as exc:
        return _refusal(_explain(exc))
    except Exception as exc:  # noqa: BLE001 - validators are the tool's own code
        return tool_failure(tool, exc)
    return {name.name: getattr(arguments, name.name) for name in fields(arguments)}


def _validated(tool: Tool, text: str) -> Any:
    """Validate; arrays and objects that the model wrote as strings of JSON are taken for what the schema wants."""
    validator = tool.signature.arguments
    try:
        return validator.validate_json(text)
    except ValidationError as exc:
        refused = exc
    for _ in range(_UNPACKED_AT_MOST):
        text = _unpacked(text, refused)
        try:
            return validator.validate_json(text)
        except ValidationError as exc:
            refused = exc
    raise refused


def _unpacked(text: str, refused: ValidationError) -> str:
    """Return the arguments with such strings replaced; raise ``refused`` if there are none."""
    places = [fault["loc"] for fault in refused.errors(include_url=False) if fault["type"] in _WANTS_STRUCTURE]
    given = json.loads(text) if places else None
    found = [_unpack(given, place) for place in places]
    if not any(found):
        raise refused
    return json.dumps(given)


def _unpack(given: Any, place: tuple[int | str, ...]) -> bool:
    """Replace the string at ``place`` by the array or object that it is the JSON of; say whether it was one."""
    for step in place:  # a place ends with the names of a union's members, which are no steps
        inner = _inner(given, step)
        if isinstance(inner, str):
            value = _structure(inner)
            if value is not None:
                given[step] = value
            return value is not None
        given = inner
    return False


def _inner(given: Any, step: int | str) -> Any:
    if isinstance(given, dict):
        return given.get(step)
    return given[step] if isinstance(given, list) and isinstance(step, int) and step < len(given) else None


def _structure(text: str) -> list[Any] | dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list | dict) else None


def with_context(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Return what to call the tool's function with."""
    name = tool.signature.context_parameter
    return {**arguments, name: context} if name else arguments


def _refusal(reason: str) -> Outcome:
    return failure("bad_arguments", reason, "Mend the arguments and call the tool again.")


def _explain(exc: ValidationError) -> str:
    faults = exc.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{_place(fault)}: {_reason(fault)}" for fault in faults[:_SHOWN_FAULTS]]
    more = len(faults) - _SHOWN_FAULTS
    return "; ".join([*told, f"and {more} more"] if more > 0 else told)


def _place(fault: ErrorDetails) -> str:
    return ".".join(str(step)[:_SHOWN_PLACE] for step in fault["loc"]) or "arguments"


def _reason(fault: ErrorDetails) -> str:
    if fault["type"] in _TELLING:
        return fault["msg"]
    return _EXPECTED.get(fault["type"], "The tool's own check refuses it")
