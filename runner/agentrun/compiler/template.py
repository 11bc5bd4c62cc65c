"""Text templates: Jinja's syntax, a listed subset of its language, a meter on everything.

Rule 1  Values are data. They are put into the text once and never read as template.
Rule 2  Jinja's parser gives the tree; this file walks it. No Python code is generated, so there is none to escape into,
        and no step that the meter does not see.
Rule 3  A value that is not there stops the render, unless it is asked for by `is defined` or `|default`.
Rule 4  A render is a function of source and values: no clock, locale, hash seed, file or environment.

`check` before `render`: what a template may not do is found by checking, with its place; what depends on values
(a missing field, too much work) stops the render with `TemplateStopped`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from jinja2 import nodes

from agentrun.compiler.template_fault import Fault, Faults
from agentrun.compiler.template_functions import FILTERS, TESTS, look_up
from agentrun.compiler.template_language import ARITHMETIC, NameCheck, Reading, read
from agentrun.compiler.template_meter import (
    MISSING,
    Bounds,
    Json,
    Meter,
    Missing,
    Stop,
    arithmetic,
    before,
    concat,
    contains,
    number,
    same,
    scalar,
    sequence,
    string,
    text,
    whole,
    wrong,
)

__all__ = ["Fault", "Json", "TemplateStopped", "check", "is_template", "referenced", "render"]


class TemplateStopped(Exception):
    """A render that could not be finished. Names the place and the reason, never a value."""

    def __init__(self, message: str, line: int, column: int = 1) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line
        self.column = column


def is_template(source: str) -> bool:
    """Whether a text has anything in it that a render would replace."""
    return "{{" in source or "{%" in source or "{#" in source


def check(source: str, names: Mapping[str, Collection[str] | None]) -> list[Fault]:
    """All mistakes in a template, in order.

    `names` has every variable it may see, with the fields known of it; None stands for any field.
    """
    reading = read(source)
    faults = reading.faults.copy()
    if reading.tree is not None and reading.walkable:
        NameCheck(names, faults).body(reading.tree.body, {})
    return faults.sorted()


def referenced(source: str) -> frozenset[str]:
    """The variables a template reads; those it sets itself are not among them. Empty when it cannot be read."""
    reading = read(source)
    if reading.tree is None or not reading.walkable:
        return frozenset()
    found = NameCheck({}, None)
    found.body(reading.tree.body, {})
    return frozenset(found.free)


def render(source: str, values: Mapping[str, Json]) -> str:
    """The text of a template with its values put in."""
    return _render(source, values, Bounds())
