"""`is_strict`: schemas that OpenAI accepts in strict mode."""

from typing import Any

import pytest

from agentrun.providers.request_encoding import MAX_LEVELS, MAX_VALUES, is_strict

from ..packages import TRIAGE

TEXT = {"type": "string"}
CLOSED = {"type": "object", "additionalProperties": False, "required": ["a"]}


def closed(**properties: Any) -> dict[str, Any]:
    return {**CLOSED, "required": list(properties), "properties": properties}


@pytest.mark.parametrize(
    "schema",
    [
        TRIAGE,
        closed(),
        closed(
            a={"type": "string", "description": "text"},
            b={"type": "array", "items": closed(c={"type": "integer", "enum": [1, 2]})},
        ),
        closed(a={"anyOf": [{"type": "null"}, closed(b={"type": "integer", "const": 1})]}),
        closed(a={**closed(b={"type": "string"}), "type": ["object", "null"]}),
    ],
)
def test_schema_is_strict(schema: dict[str, Any]) -> None:
    assert is_strict(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {}},
        {**closed(a=TEXT), "required": []},
        {**closed(a=TEXT), "required": ["a", "b"]},
        {**closed(a=TEXT), "additionalProperties": True},
        {**closed(a=TEXT), "anyOf": [TEXT]},
        closed(a={}),
        closed(a={"enum": [1, 2]}),
        closed(a={"const": 1}),
        closed(a={"type": "array"}),
        closed(a={"type": ["array", "null"]}),
        closed(a={"type": "string", "items": TEXT}),
        closed(a={"type": "string", "minLength": 1}),
        closed(a={"type": "array", "items": {"type": "object"}}),
        closed(a={"type": "array", "items": True}),
        closed(a={"anyOf": [{"type": "object", "properties": {"b": TEXT}}]}),
        closed(a={"anyOf": [TEXT], "properties": {"b": TEXT}}),
        closed(a={**closed(b=TEXT), "type": ["object", "null"], "required": []}),
        closed(a={"$ref": "#/$defs/x"}),
    ],
)
def test_schema_is_not_strict(schema: dict[str, Any]) -> None:
    assert not is_strict(schema)


def nest_objects(levels: int) -> dict[str, Any]:
    schema = closed()
    for _ in range(levels - 1):
        schema = closed(a=schema)
    return schema


def test_depth_limit_of_strict_schemas() -> None:
    assert is_strict(nest_objects(MAX_LEVELS))
    assert not is_strict(nest_objects(MAX_LEVELS + 1))


def test_limit_of_enum_values_in_strict_schemas() -> None:
    values = [str(number) for number in range(MAX_VALUES)]
    assert is_strict(closed(a={**TEXT, "enum": values}))
    assert not is_strict(closed(a={**TEXT, "enum": values[1:]}, b={**TEXT, "enum": values[:2]}))
