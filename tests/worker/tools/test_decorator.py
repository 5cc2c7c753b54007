import asyncio
import inspect
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter
from running import CONTEXT, declared

from roundelay_worker import ToolContext, tool
from roundelay_worker.tools.declare.signature import InvalidTool


class Point(BaseModel):
    x: int
    title: str = ""


@tool(effect="read", timeout=5, polling=True)
def weather(
    city: str,
    context: ToolContext,
    day: date,
    unit: Literal["C", "F"] = "C",
    near: Annotated[Point | None, Field(description="a place")] = None,
    tags: list[str] = [],  # noqa: B006 - such defaults must be taken as they are
) -> str:
    """Tell the weather.

    It is a guess.

    Args:
        city: its name,
            with accents
        day (date): the day
        near: not used, the annotation says it
        context: never shown

    Returns:
        nothing of this reaches the model
    """
    return f"{city} {day} {unit} {near} {tags} {context.user_id}"


def test_a_decorated_function_stays_callable_as_before():
    assert weather("Faro", CONTEXT, day=date(2030, 1, 2)) == "Faro 2030-01-02 C None [] u1"
    assert inspect.signature(weather).parameters["unit"].default == "C"


def test_an_async_function_stays_a_coroutine_function():
    @tool
    async def answer(question: str) -> str:
        return question

    assert inspect.iscoroutinefunction(answer)
    assert asyncio.run(answer("yes?")) == "yes?"
    assert declared(answer).kind == "async"


def test_the_bare_decorator_declares_a_write_with_the_functions_name():
    @tool
    def send_mail(to: str) -> None:
        """Send it."""

    made = declared(send_mail)
    assert (made.name, made.effect, made.timeout, made.kind) == ("send_mail", "write", None, "thread")
    assert (made.idempotent, made.polling, made.isolated, made.verify) == (False, False, False, None)
    assert made.description == "Send it."


def test_options_reach_the_declared_tool():
    made = declared(weather)
    assert (made.effect, made.timeout, made.polling) == ("read", 5, True)

    @tool(name="other-name", description="Said otherwise.", idempotent=True)
    def named() -> str:
        """Not this."""
        return ""

    assert (declared(named).name, declared(named).description) == ("other-name", "Said otherwise.")
    assert declared(named).idempotent


