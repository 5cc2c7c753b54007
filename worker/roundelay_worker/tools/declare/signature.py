"""From a typed signature to what validates the arguments and to the JSON schema that declares them.

The parameters become the fields of a dataclass: unlike a model class, it has no names of its own that a
parameter could collide with.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from roundelay_worker.tools.context import ToolContext

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_REFUSED_KINDS = {
    inspect.Parameter.VAR_POSITIONAL: "takes *{name}: name each parameter, a model can only send named ones",
    inspect.Parameter.VAR_KEYWORD: "takes **{name}: name each parameter, so that extra arguments can be refused",
    inspect.Parameter.POSITIONAL_ONLY: "has the positional-only parameter {name}: remove the / from its signature",
}


class InvalidTool(TypeError):
    """A tool is declared wrongly; the sentence says what to mend. Raised where it is declared, at import."""


class _Schema(GenerateJsonSchema):
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {  # noqa: RUF012 - pydantic's own annotation
        "skipped-choice",
        "non-serializable-default",
    }


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a tool: ``arguments`` validates JSON text, ``names`` are those the model may send."""

    names: tuple[str, ...]
    context_parameter: str
    arguments: TypeAdapter[Any]
    schema: dict[str, Any]


def read_signature(function: Callable[..., Any], place: str, documented: Mapping[str, str]) -> Signature:
    """Return the signature of ``function``; raise InvalidTool, naming ``place``, if a model could not call it."""
    hints = _hints(function, place)
    context_parameter = ""
    fields: list[tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        annotation = _annotation(parameter, hints, place)
        if is_context(annotation):
            _check_context(parameter, context_parameter, place)
            context_parameter = parameter.name
        else:
            fields.append((parameter.name, _described(annotation, documented.get(parameter.name, "")), parameter))
    adapter = _adapter([(name, annotation, _default(p, place)) for name, annotation, p in fields], place)
    return Signature(tuple(name for name, _, _ in fields), context_parameter, adapter, _schema(adapter, place))


def is_context(annotation: Any) -> bool:
    """Say whether a parameter so annotated is given the ToolContext."""
    return annotation is ToolContext or (get_origin(annotation) is not None and ToolContext in get_args(annotation))


def _hints(function: Callable[..., Any], place: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as exc:
        raise InvalidTool(
            f"{place} has an annotation that cannot be read ({exc}): "
            "import the type at the top of the module, not under TYPE_CHECKING or inside a function"
        ) from exc


def _annotation(parameter: inspect.Parameter, hints: Mapping[str, Any], place: str) -> Any:
    if parameter.kind in _REFUSED_KINDS:
        raise InvalidTool(f"{place} {_REFUSED_KINDS[parameter.kind].format(name=parameter.name)}")
    if not _PARAMETER.fullmatch(parameter.name):
        raise InvalidTool(
            f"{place} has the parameter {parameter.name}: use up to 64 ASCII letters, digits and underscores"
        )
    if parameter.name not in hints:
        raise InvalidTool(f"{place} has the parameter {parameter.name} without a type: write {parameter.name}: str")
    return hints[parameter.name]


def _check_context(parameter: inspect.Parameter, earlier: str, place: str) -> None:
    if earlier:
        raise InvalidTool(f"{place} takes the ToolContext twice, as {earlier} and {parameter.name}: keep one")


def _described(annotation: Any, text: str) -> Any:
    """Return ``annotation`` with the docstring's text, unless it brings a description of its own."""
    own = (item for item in get_args(annotation)[1:] if isinstance(item, FieldInfo))
    described = get_origin(annotation) is Annotated and any(item.description for item in own)
    return annotation if described or not text else Annotated[annotation, Field(description=text)]


def _default(parameter: inspect.Parameter, place: str) -> Any:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return field()
    if isinstance(default, FieldInfo):
        raise InvalidTool(
            f"{place} has Field(...) as the default of {parameter.name}: "
            f"write {parameter.name}: Annotated[str, Field(...)]"
        )
    if getattr(type(default), "__hash__", None) is None:
        return field(default_factory=lambda: default)
    return field(default=default)


def _adapter(fields: list[tuple[str, Any, Any]], place: str) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(
            make_dataclass("Arguments", fields, kw_only=True, namespace={"__pydantic_config__": _CONFIG})
        )
    except (PydanticUserError, TypeError, ValueError) as exc:
        raise InvalidTool(f"{place} has a parameter that cannot be validated: {_first_line(exc)}") from exc


def _schema(adapter: TypeAdapter[Any], place: str) -> dict[str, Any]:
    try:
        schema = adapter.json_schema(schema_generator=_Schema)
    except PydanticUserError as exc:
        raise InvalidTool(f"{place} has a parameter that JSON cannot carry: {_first_line(exc)}") from exc
    schema.setdefault("properties", {})
    bare: dict[str, Any] = _without_titles(schema)
    return bare


def _without_titles(schema: Any) -> Any:
    """Return ``schema`` without the titles that pydantic makes up: they cost tokens and say nothing."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {key: value for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    return {key: _bare_value(key, value) for key, value in bare.items()}


def _bare_value(key: str, value: Any) -> Any:
    if key in {"default", "const", "enum", "examples"}:
        return value
    if key in {"properties", "$defs"} and isinstance(value, dict):
        return {name: _without_titles(item) for name, item in value.items()}
    return _without_titles(value)


def _first_line(exc: Exception) -> str:
    return (str(exc).splitlines() or [type(exc).__name__])[0]
