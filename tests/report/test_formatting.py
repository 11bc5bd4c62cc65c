"""Formatting of counts, dollars and durations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.report.formatting import format_count, format_dollars, format_duration


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1249, "1.2k"), (50_000, "50k"), (999_999, "999.9k"), (1_500_000, "1.5M")],
)
def test_count_with_magnitude(count: int, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("micro", "text"),
    [(0, "$0.00"), (1, "$0.000001"), (3100, "$0.0031"), (250_000, "$0.25"), (1_200_000, "$1.20"), (10**9, "$1000.00")],
)
def test_dollars_of_micro_dollars(micro: int, text: str) -> None:
    assert format_dollars(micro) == text


@given(st.integers(0, 2**53))
def test_dollars_are_exact(micro: int) -> None:
    whole, _, places = format_dollars(micro).removeprefix("$").partition(".")
    assert int(whole) * 1_000_000 + int(places.ljust(6, "0")) == micro


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0s"),
        (812, "0.8s"),
        (2100, "2.1s"),
        (59_999, "59.9s"),
        (60_000, "1m"),
        (65_000, "1m 5s"),
        (3_600_000, "1h"),
        (7_380_000, "2h 3m"),
    ],
)
def test_duration_with_units(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text
