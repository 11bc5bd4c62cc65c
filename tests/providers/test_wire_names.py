"""Tool names and call ids in provider requests."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.messages import Assistant, ToolCall
from agentrun.providers.request_encoding import call_ids, derived_id, name_clashes, tools_by_wire_name, wire_name

from .exchange import NOW, SEARCH, request

REQUEST = request("openai", "gpt-4.1-mini", tools=(SEARCH, NOW))

FITS = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.parametrize(
    ("tool", "wire"),
    [
        ("search", "search"),
        ("docs.read", "docs__read"),
        ("a.b.c", "a__b__c"),
        ("a-b_C9", "a-b_C9"),
        ("x" * 64, "x" * 64),
        ("x" * 62 + ".", "x" * 62 + "__"),
    ],
)
def test_wire_name_of_a_tool(tool: str, wire: str) -> None:
    assert wire_name(tool) == wire


@pytest.mark.parametrize("tool", ["", "x" * 65, "x" * 63 + ".", "a b", "docs.read/page", "café", "\ud800"])
def test_names_that_do_not_fit_get_distinct_wire_names(tool: str) -> None:
    assert FITS.fullmatch(wire_name(tool))
    assert wire_name(tool) != wire_name(tool + "!")


@given(st.text(max_size=80))
def test_every_wire_name_is_allowed_by_the_providers(tool: str) -> None:
    assert FITS.fullmatch(wire_name(tool))
    assert wire_name(wire_name(tool)) == wire_name(tool)


def test_wire_names_are_mapped_back_to_tools() -> None:
    names = tools_by_wire_name(REQUEST)
    assert names == {"docs__search": "docs.search", "now": "now"}


def test_name_clashes_are_reported() -> None:
    assert name_clashes(["a", "a.b", "b"]) == []
    assert name_clashes(["a__b", "a", "a.b"]) == ["tools: a.b and a__b would both be called a__b; rename one"]
    assert name_clashes(["a.b", "A.b", "a.c"]) == ["tools: A.b and a.b differ only by case; rename one"]


def test_derived_id_has_no_dot() -> None:
    assert derived_id("c12.3") == "c12_3"


@pytest.mark.parametrize(
    ("calls", "ids"),
    [
        ([("call_a", "openai/gpt-4.1-mini")], ["call_a"]),
        ([("call_a", "anthropic/claude")], ["c1_0"]),
        ([("call_a", None)], ["c1_0"]),
        ([(None, "openai/gpt-4.1-mini")], ["c1_0"]),
        ([("", "openai/gpt-4.1-mini")], ["c1_0"]),
        ([("call_a", "openai/gpt-4.1-mini"), ("call_b", "openai/gpt-4.1-mini")], ["call_a", "call_b"]),
        ([("call_a", "openai/gpt-4.1-mini"), ("call_a", "openai/gpt-4.1-mini")], ["c1_0", "c1_1"]),
    ],
)
def test_wire_id_is_sent_only_to_its_route(calls: list[tuple[str | None, str | None]], ids: list[str]) -> None:
    """A wire id goes to the route that gave it, and only when it names one call."""
    parts = tuple(ToolCall(f"c1.{index}", "x", "{}", wire, route) for index, (wire, route) in enumerate(calls))
    found = call_ids([Assistant(parts)], REQUEST.route)
    assert found == {f"c1.{index}": id for index, id in enumerate(ids)}
