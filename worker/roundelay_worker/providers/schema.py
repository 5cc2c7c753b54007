"""Makes the JSON Schema of a tool acceptable to every API, or says at start why that cannot be.

The result may allow more than the tool does, never less: the tool itself validates what comes. What all four
APIs take: an object at the top without ``anyOf`` and its kin beside it, ``items`` on every array, local
references written out (recursive ones stay, with their ``$defs``), and property names of plain letters.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from typing import Any, Final

import orjson

from roundelay_worker.providers.base import ToolSpec

Schema = dict[str, Any]

_TOOL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}\Z")
_PROPERTY_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}\Z")
_COMBINATIONS: Final = ("allOf", "anyOf", "oneOf")
_REFUSED_AT_TOP: Final = frozenset({*_COMBINATIONS, "not", "enum", "const", "if", "then", "else", "$schema", "$id"})
_DEFINITIONS: Final = ("$defs", "definitions")
_LISTS_OF_SCHEMAS: Final = frozenset({*_COMBINATIONS, "prefixItems"})
_MAPS_OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "dependentSchemas", *_DEFINITIONS})
_SCHEMAS: Final = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"})
_DEEPEST: Final = 64
_LARGEST: Final = 5000


class SchemaRefused(Exception):
    """No provider would take this tool as it is declared; found at start, not in the first request."""

    def __init__(self, tool_name: str, why: str) -> None:
        super().__init__(f"Tool {tool_name!r} cannot be declared to a model: {why}.")
        self.tool_name = tool_name
        self.why = why


def check_tools(tools: Collection[ToolSpec]) -> None:
    """Raise SchemaRefused if a tool's name or schema is not acceptable, or two tools share a name."""
    for name, count in Counter(tool.name for tool in tools).items():
        if count > 1:
            raise SchemaRefused(name, "its name is taken by another tool")
    for tool in tools:
        portable_schema(tool)


def portable_schema(tool: ToolSpec) -> Schema:
    """Return the tool's schema in the form that all APIs take; raise SchemaRefused where there is none."""
    if not _TOOL_NAME.match(tool.name):
        raise SchemaRefused(
            tool.name, "its name must be 1 to 64 of letters, digits, _ and -, not beginning with - or 0-9"
        )
    try:
        orjson.dumps(tool.schema)
    except TypeError as exc:
        raise SchemaRefused(tool.name, "its schema is not JSON") from exc
    return _Tool(tool).written()


def takes_nothing(schema: Mapping[str, Any]) -> bool:
    """Say whether a portable schema has no parameters at all."""
    return not schema.get("properties") and not schema.get("additionalProperties")


class _Tool:
    """One schema being rewritten, with the definitions that its references point to."""

    def __init__(self, tool: ToolSpec) -> None:
        self._name = tool.name
        self._schema = tool.schema
        self._recursive: dict[str, Schema] = {}
        self._size = 0

    def written(self) -> Schema:
        top = self._object(self._rewrite(self._schema, ()))
        top = {key: value for key, value in top.items() if key not in {*_REFUSED_AT_TOP, *_DEFINITIONS}}
        top["properties"] = top.get("properties", {})
        for name in top["properties"]:
            if not _PROPERTY_NAME.match(name):
                raise self._refusal("its parameters must be named by 1 to 64 of letters, digits, _ . and -")
        return {**top, "$defs": self._recursive} if self._recursive else top

    def _refusal(self, why: str) -> SchemaRefused:
        return SchemaRefused(self._name, why)

    def _object(self, schema: Schema) -> Schema:
        """Return the top as one plain object, which takes whatever one of its branches takes."""
        if schema.get("type", "object") != "object":
            raise self._refusal("its schema must be of type object")
        merged: Schema = {key: value for key, value in schema.items() if key not in _COMBINATIONS}
        for key in _COMBINATIONS:
            if branches := schema.get(key):
                objects = [self._object(branch if isinstance(branch, dict) else {}) for branch in branches]
                merged = _both(merged, reduce(_both if key == "allOf" else _either, objects))
        return {"type": "object", **merged}

    def _rewrite(self, schema: Schema, path: tuple[str, ...], depth: int = 0) -> Schema:
        """Return the schema with references written out and arrays completed; ``path`` is the references passed."""
        self._size += 1
        if depth > _DEEPEST or self._size > _LARGEST:
            raise self._refusal(f"its schema has more than {_DEEPEST} levels or {_LARGEST} parts in all")
        if isinstance(reference := schema.get("$ref"), str):
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            return {**self._resolved(reference, path, depth), **self._rewrite(beside, path, depth + 1)}

        def inner(part: Any) -> Any:
            return self._rewrite(part, path, depth + 1) if isinstance(part, dict) else part

        written = {key: _part(key, value, inner) for key, value in schema.items() if key not in _DEFINITIONS}
        kind = written.get("type")
        if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and "items" not in written:
            written["items"] = {}
        return written

    def _resolved(self, reference: str, path: tuple[str, ...], depth: int) -> Schema:
        if reference in path:
            return {"$ref": f"#/$defs/{self._kept(reference, depth)}"}
        return self._rewrite(self._target(reference), (*path, reference), depth + 1)

    def _kept(self, reference: str, depth: int) -> str:
        """Keep the definition of a recursive reference and return its name."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", reference.rsplit("/", 1)[-1]) or "root"
        if name not in self._recursive:
            self._recursive[name] = {}
            self._recursive[name] = self._rewrite(self._target(reference), (reference,), depth + 1)
        return name

    def _target(self, reference: str) -> Schema:
        if not reference.startswith("#"):
            raise self._refusal("its schema refers to another document")
        target: Any = self._schema
        for part in reference[1:].split("/")[1:]:
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            raise self._refusal("its schema refers to a definition that is not there")
        return target


def _part(key: str, value: Any, inner: Callable[[Any], Any]) -> Any:
    """Rewrite the schemas in one keyword's value; what is no schema (an enum, a default) stays as it is."""
    if key in _SCHEMAS:
        return inner(value)
    if key in _LISTS_OF_SCHEMAS and isinstance(value, list):
        return [inner(part) for part in value]
    if key in _MAPS_OF_SCHEMAS and isinstance(value, dict):
        return {name: inner(part) for name, part in value.items()}
    return value


def _both(one: Schema, other: Schema) -> Schema:
    """Return an object that must satisfy both, as far as that can be said plainly."""
    required = list(dict.fromkeys([*one.get("required", []), *other.get("required", [])]))
    return _joined(one, other, required)


def _either(one: Schema, other: Schema) -> Schema:
    """Return an object that satisfies whatever satisfies one of them."""
    required = [name for name in one.get("required", []) if name in other.get("required", [])]
    return _joined(one, other, required)


def _joined(one: Schema, other: Schema, required: list[str]) -> Schema:
    properties = dict(one.get("properties", {}))
    for name, schema in other.get("properties", {}).items():
        known = properties.get(name, schema)
        properties[name] = known if known == schema else {"anyOf": [known, schema]}
    joined = {**other, **one, "properties": properties, "required": required}
    if one.get("additionalProperties") != other.get("additionalProperties"):
        joined.pop("additionalProperties", None)
    return joined if required else {key: value for key, value in joined.items() if key != "required"}
