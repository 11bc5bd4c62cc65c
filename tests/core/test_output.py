"""Output contracts: what is kept, what is broken, and that nothing in between exists."""

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


def broken(checked: object) -> tuple[str, ...]:
    assert isinstance(checked, Invalid)
    return checked.errors


def test_kept() -> None:
    answer = ' {"urgent": false, "queue": "other"}\n'
    assert validate_output(answer, contract(TRIAGE)) == Valid({"urgent": False, "queue": "other"})


def test_broken() -> None:
    assert broken(validate_output('{"queue": 7, "extra": 1}', contract(TRIAGE))) == (
        '/queue: the value is not of type "string"',
        '/queue: the value is not one of "billing", "hardware" or "other"',
        'the answer: "urgent" is a required property',
        "the answer: Additional properties are not allowed ('extra' was unexpected)",
    )


def test_broken_before_the_schema_is_asked() -> None:
    assert broken(validate_output("{", contract({}))) == broken(parse_strict_json("{", max_bytes=9, max_depth=9))


def test_errors_name_places_and_not_values() -> None:
    schema = {"type": "array", "items": {"type": "object", "properties": {"a/b~c": {"type": "integer"}}}}
    (error,) = broken(validate_output('[{}, {"a/b~c": "sk-secret"}]', contract(schema)))
    assert error == '/1/a~1b~0c: the value is not of type "integer"'


def test_errors_are_bounded() -> None:
    many = broken(validate_output(json.dumps(["x"] * 50), contract({"type": "array", "items": {"type": "integer"}})))
    assert len(many) == MAX_OUTPUT_ERRORS + 1
    assert many[-1] == "there are more errors"
    ten = broken(validate_output(json.dumps(["x"] * 10), contract({"type": "array", "items": {"type": "integer"}})))
    assert len(ten) == MAX_OUTPUT_ERRORS
    (long,) = broken(validate_output("{}", contract({"type": "object", "required": ["k" * 1000]})))
    assert len(long) == 300


def test_size() -> None:
    assert parse_strict_json('"ää"', max_bytes=6, max_depth=24) == Valid("ää")
    assert broken(parse_strict_json('"äää"', max_bytes=7, max_depth=24)) == ("it has 8 bytes, but the limit is 7",)


@pytest.mark.parametrize(
    ("text", "depth"), [("1", 0), ("[]", 1), ("{}", 1), ('[{"a": [1]}, 2]', 3), ("[[1], [[2]]]", 3)]
)
def test_depth(text: str, depth: int) -> None:
    assert isinstance(parse_strict_json(text, max_bytes=100, max_depth=depth), Valid)
    if depth:
        assert "nested deeper" in broken(parse_strict_json(text, max_bytes=100, max_depth=depth - 1))[0]


def test_depth_of_a_bomb() -> None:
    bomb = "[" * 30_000 + "]" * 30_000
    assert "nested deeper" in broken(parse_strict_json(bomb, max_bytes=65_536, max_depth=24))[0]


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
def test_not_json(text: str) -> None:
    assert broken(parse_strict_json(text, max_bytes=65_536, max_depth=24))[0].startswith("it is not valid JSON")


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
def test_duplicate_keys(text: str) -> None:
    assert broken(parse_strict_json(text, max_bytes=1000, max_depth=24)) == ("an object has the same key twice",)


def test_duplicate_keys_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader alone keeps the last of two keys in silence."""
    monkeypatch.setattr(module, "_count_keys", lambda text: 1)
    assert parse_strict_json('{"a": 1, "a": 2}', max_bytes=1000, max_depth=24) == Valid({"a": 2})


KEYS = st.text(alphabet='ab"\\:{}\u00e4 ', max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_every_json_value_is_kept(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parse_strict_json(text, max_bytes=10**6, max_depth=24) == Valid(value)


def pairs_strictly(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def no_constants(name: str) -> None:
    raise ValueError(name)


@given(st.text(alphabet='{}[]",:\\ a01', max_size=14))
def test_agrees_with_a_strict_reader(text: str) -> None:
    """Any text at all: kept exactly when Python's reader with duplicate keys refused takes it."""
    try:
        expected = json.loads(text, object_pairs_hook=pairs_strictly, parse_constant=no_constants)
    except ValueError:
        assert isinstance(parse_strict_json(text, max_bytes=1000, max_depth=24), Invalid)
    else:
        assert parse_strict_json(text, max_bytes=1000, max_depth=24) == Valid(expected)


@pytest.mark.parametrize("n", [10**20, -(10**400), 10**4000])
def test_numbers_of_any_length(n: int) -> None:
    assert validate_output(str(n), contract({"type": "integer"})) == Valid(n)
    assert broken(validate_output(str(n), contract({"type": "integer", "minimum": 0, "maximum": 5})))


def test_a_judge_is_made_once() -> None:
    assert schema_validator(b'{"type":"null"}') is schema_validator(b'{"type":"null"}')
    assert schema_validator(b"true").is_valid({"anything": 1})


@pytest.mark.parametrize("schema", [b'{"type":"nonsense"}', b"7", b"{"])
def test_no_judge_of_what_is_no_schema(schema: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        schema_validator(schema)


def test_no_values_in_messages() -> None:
    (error,) = schema_validator(b'{"const":"sk-one"}').iter_errors("sk-two")
    assert "sk-two" not in error.message


def test_hostile_pattern() -> None:
    """Linear: with backtracking this would not come back."""
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert isinstance(validate_output(json.dumps("a" * 30_000 + "!"), contract(schema)), Invalid)
