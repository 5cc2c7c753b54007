"""Tool schemas in the form that every API takes."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, create_model

from roundelay_worker.providers.base import ToolSpec
from roundelay_worker.providers.schema import SchemaRefused, check_tools, portable_schema, takes_nothing


def portable(schema: dict[str, Any], name: str = "tool") -> dict[str, Any]:
    return portable_schema(ToolSpec(name, "", schema))


def refused(schema: dict[str, Any], name: str = "tool") -> str:
    with pytest.raises(SchemaRefused) as caught:
        portable(schema, name)
    assert caught.value.tool_name == name
    return caught.value.why


class Leaf(BaseModel):
    pair: tuple[int, str]


class Node(BaseModel):
    kids: list["Node"]
    leaf: Leaf


def test_a_plain_schema_stays_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "enum": [1]}}, "required": ["a"]}

    assert portable(schema) == schema


def test_an_empty_schema_is_an_object_that_takes_nothing() -> None:
    assert portable({}) == {"type": "object", "properties": {}}
    assert takes_nothing(portable({}))
    assert not takes_nothing(portable({"properties": {"a": {}}}))
    assert not takes_nothing(portable({"additionalProperties": {"type": "string"}}))


def test_references_are_written_out_and_arrays_completed() -> None:
    schema = portable(create_model("Args", leaf=(Leaf, ...)).model_json_schema())

    assert "$ref" not in json.dumps(schema)
    assert "$defs" not in schema
    assert schema["properties"]["leaf"]["properties"]["pair"]["items"] == {}


def test_a_recursive_reference_stays_with_its_definition() -> None:
    schema = portable(Node.model_json_schema())

    assert schema["type"] == "object"
    assert schema["properties"]["kids"]["items"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["kids"]["items"] == {"$ref": "#/$defs/Node"}
    assert list(schema["$defs"]) == ["Node"]


def test_alternatives_at_the_top_become_one_object_that_takes_them_all() -> None:
    one = {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a", "b"]}
    other = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    schema = portable({"oneOf": [one, other]})

    assert schema["properties"] == {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "b": {}}
    assert schema["required"] == ["a"]
    assert "oneOf" not in schema


def test_all_of_at_the_top_keeps_every_requirement() -> None:
    parts = [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]

    assert portable({"type": "object", "allOf": parts})["required"] == ["a", "b"]


def test_an_enum_or_a_default_that_looks_like_a_schema_is_left_alone() -> None:
    schema = {"properties": {"a": {"default": {"type": "array"}, "enum": [{"$ref": "x"}]}}}

    assert portable(schema)["properties"] == schema["properties"]


def test_what_no_api_takes_is_told_at_start() -> None:
    assert "type object" in refused({"type": "string"})
    assert "another document" in refused({"properties": {"a": {"$ref": "https://x/y"}}})
    assert "not there" in refused({"properties": {"a": {"$ref": "#/$defs/nowhere"}}})
    assert "named by" in refused({"properties": {"a b": {}}})
    assert "not JSON" in refused({"default": {1, 2}})
    assert "name must be" in refused({}, name="9lives")
    assert "name must be" in refused({}, name="x" * 65)


def test_references_that_multiply_without_end_are_refused() -> None:
    definitions = {f"d{n}": {"properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}} for n in range(30)}
    schema = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**definitions, "d30": {}}}

    assert "parts" in refused(schema)


def test_two_tools_of_one_name_are_refused() -> None:
    check_tools([ToolSpec("a", "", {}), ToolSpec("b", "", {})])
    with pytest.raises(SchemaRefused):
        check_tools([ToolSpec("a", "", {}), ToolSpec("a", "", {})])
