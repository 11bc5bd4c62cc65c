"""`result_text`: results of Python tools as text, and values that are refused."""

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentrun.secret import Secret
from agentrun.tools.call_results import MAX_RESULT_BYTES, NotSerializable, result_text


@dataclass
class Order:
    id: str
    total: Decimal


class Parcel(msgspec.Struct):
    number: str
    seen: datetime


class Customer(BaseModel):
    name: str
    born: date


class Point(NamedTuple):
    x: int
    y: int


class State(StrEnum):
    LATE = "late"


class Number(Enum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("It is late.\n", "It is late.\n"),
        ("", ""),
        ('{"a": 1}', '{"a": 1}'),
        (State.LATE, "late"),
        (None, ""),
        (True, "true"),
        (7, "7"),
        (2**70, "1180591620717411303424"),
        (0.5, "0.5"),
        ([], "[]"),
        ({"b": [1, None], "a": "ü"}, '{"a":"ü","b":[1,null]}'),
        ({1: "one"}, '{"1":"one"}'),
        ((1, "a"), '[1,"a"]'),
        ({"b", "a", "c"}, '["a","b","c"]'),
        (Order("1042", Decimal("39.90")), '{"id":"1042","total":"39.90"}'),
        (Parcel("PX-1", datetime(2026, 1, 31, tzinfo=UTC)), '{"number":"PX-1","seen":"2026-01-31T00:00:00Z"}'),
        (Customer(name="Ada", born=date(1990, 1, 2)), '{"born":"1990-01-02","name":"Ada"}'),
        ([Customer(name="Ada", born=date(1990, 1, 2))], '[{"born":"1990-01-02","name":"Ada"}]'),
        (Point(1, 2), "[1,2]"),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Number.ONE, "1"),
        ({"password": Secret("abc")}, '{"password":"***"}'),
    ],
)
def test_value_becomes_text_or_json(value: object, text: str) -> None:
    assert result_text(value) == text
    assert type(result_text(value)) is str


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append({"again": value})
    return value


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


class EndlessDump:
    """Dumps itself for ever."""

    def model_dump(self) -> object:
        return EndlessDump()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "not JSON compliant"),
        ({"total": [math.inf]}, "not JSON compliant"),
        ({"total": Order("1", -math.inf)}, "not JSON compliant"),  # type: ignore[arg-type]  # as real data is
        ("\ud800", "half of a surrogate pair"),
        ({"a": ["\udfff"]}, "half of a surrogate pair"),
        ({"\ud800": 1}, "half of a surrogate pair"),
        (cyclic(), "contains itself"),
        (deep(), "contains itself or is nested too deeply"),
        (EndlessDump(), "contains itself"),
        (object(), "type object"),
        ({"a": iter([1])}, "type list_iterator"),
        (lambda: 1, "type function"),
        (Customer, "type ModelMetaclass"),
        ({object(): 1}, "type object"),
        ([10**5000], "digits"),
    ],
)
def test_unserializable_value_is_refused_with_a_reason(value: object, why: str) -> None:
    with pytest.raises(NotSerializable, match=why):
        result_text(value)


def test_result_over_the_size_limit_is_refused() -> None:
    assert len(result_text("x" * MAX_RESULT_BYTES)) == MAX_RESULT_BYTES
    assert len(result_text(["x" * (MAX_RESULT_BYTES - 4)])) == MAX_RESULT_BYTES
    for value in ("x" * (MAX_RESULT_BYTES + 1), "ü" * (MAX_RESULT_BYTES // 2 + 1), ["x" * (MAX_RESULT_BYTES - 3)]):
        with pytest.raises(NotSerializable, match="limit is 16,777,216"):
            result_text(value)


PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN_VALUES.filter(lambda value: not isinstance(value, str | None)))
def test_plain_data_survives_as_json(value: object) -> None:
    assert json.loads(result_text(value)) == value


ANY_VALUES = st.recursive(
    st.none() | st.floats() | st.text(st.characters()) | st.binary() | st.complex_numbers() | st.just(object()),
    lambda inner: st.lists(inner) | st.dictionaries(st.floats() | st.text(), inner) | st.tuples(inner, inner),
)


@given(ANY_VALUES)
def test_any_value_becomes_valid_text_or_is_refused(value: object) -> None:
    """What JSON cannot hold is refused with a reason, and nothing else ever comes out."""
    try:
        text = result_text(value)
    except NotSerializable:
        return
    assert text.encode().decode() == text
    if not isinstance(value, str | None):
        json.loads(text, parse_constant=pytest.fail)
