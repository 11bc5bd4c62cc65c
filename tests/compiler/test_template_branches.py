"""The ways through a template: all of them are known, and a render says which it took."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.compiler.template_branches import branches_taken, find_branches

NESTED_TEMPLATE = """\
{% if a %}{% for x in xs %}{{ "one" if x == 1 else "more" }}{% else %}no x{% endfor %}
{%- elif (b) -%} b {% else %}{# else #}
{% if c %}c{% endif %}{% endif %}"""


def names(source: str, values: dict[str, Any]) -> list[str]:
    """The ways that a render takes, as people know them."""
    marks = branches_taken(source, values)
    return [branch.text for branch in find_branches(source) if branch.mark in marks]


@pytest.mark.parametrize(
    ("source", "values", "ways"),
    [
        ("{% if a %}x{% endif %}", {"a": 1}, ["{% if a %}"]),
        ("{% if a %}x{% endif %}", {"a": 0}, ["{% if a %} false"]),
        ("{% if a %}{% else %}{% endif %}", {"a": 0}, ["{% if a %} false"]),
        ("{% if a %}x{% else %}y{% endif %}", {"a": 0}, ["{% else %} of {% if a %}"]),
        ("{% if a %}x{% elif b %}y{% endif %}", {"a": 0, "b": 1}, ["{% elif b %}"]),
        ("{% if a %}x{% elif b %}y{% endif %}", {"a": 0, "b": 0}, ["{% if a %} false, and every elif"]),
        ("{% for x in xs %}{% endfor %}", {"xs": [1, 2]}, ["{% for x in xs %} with items"]),
        ("{% for x in xs %}{% endfor %}", {"xs": []}, ["{% for x in xs %} with none"]),
        ("{% for x in xs if x %}{% endfor %}", {"xs": [0]}, ["{% for x in xs if x %} with none"]),
        ("{{ 1 if a else 2 }}", {"a": 1}, ["{{ 1 if a else 2 }} true"]),
        ("{{ 1 if a }}", {"a": 0}, ["{{ 1 if a }} false"]),
        ("{{ a }} {# {% if a %} #} {% raw %}{% if a %}{% endraw %}", {"a": 1}, []),
        ("{% if a %}{{ gone }}{% endif %}{% if a %}never{% endif %}", {"a": 1}, ["{% if a %}"]),
        ("{% if a %", {"a": 1}, []),
    ],
)
def test_the_way_that_is_taken(source: str, values: dict[str, Any], ways: list[str]) -> None:
    assert names(source, values) == ways


def test_all_ways_of_a_nested_template_with_their_places() -> None:
    assert [(branch.line, branch.column, branch.way) for branch in find_branches(NESTED_TEMPLATE)] == [
        (1, 4, "true"),
        (1, 14, "none"),
        (1, 14, "some"),
        (1, 31, "false"),
        (1, 31, "true"),
        (2, 10, "true"),
        (2, 23, "false"),
        (3, 4, "false"),
        (3, 4, "true"),
    ]


def test_each_else_has_its_own_place() -> None:
    source = "{% if a %}x{% else %}y{% endif %}\n{% if b %}x{%- else -%}{{ z }}{% endif %}\n{# {% else %} #}"
    found = find_branches(source)
    assert [(each.line, each.column) for each in found if each.text.startswith("{% else %}")] == [(1, 15), (2, 16)]


@given(a=st.booleans(), b=st.booleans(), c=st.booleans(), xs=st.lists(st.integers(1, 2), max_size=3))
def test_the_ways_taken_are_those_that_the_values_say(a: bool, b: bool, c: bool, xs: list[int]) -> None:
    expected = set()
    if a:
        expected |= {"1:14:some" if xs else "1:14:none", *(f"1:31:{'true' if x == 1 else 'false'}" for x in xs)}
    elif not b:
        expected.add(f"3:4:{'true' if c else 'false'}")
    expected.add("1:4:true" if a else "2:10:true" if b else "2:23:false")
    marks = branches_taken(NESTED_TEMPLATE, {"a": a, "b": b, "c": c, "xs": list(xs)})
    found = {f"{each.line}:{each.column}:{each.way}" for each in find_branches(NESTED_TEMPLATE) if each.mark in marks}
    assert found == expected


def test_a_long_tag_is_cut_and_stands_on_one_line() -> None:
    (first, _) = find_branches("{% if a\n   and " + "b and " * 30 + "c %}x{% endif %}")
    assert "\n" not in first.text
    assert len(first.text) <= 66
