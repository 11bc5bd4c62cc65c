"""Plain YAML scalars follow the YAML 1.2 core schema, and numbers that are not exact are refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.spec.yaml_parser import MAX_EXACT_INTEGER, BadNumber, parse_plain_scalar

TEXTS = (
    *("no", "No", "NO", "yes", "on", "off", "y", "n", "nULL", "tRUE", "none", "None"),
    *(
        "1:30",
        "1:30:45",
        "1_000",
        "2025-01-01",
        "2025-01-01T10:00:00Z",
        "0b101",
        "-0x1",
        "+0o7",
        "0o8",
        "0xg",
        "0o",
        "0x",
    ),
    *(
        "1e",
        "e5",
        ".",
        "-",
        "+",
        "..",
        "1.2.3",
        "--1",
        "1 2",
        "-.",
        "=",
        "<<",
        ".infinity",
        "inf",
        "nan",
        "NaN",
        "1,5",
    ),
    *("5k", "2m", "٣", "1e5x", "0.1.", "1__0", "+-1", "\uff11"),
)


@pytest.mark.parametrize("text", TEXTS)
def test_scalar_is_text(text: str) -> None:
    assert parse_plain_scalar(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, None) for text in ("", "~", "null", "Null", "NULL")),
        *((text, True) for text in ("true", "True", "TRUE")),
        *((text, False) for text in ("false", "False", "FALSE")),
        *(
            ("0", 0),
            ("-0", 0),
            ("+12", 12),
            ("-7", -7),
            ("0o17", 15),
            ("0xff", 255),
            ("0xFF", 255),
            ("0o0", 0),
        ),
        *(
            ("1.5", 1.5),
            ("1.", 1.0),
            (".5", 0.5),
            ("-.5", -0.5),
            ("1e3", 1000.0),
            ("+1.5E-3", 0.0015),
            ("0.0", 0.0),
        ),
        *(("0e5", 0.0), ("00.5", 0.5), ("1e-300", 1e-300), ("0x0000000000000000000000000000001", 1)),
    ],
)
def test_scalar_is_null_boolean_or_number(text: str, value: object) -> None:
    assert parse_plain_scalar(text) == value
    assert type(parse_plain_scalar(text)) is type(value)


@pytest.mark.parametrize("number", [MAX_EXACT_INTEGER, -MAX_EXACT_INTEGER])
def test_largest_exact_integer(number: int) -> None:
    beyond = number + int(math.copysign(1, number))
    assert parse_plain_scalar(str(number)) == number
    with pytest.raises(BadNumber, match="would not be exact"):
        parse_plain_scalar(str(beyond))


def test_largest_exact_integer_in_other_bases() -> None:
    assert parse_plain_scalar(hex(MAX_EXACT_INTEGER)) == MAX_EXACT_INTEGER
    assert parse_plain_scalar(oct(MAX_EXACT_INTEGER)) == MAX_EXACT_INTEGER
    for text in (hex(MAX_EXACT_INTEGER + 1), oct(MAX_EXACT_INTEGER + 1)):
        with pytest.raises(BadNumber, match="would not be exact"):
            parse_plain_scalar(text)


@pytest.mark.parametrize(
    "text", ["1e308", "1.7976931348623157e308", "5e-324", "0." + "0" * 300 + "1", "1." + "0" * 398]
)
def test_representable_floats_are_accepted(text: str) -> None:
    assert parse_plain_scalar(text) == float(text)


@pytest.mark.parametrize(
    "text",
    [
        ".inf",
        "-.inf",
        "+.Inf",
        ".INF",
        ".nan",
        ".NaN",
        ".NAN",
        "1e999",
        "-1e999",
        "1e-999",
        "1." + "0" * 399,
        "1" * 5000,
        "-" + "1" * 5000,
        "0x" + "f" * 5000,
        "0o" + "7" * 5000,
        "1" * 5000 + ".5",
        "1e" + "9" * 5000,
    ],
)
def test_inexact_number_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(BadNumber) as refused:
        parse_plain_scalar(text)
    assert "quote it" in str(refused.value.hint)
    assert len(refused.value.message) < 150


@pytest.mark.parametrize(
    ("text", "fix"), [("012", "12"), ("-012", "-12"), ("00", "0"), ("+08", "+8"), ("0123456789", "123456789")]
)
def test_leading_zero_is_refused_with_a_fix(text: str, fix: str) -> None:
    with pytest.raises(BadNumber) as refused:
        parse_plain_scalar(text)
    assert refused.value.hint == f"quote it if it is text, or write {fix}"


@given(st.integers(-MAX_EXACT_INTEGER, MAX_EXACT_INTEGER))
def test_every_exact_integer_is_parsed(number: int) -> None:
    assert parse_plain_scalar(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_parsed(number: float) -> None:
    assert parse_plain_scalar(repr(number)) == number


@given(st.text(min_size=1))
def test_any_text_is_text_or_an_ascii_value(text: str) -> None:
    try:
        value = parse_plain_scalar(text)
    except BadNumber:
        return
    assert value == text if isinstance(value, str) else text.isascii()
