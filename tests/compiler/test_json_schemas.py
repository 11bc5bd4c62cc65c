"""Checks of user-written JSON Schemas: local references, RE2 patterns, size limits and resolved references."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.compiler.json_schemas import (
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_DEPTH,
    MAX_SCHEMA_PARTS,
    SCHEMA_KEYWORDS,
    check_schema,
    resolve_references,
)
from agentrun.compiler.patterns import MAX_PATTERN_LENGTH, MAX_PROGRAM_SIZE, check_pattern
from agentrun.spec.problems import Problem, Source
from agentrun.spec.tree import Node, plain_data
from agentrun.spec.yaml_parser import parse_yaml_document

from ..projects import find_problems
from ..steps import at_most


def node(schema: Any) -> Node:
    """A schema as it would stand in a file: JSON is YAML."""
    return parse_yaml_document(Source(Path("/p/schema.json"), "schema.json", json.dumps(schema)))


def schema_problems(schema: Any) -> list[Problem]:
    with at_most(8_000_000):
        return check_schema(node(schema))


def codes(schema: Any) -> list[str]:
    return [problem.code for problem in schema_problems(schema)]


# --- references (THREATS 9 and 10) --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference",
    [
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data/",
        "https://json-schema.org/draft/2020-12/schema",
        "other.json",
        "../other.json",
        "other.json#/$defs/a",
        "/etc/passwd",
        "//host/share",
        "data:application/json,{}",
        "data:application/json;base64,e30=",
        "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
        "\\\\host\\share",
        "jar:file:///x!/y",
        " #/$defs/a",
        "",
        "?#/$defs/a",
    ],
)
@pytest.mark.parametrize("way", ["at the top", "in a property", "below a keyword", "in a definition that nothing uses"])
def test_external_reference_is_refused(reference: str, way: str) -> None:
    schema = {"$ref": reference}
    schemas: dict[str, Any] = {
        "at the top": {**schema, "$defs": {"a": {}}},
        "in a property": {"properties": {"x": schema}, "$defs": {"a": {}}},
        "below a keyword": {"items": {"not": {"anyOf": [True, schema]}}},
        "in a definition that nothing uses": {"$defs": {"a": schema}},
    }
    assert codes(schemas[way]) == ["spec.schema_ref"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"a": {"$ref": "#"}}},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "items": {"$ref": "#/$defs/a"}},
        {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"allOf": [{"$ref": "#/%24defs/a"}]}}, "$ref": "#/$defs/a"},
        {"properties": {"a": {"properties": {"b": {"$ref": "#/properties/a"}}}}},
    ],
)
def test_circular_reference_is_refused(schema: Any) -> None:
    (problem,) = schema_problems(schema)
    assert problem.code == "spec.schema_ref"
    assert "is circular" in problem.message


def test_exponential_references_are_refused() -> None:
    """2^20 parts from twenty lines."""
    doubled = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(20)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**doubled, "a20": {"type": "string"}}}
    assert "10,000 parts" in schema_problems(schema)[0].message
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(200)}
    assert codes({"$ref": "#/$defs/a0", "$defs": {**chain, "a200": {}}}) == ["spec.schema_ref"]


@pytest.mark.parametrize(
    "large",
    [
        {"enum": list(range(20_000))},
        {"description": "x" * 500_000},
        {"const": {"k" * 1000: "x" * 5000}},
        {"properties": {f"property{n}": True for n in range(5000)}},
        {"required": [f"property{n}" for n in range(5000)]},
    ],
)
def test_large_part_referenced_often_is_refused(large: Any) -> None:
    """A few names, gigabytes when they are written out."""
    schema = {"$defs": {"large": large}, "properties": {f"p{n}": {"$ref": "#/$defs/large"} for n in range(1000)}}
    assert codes(schema) == ["spec.schema_ref"]


def test_limit_of_parts() -> None:
    def schema(parts: int) -> Any:
        return {"$defs": {"a": True}, "properties": {f"p{n}": {"$ref": "#/$defs/a"} for n in range(parts)}}

    most = (MAX_SCHEMA_PARTS - 1) // 2  # a reference and what it names are two
    assert schema_problems(schema(most)) == []
    assert codes(schema(most + 1)) == ["spec.schema_ref"]


def test_limit_of_the_resolved_size() -> None:
    def schema(size: int) -> Any:
        return {"$defs": {"a": {"const": "x" * (size // 4)}}, "anyOf": [{"$ref": "#/$defs/a"}] * 4}

    assert schema_problems(schema(MAX_SCHEMA_BYTES - 100)) == []
    assert codes(schema(MAX_SCHEMA_BYTES)) == ["spec.schema_ref"]


def test_limit_of_the_depth() -> None:
    def nested(levels: int) -> Any:
        schema: Any = True
        for _ in range(levels - 1):
            schema = {"not": schema}
        return schema

    def chained(levels: int) -> Any:
        defs = {f"a{n}": {"items": {"$ref": f"#/$defs/a{n + 1}"}} for n in range(levels)}
        return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{levels}": {}}}

    assert MAX_SCHEMA_DEPTH == 64
    assert schema_problems(nested(64)) == []
    assert [problem.message for problem in schema_problems(nested(65))] == [
        "the schema is nested deeper than 64 levels"
    ]
    assert schema_problems(chained(20)) == []  # three levels for each
    assert codes(chained(32)) == ["spec.schema_ref"]


@pytest.mark.parametrize(
    ("reference", "fits"),
    [
        ("#/$defs/a", True),
        ("#/%24defs/a", True),
        ("#/$defs/b~1c", True),
        ("#/$defs/d%20e", True),
        ("#/$defs/f~0", True),
        ("#/properties/p", True),
        ("#/allOf/0", True),
        ("#/$defs", False),  # a mapping of schemas, not a schema
        ("#/properties", False),
        ("#/enum", False),
        ("#/enum/0", False),  # data that looks like a schema
        ("#/const", False),
        ("#/default/properties/x", False),
        ("#/examples/0", False),
        ("#/$defs/nothing", False),
        ("#/allOf/1", False),
        ("#/allOf/-1", False),
        ("#/allOf/" + "9" * 5000, False),
        ("#/allOf/\u0660", False),
        ("#a", False),
        ("#/$defs/a/", False),
    ],
)
def test_reference_must_point_at_a_schema(reference: str, fits: bool) -> None:
    looks_like_one = {"type": "string", "pattern": "(?=a)"}
    schema = {
        "$defs": {"a": {}, "b/c": {}, "d e": {}, "f~": {}},
        "properties": {"p": {"type": "string"}},
        "allOf": [{"type": "object"}],
        "enum": [looks_like_one],
        "const": looks_like_one,
        "default": {"properties": {"x": {}}},
        "examples": [looks_like_one],
        "items": {"$ref": reference, "$anchor": "a"},
    }
    assert codes(schema) == ([] if fits else ["spec.schema_ref"])


def test_misspelt_reference_gets_a_hint() -> None:
    (problem,) = schema_problems({"$defs": {"address": {}}, "items": {"$ref": "#/$defs/adress"}})
    assert problem.hint == 'did you mean "#/$defs/address"?'


# --- identity -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"$id": "https://a.example/s", "$schema": "https://json-schema.org/draft/2020-12/schema"}, None),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema#"}, None),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "spec.json_schema"),
        ({"$schema": "http://evil.example/meta"}, "spec.json_schema"),
        ({"properties": {"a": {"$schema": "http://evil.example/meta"}}}, "spec.json_schema"),
        ({"properties": {"a": {"$id": "inner", "$ref": "#/$defs/b"}}, "$defs": {"b": {}}}, "spec.schema_ref"),
        ({"$defs": {"a": {"$id": "file:///etc/passwd"}}}, "spec.schema_ref"),
        ({"$dynamicRef": "#a"}, "spec.json_schema"),
        ({"$dynamicAnchor": "a"}, "spec.json_schema"),
        ({"$recursiveRef": "#"}, "spec.json_schema"),
        ({"$vocabulary": {}}, "spec.json_schema"),
        ({"$anchor": "a", "items": {"$ref": "#a"}}, "spec.schema_ref"),
    ],
)
def test_id_anchor_and_schema_keywords(schema: Any, code: str | None) -> None:
    assert codes(schema) == ([] if code is None else [code])


def test_data_inside_a_schema_is_not_checked_as_a_schema() -> None:
    trap = {"$ref": "file:///etc/passwd", "$id": "http://evil.example", "pattern": "(?=a)", "zzz": 1}
    data = {"enum": [trap], "const": trap, "default": trap, "examples": [trap]}
    named = {"properties": {"$ref": {"type": "string"}, "$id": {}, "pattern": {}, "default": {"type": "object"}}}
    assert schema_problems({**data, **named}) == []
    assert resolve_references(node({**data, **named})) == {**data, **named}
    for keyword in ("properties", "$defs", "dependentSchemas"):
        assert schema_problems({keyword: {"$ref": {"type": "string"}, "pattern": {"type": "string"}}}) == []
    assert codes({"properties": {"default": trap}}) == [
        "spec.schema_ref",
        "spec.schema_ref",
        "spec.pattern",
        "spec.json_schema",
    ]


# --- patterns (THREATS 11) ----------------------------------------------------------------------------------

BAD_PATTERNS = [
    "(?=a)b",
    "(?!a)b",
    "(?<=a)b",
    "(?<!a)b",
    "(a)\\1",
    "(?P<x>a)(?P=x)",
    "(?>a+)b",
    "a++",
    "(?(1)a|b)",
    "(",
    "[",
    "a{1001}",
    "((a{100}){100}){100}",
    "\\p{Nonsense}",
    "a" * (MAX_PATTERN_LENGTH + 1),
    "\\pL{1000}",
    "(?R)",
    "\\Z",
]
GOOD_PATTERNS = [
    "^(a+)+$",
    "(a|aa)+$",
    "(.*)*x",
    "^[\\pL ]{1,40}$",
    "\\d{3}-\\d{4}",
    "(?i)abc",
    "",
    "a" * MAX_PATTERN_LENGTH,
]


@pytest.mark.parametrize("pattern", BAD_PATTERNS)
@pytest.mark.parametrize("way", ["pattern", "patternProperties"])
def test_pattern_that_re2_cannot_use_is_refused(pattern: str, way: str) -> None:
    if way == "patternProperties" and len(pattern) > 1000:
        pytest.skip("YAML has no keys of this length")
    schema = {"pattern": pattern} if way == "pattern" else {"patternProperties": {pattern: True}}
    assert codes(schema) == ["spec.pattern"]
    assert codes({"items": {"anyOf": [True, schema]}}) == ["spec.pattern"]


@pytest.mark.parametrize("pattern", GOOD_PATTERNS)
def test_backtracking_patterns_are_matched_in_linear_time(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert schema_problems(schema) == []
    if 0 < len(pattern) < 1000:
        assert schema_problems({"patternProperties": {pattern: True}}) == []
    validator = jsonschema_rs.Draft202012Validator(
        resolve_references(node(schema)), offline=True, pattern_options=jsonschema_rs.RegexOptions()
    )
    validator.is_valid("a" * 20_000 + "!")  # with backtracking this would not come back


def test_default_is_matched_in_linear_time(tmp_path: Path) -> None:
    text = f'params: {{p: {{type: string, pattern: "^(a+)+$", default: "{"a" * 5000}!"}}}}\n'
    with at_most(60_000):
        (problem,) = find_problems(tmp_path, text)
    assert problem.code == "spec.param_default"
    assert "aaaa" not in problem.message


def test_weight_and_size_limit_of_a_pattern() -> None:
    assert check_pattern("^[a-z]{3}$").weight < 50
    assert check_pattern("\\pL{40}").weight > 10_000
    assert check_pattern("\\pL{1000}") == (MAX_PROGRAM_SIZE, "the pattern is too large")


def test_problem_points_at_the_pattern_key() -> None:
    (problem,) = schema_problems({"type": "object", "patternProperties": {"ok": True, "(?=a)": True}})
    assert (problem.line, problem.column) == (1, 54)


# --- what a schema says -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "at", "message", "hint"),
    [
        ({"tpye": "string"}, 2, '"tpye" is not a keyword of JSON Schema', 'did you mean "type"?'),
        ({"name": {"type": "string"}}, 2, '"name" is not a keyword', "under `properties:`"),
        ({"type": "strng"}, 10, '"strng" is not a JSON type', 'did you mean "string"?'),
        ({"type": "date"}, 10, '"date" is not a JSON type', "types: string, integer"),
        ({"type": ["string", "nul"]}, 21, '"nul" is not a JSON type', 'did you mean "null"?'),
        ({"properties": {"a": "string"}}, 22, "a schema must be a mapping, true or false", "{type: string}"),
        ({"properties": {"a": None}}, 22, "a schema must be a mapping, true or false", None),
        ({"properties": ["a"]}, 16, 'not a valid JSON Schema: "properties": ["a"] is not of type "object"', None),
        ({"items": [{"type": "string"}]}, 11, "a schema must be a mapping, true or false", None),
        ({"required": "a"}, 14, 'not a valid JSON Schema: "required": ', None),
        ({"minLength": -1}, 15, 'not a valid JSON Schema: "minLength": -1 is less than the minimum of 0', None),
        ({"maximum": "5"}, 13, 'not a valid JSON Schema: "maximum": ', None),
        ({"multipleOf": 0}, 16, 'not a valid JSON Schema: "multipleOf": ', None),
    ],
)
def test_mistake_has_place_message_and_hint(schema: Any, at: int, message: str, hint: str | None) -> None:
    (problem,) = schema_problems(schema)
    assert (problem.code, problem.column) == ("spec.json_schema", at)
    assert message in problem.message
    assert (hint or "") in (problem.hint or "")


def test_all_mistakes_are_reported_at_once() -> None:
    schema = {"type": "strng", "minLength": -1, "properties": {"a": {"type": "intger"}, "b": {"required": [1]}}}
    assert sorted(problem.column for problem in schema_problems(schema)) == [10, 32, 65, 95]


def test_any_format_is_allowed() -> None:
    for name in ("email", "date-time", "uri", "uuid", "regex", "anything"):
        assert schema_problems({"type": "string", "format": name}) == []


@pytest.mark.parametrize("schema", [True, [], "string", 5, None])
def test_schema_must_be_a_mapping(schema: Any) -> None:
    assert codes(schema) == ["spec.json_schema"]


# --- written out --------------------------------------------------------------------------------------------

A, B = {"type": "integer"}, {"type": "object"}
SCHEMAS: list[dict[str, Any]] = [
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}},
    {"$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": {"type": "integer", "maximum": 9}}},
    {"$ref": "#/$defs/a", "allOf": [{"minimum": 2}], "$defs": {"a": {"allOf": [{"maximum": 5}]}}},
    {"properties": {"x": {"$ref": "#/$defs/a"}, "$ref": {"type": "string"}}, "$defs": {"a": {"const": {"$ref": 1}}}},
    {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, True]}, "b": {"type": "null"}}},
    {"$ref": "#/$defs/a", "unevaluatedProperties": False, "$defs": {"a": {"properties": {"x": {"type": "integer"}}}}},
    {"properties": {"y": B}, "$ref": "#/$defs/a", "additionalProperties": False, "$defs": {"a": {"required": ["x"]}}},
    {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": {"minimum": 3}, "b": {"maximum": 5}}},
    {"if": {"$ref": "#/$defs/a"}, "then": {"minimum": 4}, "else": {"$ref": "#/$defs/b"}, "$defs": {"a": A, "b": B}},
    {"not": {"$ref": "#/definitions/a"}, "definitions": {"a": {"enum": [1, "x", None]}}},
    {"$ref": "#/$defs/never", "$defs": {"never": False}},
    {"$ref": "#/properties/x", "properties": {"x": {"type": "object"}}},
    {"prefixItems": [{"$ref": "#/$defs/a"}], "items": False, "$defs": {"a": {"type": "integer"}}},
    {"patternProperties": {"^x": {"$ref": "#/$defs/a"}}, "$defs": {"a": A}, "propertyNames": {"maxLength": 1}},
    {"contains": {"$ref": "#/$defs/a"}, "minContains": 2, "$defs": {"a": {"type": "integer"}}},
    {"dependentSchemas": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"required": ["y"]}}},
    {"enum": [{"$ref": "#/$defs/a"}, 1], "$defs": {"a": False}},
]  # fmt: skip
JSON_VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 3, 4, 7, 9.5, "x", "xyz", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "y", "xyz", "$ref", "a"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
@given(value=JSON_VALUES)
def test_resolved_schema_accepts_the_same_values(schema: dict[str, Any], value: Any) -> None:
    tree = node(schema)
    assert check_schema(tree) == []
    written = resolve_references(tree)
    assert "$defs" not in json.dumps(written).replace('"#/$defs', "")
    before = jsonschema_rs.Draft202012Validator(plain_data(tree), offline=True)
    assert jsonschema_rs.Draft202012Validator(written, offline=True).is_valid(value) == before.is_valid(value)


def test_resolved_schema_omits_id_anchor_and_comment() -> None:
    schema = {"$id": "https://a.example/s", "$comment": "c", "type": "string", "$anchor": "a", "title": "t"}
    assert resolve_references(node(schema)) == {"type": "string", "title": "t"}


def test_keyword_list_matches_draft_2020_12() -> None:
    """A list of our own that fell behind the draft would refuse good schemas."""
    meta = {"properties", "patternProperties", "prefixItems", "unevaluatedItems", "dependentRequired", "minContains"}
    assert meta <= SCHEMA_KEYWORDS
    assert not {"id", "dependencies", "additionalItems", "$recursiveRef", "$dynamicRef", "extends"} & SCHEMA_KEYWORDS
