"""Validation of answers against the output schema, and strict JSON parsing."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core import json_validation as module
from agentrun.core.json_validation import (
    MAX_OUTPUT_ERRORS,
    Invalid,
    Valid,
    parse_strict_json,
    schema_validator,
    validate_output,
)
from agentrun.core.package import OutputContract

from ..packages import TRIAGE


def contract(schema: dict[str, Any], **changes: int) -> OutputContract:
    return msgspec.convert(
        {"repairs": 2, "max_bytes": 65_536, "max_depth": 24, "schema": schema, **changes}, OutputContract
    )


def errors_of(checked: object) -> tuple[str, ...]:
    assert isinstance(checked, Invalid)
    return checked.errors


def test_valid_answer_is_parsed() -> None:
    answer = ' {"urgent": false, "queue": "other"}\n'
    assert validate_output(answer, contract(TRIAGE)) == Valid({"urgent": False, "queue": "other"})


def test_invalid_answer_lists_every_error() -> None:
    assert errors_of(validate_output('{"queue": 7, "extra": 1}', contract(TRIAGE))) == (
        '/queue: the value is not of type "string"',
        '/queue: the value is not one of "billing", "hardware" or "other"',
        'the answer: "urgent" is a required property',
        "the answer: Additional properties are not allowed ('extra' was unexpected)",
    )


def test_answer_that_is_no_json_is_not_checked_against_the_schema() -> None:
    assert errors_of(validate_output("{", contract({}))) == errors_of(parse_strict_json("{", max_bytes=9, max_depth=9))


def test_errors_have_pointers_and_no_values() -> None:
    schema = {"type": "array", "items": {"type": "object", "properties": {"a/b~c": {"type": "integer"}}}}
    (error,) = errors_of(validate_output('[{}, {"a/b~c": "sk-secret"}]', contract(schema)))
    assert error == '/1/a~1b~0c: the value is not of type "integer"'


def test_number_and_length_of_errors_are_bounded() -> None:
    many = errors_of(validate_output(json.dumps(["x"] * 50), contract({"type": "array", "items": {"type": "integer"}})))
    assert len(many) == MAX_OUTPUT_ERRORS + 1
    assert many[-1] == "there are more errors"
    ten = errors_of(validate_output(json.dumps(["x"] * 10), contract({"type": "array", "items": {"type": "integer"}})))
    assert len(ten) == MAX_OUTPUT_ERRORS
    (long,) = errors_of(validate_output("{}", contract({"type": "object", "required": ["k" * 1000]})))
    assert len(long) == 300


def test_size_limit_counts_bytes() -> None:
    assert parse_strict_json('"ää"', max_bytes=6, max_depth=24) == Valid("ää")
    assert errors_of(parse_strict_json('"äää"', max_bytes=7, max_depth=24)) == ("it has 8 bytes, but the limit is 7",)


@pytest.mark.parametrize(
    ("text", "depth"), [("1", 0), ("[]", 1), ("{}", 1), ('[{"a": [1]}, 2]', 3), ("[[1], [[2]]]", 3)]
)
def test_depth_limit(text: str, depth: int) -> None:
    assert isinstance(parse_strict_json(text, max_bytes=100, max_depth=depth), Valid)
    if depth:
        assert "nested deeper" in errors_of(parse_strict_json(text, max_bytes=100, max_depth=depth - 1))[0]


def test_deeply_nested_text_is_refused() -> None:
    bomb = "[" * 30_000 + "]" * 30_000
    assert "nested deeper" in errors_of(parse_strict_json(bomb, max_bytes=65_536, max_depth=24))[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sure: {}",
        "```json\n{}\n```",
        "NaN",
        "[Infinity]",
        "1e999",
        "1" * 5000,
        '"\\ud800"',
        '"\ud800"',
        "{'a': 1}",
        "[1,]",
        "{} {}",
        "\ufeff{}",
    ],
)
def test_text_that_is_not_json_is_refused(text: str) -> None:
    assert errors_of(parse_strict_json(text, max_bytes=65_536, max_depth=24))[0].startswith("it is not valid JSON")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"a": 1, "b": [{"c": 1, "d": 2, "c": 3}]}',
        '{"a": 1, "\\u0061": 2}',
        '{"a\\"": 1, "a\\"": 2}',
        '{"\\\\": 1, "\\\\": 2}',
    ],
)
def test_duplicate_keys_are_refused(text: str) -> None:
    assert errors_of(parse_strict_json(text, max_bytes=1000, max_depth=24)) == ("an object has the same key twice",)


def test_planted_key_count_accepts_duplicate_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader alone keeps the last of two keys in silence."""
    monkeypatch.setattr(module, "_count_keys", lambda text: 1)
    assert parse_strict_json('{"a": 1, "a": 2}', max_bytes=1000, max_depth=24) == Valid({"a": 2})


KEYS = st.text(alphabet='ab"\\:{}\u00e4 ', max_size=3)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(JSON_VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_every_json_value_is_parsed_unchanged(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parse_strict_json(text, max_bytes=10**6, max_depth=24) == Valid(value)


def pairs_strictly(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def no_constants(name: str) -> None:
    raise ValueError(name)


@given(st.text(alphabet='{}[]",:\\ a01', max_size=14))
def test_parser_agrees_with_a_strict_json_module(text: str) -> None:
    """Any text at all: kept exactly when Python's reader with duplicate keys refused takes it."""
    try:
        expected = json.loads(text, object_pairs_hook=pairs_strictly, parse_constant=no_constants)
    except ValueError:
        assert isinstance(parse_strict_json(text, max_bytes=1000, max_depth=24), Invalid)
    else:
        assert parse_strict_json(text, max_bytes=1000, max_depth=24) == Valid(expected)


@pytest.mark.parametrize("n", [10**20, -(10**400), 10**4000])
def test_integers_of_any_length_are_validated(n: int) -> None:
    assert validate_output(str(n), contract({"type": "integer"})) == Valid(n)
    assert errors_of(validate_output(str(n), contract({"type": "integer", "minimum": 0, "maximum": 5})))


def test_schema_validator_is_cached() -> None:
    assert schema_validator(b'{"type":"null"}') is schema_validator(b'{"type":"null"}')
    assert schema_validator(b"true").is_valid({"anything": 1})


@pytest.mark.parametrize("schema", [b'{"type":"nonsense"}', b"7", b"{"])
def test_schema_validator_refuses_an_invalid_schema(schema: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        schema_validator(schema)


def test_validator_messages_contain_no_values() -> None:
    (error,) = schema_validator(b'{"const":"sk-one"}').iter_errors("sk-two")
    assert "sk-two" not in error.message


def test_schema_pattern_is_matched_in_linear_time() -> None:
    """Linear: with backtracking this would not come back."""
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert isinstance(validate_output(json.dumps("a" * 30_000 + "!"), contract(schema)), Invalid)