def test_the_schema_comes_from_signature_and_docstring():
    made = declared(weather)
    assert made.description == "Tell the weather.\n\nIt is a guess."
    schema = made.spec.schema
    assert list(schema["properties"]) == ["city", "day", "unit", "near", "tags"]
    assert schema["required"] == ["city", "day"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["city"] == {"type": "string", "description": "its name, with accents"}
    assert schema["properties"]["day"] == {"type": "string", "format": "date", "description": "the day"}
    assert schema["properties"]["unit"]["enum"] == ["C", "F"]
    assert schema["properties"]["unit"]["default"] == "C"
    assert schema["properties"]["near"]["description"] == "a place"


def test_a_property_named_title_survives_the_removal_of_titles():
    point = declared(weather).spec.schema["$defs"]["Point"]
    assert point["properties"]["title"] == {"type": "string", "default": ""}
    assert "title" not in point


def test_a_tool_without_arguments_has_an_empty_object_as_schema():
    @tool
    def ping() -> str:
        return "pong"

    assert declared(ping).spec.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert declared(ping).description == "ping"


@pytest.mark.parametrize("name", ["schema", "copy", "json", "model_config", "validate", "fields", "self_", "_private"])
def test_a_parameter_may_have_any_ordinary_name(name):
    scope: dict[str, Any] = {}
    exec(f"def odd({name}: int) -> int:\n    return {name}", scope)
    made = declared(tool(scope["odd"]))
    assert list(made.spec.schema["properties"]) == [name]
    assert getattr(made.signature.arguments.validate_json(f'{{"{name}": 3}}'), name) == 3


def test_an_optional_context_is_recognised_too():
    @tool
    def maybe(context: ToolContext | None = None) -> str:
        return str(context)

    assert declared(maybe).signature.context_parameter == "context"
    assert declared(maybe).spec.schema["properties"] == {}


def test_a_default_that_json_cannot_carry_is_left_out_of_the_schema():
    @tool
    def odd(number: int = object()) -> int:  # type: ignore[assignment]
        return number

    assert "default" not in declared(odd).spec.schema["properties"]["number"]


def _var_positional(*names: str) -> None: ...
def _var_keyword(**names: str) -> None: ...
def _positional_only(name: str, /) -> None: ...
def _untyped(name) -> None: ...
def _unreadable(name: "NoSuchType") -> None: ...  # noqa: F821
def _foreign(größe: int) -> None: ...  # noqa: PLC2401
def _default_field(name: str = Field("x")) -> None: ...
def _two_contexts(a: ToolContext, b: ToolContext) -> None: ...
def _no_schema(name: asyncio.Lock) -> None: ...
def _no_json(name: type[int] | asyncio.Event) -> None: ...
def _no_schema_of_json(name: Callable[[], int]) -> None: ...
def _generator(name: str) -> Any:
    yield name


async def _async_generator(name: str) -> Any:
    yield name


@pytest.mark.parametrize(
    ("function", "mend"),
    [
        (_var_positional, "name each parameter"),
        (_var_keyword, "name each parameter"),
        (_positional_only, "remove the /"),
        (_untyped, "write name: str"),
        (_unreadable, "import the type at the top"),
        (_foreign, "ASCII letters"),
        (_default_field, "Annotated[str, Field(...)]"),
        (_two_contexts, "keep one"),
        (_no_schema, "cannot be validated"),
        (_no_json, "cannot be validated"),
        (_no_schema_of_json, "JSON cannot carry"),
        (_generator, "return the whole value"),
        (_async_generator, "return the whole value"),
        (lambda: None, "beginning with a letter"),
        (print, "plain function"),
        (Point, "plain function"),
        (staticmethod(_foreign), "plain function"),
    ],
)
def test_a_signature_that_a_model_could_not_call_is_refused_with_what_to_mend(function, mend):
    with pytest.raises(InvalidTool, match=re.escape(mend)) as refusal:
        tool(function)
    assert "plain function" in mend or __name__ in str(refusal.value)


def _fine(amount: int) -> str:
    return str(amount)


async def _fine_async(amount: int) -> str:
    return str(amount)


def _verify(other: int) -> bool:
    return bool(other)


@pytest.mark.parametrize(
    ("function", "options", "mend"),
    [
        (_fine, {"name": "has space"}, "letters, digits"),
        (_fine, {"name": "x" * 65}, "64"),
        (_fine, {"name": "9lives"}, "beginning with"),
        (_fine, {"effect": "delete"}, "'read' or 'write'"),
        (_fine, {"timeout": 0}, "positive number"),
        (_fine, {"timeout": float("nan")}, "positive number"),
        (_fine, {"timeout": float("inf")}, "positive number"),
        (_fine_async, {"isolated": True}, "async and isolated"),
        (_fine, {"effect": "read", "verify": _fine}, "only a write"),
        (_fine, {"verify": print}, "not a function"),
        (_fine, {"verify": _verify}, "it may take amount"),
    ],
)
def test_options_that_cannot_hold_together_are_refused(function, options, mend):
    with pytest.raises(InvalidTool, match=mend):
        tool(**options)(function)


def test_an_isolated_tool_must_be_where_a_child_process_finds_it():
    def inner() -> None: ...

    with pytest.raises(InvalidTool, match="top of a module"):
        tool(isolated=True)(inner)


def test_verify_takes_some_of_the_parameters_and_the_context():
    def check(amount: int, ctx: ToolContext) -> bool:
        return amount == 1 and ctx.user_id == "u1"

    @tool(verify=check)
    def pay(to: str, amount: int) -> None: ...

    verify = declared(pay).verify
    assert verify is not None
    assert verify.function(**verify.arguments({"to": "x", "amount": 1}, CONTEXT)) is True


def test_the_schema_of_decimals_accepts_numbers_and_strings():
    @tool
    def pay(amount: Decimal) -> None: ...

    adapter: TypeAdapter[Any] = declared(pay).signature.arguments
    assert adapter.validate_json('{"amount": "1.10"}').amount == adapter.validate_json('{"amount": 1.10}').amount


def test_a_method_is_no_tool_and_says_what_to_do():
    with pytest.raises(InvalidTool, match="is a method: a tool is a function of its own"):

        class Shop:
            @tool
            def buy(self, what: str) -> str:
                return what
