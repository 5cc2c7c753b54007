"""What the services refuse in a tool's schema; each function returns the places, never the values."""

from collections.abc import Iterator
from typing import Any

from roundelay_worker.testing.fake_llm.refusal import words

NO_UNION = "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
UNIONS = ("oneOf", "allOf", "anyOf")
_OPENAPI = words(
    "type format title description nullable enum items maxItems minItems properties required minProperties "
    "maxProperties minLength maxLength pattern example anyOf propertyOrdering default minimum maximum"
)
_STRICT_UNKNOWN = frozenset({"allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else"})


def top_level_unions(schema: dict[str, Any]) -> list[str]:
    """Return the unions that stand at the top of a schema."""
    return [word for word in UNIONS if word in schema]


def strict_faults(schema: Any, context: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield what is wrong for strict mode: every object closed, every property required, no union at the root."""
    if not isinstance(schema, dict):
        return
    where = f"In context={context!r}, "
    if not context and "anyOf" in schema:
        yield f"{where}{NO_UNION}"
    yield from (f"{where}'{word}' is not permitted." for word in sorted(_STRICT_UNKNOWN & schema.keys()))
    if schema.get("type") == "object" or "properties" in schema:
        yield from _open_object(schema, where)
    for place, child in _children(schema):
        yield from strict_faults(child, (*context, *place))


def _open_object(schema: dict[str, Any], where: str) -> Iterator[str]:
    if schema.get("additionalProperties") is not False:
        yield f"{where}'additionalProperties' is required to be supplied and to be false."
    required = schema.get("required") or []
    for name in schema.get("properties") or {}:
        if name not in required:
            yield (
                f"{where}'required' is required to be supplied and to be an array including every key in"
                f" properties. Missing '{name}'."
            )


def openapi_faults(schema: Any, place: str) -> Iterator[str]:
    """Yield what Gemini's ``parameters`` cannot hold: unknown keys, and nested objects without properties."""
    if not isinstance(schema, dict):
        return
    for key in schema:
        if key not in _OPENAPI:
            yield f"Unknown name \"{key}\" at '{place}': Cannot find field."
    for name, child in _children(schema):
        below = ".".join((place, *name))
        if isinstance(child, dict) and _is_empty_object(child):
            yield f"{below}.properties: should be non-empty for OBJECT type"
        yield from openapi_faults(child, below)


def _is_empty_object(schema: dict[str, Any]) -> bool:
    return str(schema.get("type", "")).upper() == "OBJECT" and not schema.get("properties")


def _children(schema: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for holder in ("properties", "$defs", "definitions"):
        held = schema.get(holder)
        if isinstance(held, dict):
            yield from (((holder, name), child) for name, child in held.items())
    if isinstance(schema.get("items"), dict):
        yield ("items",), schema["items"]
    for union in UNIONS:
        if isinstance(schema.get(union), list):
            yield from (((union, str(place)), child) for place, child in enumerate(schema[union]))
