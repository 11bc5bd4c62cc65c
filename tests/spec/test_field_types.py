"""Durations, counts, sizes and amounts of the spec, and the integers they become in a package."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.compiler.compile import compile
from agentrun.spec.v1.field_types import micro_dollars, milliseconds, parse_count, parse_size

from ..documents import Document
from ..full_spec import project
from ..locks import lock_of

LARGEST = 2**53 - 1
"""The largest whole number that a package can hold exactly."""


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1ms", 1),
        ("500ms", 500),
        ("1s", 1000),
        ("30s", 30_000),
        ("1m", 60_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        ("90s", 90_000),
        ("100s", 100_000),
        ("9999999d", 863_999_913_600_000),
    ],
)
def test_duration_in_milliseconds(text: str, number: int) -> None:
    assert milliseconds(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (1, 1),
        (1_000_000_000, 1_000_000_000),
        ("1k", 1000),
        ("50k", 50_000),
        ("1.5M", 1_500_000),
        ("1.005k", 1005),
        ("1.001k", 1001),
        ("4.35k", 4350),
        ("999.999M", 999_999_000),
        ("999999.999k", 999_999_999),
        ("1000M", 1_000_000_000),
    ],
)
def test_count_with_unit(text: int | str, number: int) -> None:
    assert parse_count(text) == number
    assert type(parse_count(text)) is int


@pytest.mark.parametrize(
    ("text", "number"),
    [(1, 1), (4096, 4096), ("1KiB", 1024), ("50KiB", 51_200), ("1MiB", 1_048_576), ("999MiB", 1_047_527_424)],
)
def test_size_with_unit(text: int | str, number: int) -> None:
    assert parse_size(text) == number


def test_units_do_not_exceed_the_limit_of_plain_numbers() -> None:
    """A limit that a unit can step over is no limit."""
    assert max(parse_count("1000M"), parse_count("999999.999k"), parse_count("999.999M")) <= 1_000_000_000
    assert max(parse_size("999MiB"), parse_size("999999KiB")) <= 2**30
    assert milliseconds("9999999d") <= LARGEST


@pytest.mark.parametrize(
    ("dollars", "number"),
    [
        (0, 0),
        (1, 1_000_000),
        (0.25, 250_000),
        (0.1, 100_000),
        (0.000001, 1),
        (0.0000001, 1),
        (0.1234567, 123_457),
        (1e-12, 1),
        (1.1, 1_100_000),
        (2.675, 2_675_000),
        (1_000_000, 1_000_000_000_000),
        (0.30000000000000004, 300_001),
    ],
)
def test_dollars_in_micro_dollars(dollars: float, number: int) -> None:
    assert micro_dollars(dollars) == number


@given(st.floats(0, 1_000_000))
def test_micro_dollars_are_rounded_up(dollars: float) -> None:
    """And overstated by less than a micro-dollar."""
    exact = Fraction(repr(dollars)) * 1_000_000
    assert exact <= micro_dollars(dollars) < exact + 1


@given(st.integers(0, 10**12))
def test_up_to_six_decimals_are_exact(number: int) -> None:
    """Whatever is written with up to six decimals is that."""
    assert micro_dollars(float(Decimal(number) / 1_000_000)) == number


@given(st.integers(1, 9_999_999), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_durations_scale_with_their_unit(number: int, unit: str) -> None:
    assert milliseconds(f"{number}{unit}") == number * milliseconds(f"1{unit}") <= LARGEST


# --- what the compiler makes of what is left out ------------------------------------------------------------

SMALL: Document = {
    "agentrun": "1",
    "name": "small",
    "model": {"provider": "openai", "name": "m"},
    "instructions": "x",
    "tools": {
        "python": {"kind": "python", "call": "shop.refunds:refund"},
        "http": {"kind": "http", "url": "https://a.example:8443/x"},
        "head": {"kind": "http", "url": "https://a.example", "method": "HEAD"},
        "post": {"kind": "http", "url": "https://${HOST}/x", "method": "POST"},
        "shell": {"kind": "shell", "argv": ["x"]},
        "mcp": {"kind": "mcp", "command": ["x"]},
        "agent": {"kind": "agent", "spec": "agents/billing.yaml"},
        "given": {"kind": "shell", "argv": ["x"], "effect": "read", "timeout": "1s"},
    },
    "policy": {"default": "ask"},
}

IN_PACKAGE: dict[str, Any] = {
    "budgets.turns": 20,
    "budgets.tokens": None,
    "budgets.cost": None,
    "budgets.time": None,
    "budgets.tool_calls": None,
    "limits.stream_gap": 60_000,
    "limits.call_time": 600_000,
    "limits.output_bytes": 51_200,
    "retry.first_delay": 1000,
    "retry.max_delay": 15_000,
    "retry.max_wait": 60_000,
    "policy.approval_timeout": 120_000,
    "output.max_bytes": 65_536,
    "guards.repeated_call": 3,
    "guards.cycle": 3,
    "guards.repeated_batch": 2,
    "guards.batch_scope": "consecutive",
    "guards.stagnation": 5,
    "guards.empty_outcome": None,
    # SEMANTICS 4: read for http GET and HEAD; otherwise never run twice. Only reads run together.
    "tools.http.effect": "read",
    "tools.http.parallel": True,
    "tools.head.effect": "read",
    "tools.post.effect": "at_most_once",
    "tools.post.parallel": False,
    "tools.python.effect": "at_most_once",
    "tools.python.parallel": False,
    "tools.shell.effect": "at_most_once",
    "tools.mcp.effect": "at_most_once",
    "tools.given.effect": "read",
    "tools.given.parallel": True,
    "tools.shell.timeout": 30_000,
    "tools.given.timeout": 1000,
    "tools.shell.exits": (0,),
    "tools.shell.grace": 2000,
    "tools.mcp.start_timeout": 10_000,
    "tools.http.max_bytes": 1_048_576,
    # Without `hosts` a call reaches the host of its address and no other; one from the environment is known later.
    "tools.http.hosts": ("a.example:8443",),
    "tools.post.hosts": (),
    # Descriptions that are left out come from the function and from the sub-agent.
    "tools.python.description": "Gives the money back.",
    "tools.agent.description": "Answers questions about bills.",
    "tools.shell.description": "",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Any:
    lock = lock_of({"mcp": ["find"]})
    return compile(project(tmp_path_factory.mktemp("small"), SMALL, **{"specs/rich.lock": lock})).agent


@pytest.mark.parametrize("key", IN_PACKAGE)
def test_defaults_in_the_package(key: str, small: Any) -> None:
    value = small
    for step in key.split("."):
        value = value[step] if isinstance(value, dict) else getattr(value, step)
    assert value == IN_PACKAGE[key]


def test_tool_arguments_are_closed_by_default(small: Any, tmp_path: Path) -> None:
    """What is not declared is refused; a sub-agent is asked for what it needs, and for the message."""
    assert small.tools["shell"].args == {"type": "object", "properties": {}, "additionalProperties": False}
    assert small.tools["python"].args["required"] == ["order", "amount"]
    asked = small.tools["agent"].args
    assert (asked["required"], list(asked["properties"])) == (["account", "message"], ["account", "message"])
    assert asked["additionalProperties"] is False
