"""Strict is asked for only where OpenAI surely takes it."""

from typing import Any

import pytest

from agentrun.providers.openai_schema import is_strict

from ..packages import TRIAGE

CLOSED = {"type": "object", "additionalProperties": False, "required": ["a"]}


def closed(**properties: Any) -> dict[str, Any]:
    return {**CLOSED, "required": list(properties), "properties": properties}


@pytest.mark.parametrize(
    "schema",
    [
        TRIAGE,
        closed(),
        closed(a={"type": "string", "description": "text"}, b={"type": "array", "items": closed(c={"enum": [1, 2]})}),
        closed(a={"anyOf": [{"type": "null"}, closed(b={"const": 1})]}),
        closed(a={**closed(b={"type": "string"}), "type": ["object", "null"]}),
    ],
)
def test_strict(schema: dict[str, Any]) -> None:
    assert is_strict(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {}},
        {**closed(a={}), "required": []},
        {**closed(a={}), "required": ["a", "b"]},
        {**closed(a={}), "additionalProperties": True},
        {**closed(a={}), "anyOf": [{}]},
        closed(a={"type": "string", "minLength": 1}),
        closed(a={"type": "array", "items": {"type": "object"}}),
        closed(a={"type": "array", "items": True}),
        closed(a={"anyOf": [{"type": "object", "properties": {"b": {}}}]}),
        closed(a={"properties": {"b": {}}}),
        closed(a={**closed(b={}), "type": ["object", "null"], "required": []}),
        closed(a={"$ref": "#/$defs/x"}),
    ],
)
def test_not_strict(schema: dict[str, Any]) -> None:
    assert not is_strict(schema)
