"""Text templates: Jinja's syntax, a listed part of its language, a meter on everything.

Rule 1  Values are data: they are put into the text once and never read as template.
Rule 2  Jinja only reads the syntax; we walk the tree. No Python code is made, so there is none to escape into
        and no work that the meter does not see.
Rule 3  A value that is not there stops the render, unless it is asked for by `is defined` or `|default`.
Rule 4  A render is a function of source and values: no clock, locale, hash seed, file or environment.

What a template may not do is found by `check`, with its place. What depends on values (a missing field, too
much work) stops `render` with `TemplateStopped`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agentrun.compiler.template_language.fault import Fault
from agentrun.compiler.template_language.grammar import read
from agentrun.compiler.template_language.meter import Bounds, Json, Stop
from agentrun.compiler.template_language.names import Names
from agentrun.compiler.template_language.origin import Line, lines_of
from agentrun.compiler.template_language.renderer import Renderer
from agentrun.compiler.template_language.source import is_template

__all__ = [
    "Fault",
    "Json",
    "Line",
    "TemplateStopped",
    "check",
    "is_template",
    "referenced",
    "render",
    "rendered_lines",
]

_BOUNDS = Bounds()
# The grammar keeps a template far from Python's limit; this is for a caller that is deep in calls of its own.
_TOO_DEEP = "the template is nested too deeply"


class TemplateStopped(Exception):
    """A render that could not be finished. Tells the place and the reason, never a value."""

    def __init__(self, message: str, line: int, column: int = 1) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line
        self.column = column


def check(source: str, names: Mapping[str, Collection[str] | None]) -> list[Fault]:
    """All mistakes in a template, in order.

    `names` has every variable the template may see and the fields known of it; None stands for any field.
    """
    try:
        reading = read(source)
        faults = reading.faults.copy()
        if reading.tree is not None:
            Names(names, faults).body(reading.tree.body, {})
    except RecursionError:
        return [Fault(1, 1, 1, "template_syntax", _TOO_DEEP, None)]
    return faults.sorted()


def referenced(source: str) -> frozenset[str]:
    """The variables a template reads, without those it sets itself. None of them when it cannot be read."""
    names = Names({}, None)
    try:
        reading = read(source)
        if reading.tree is not None:
            names.body(reading.tree.body, {})
    except RecursionError:
        return frozenset()
    return frozenset(names.free)


def render(source: str, values: Mapping[str, Json]) -> str:
    """The text of a template with its values put in."""
    return _render(source, values, _BOUNDS)


def rendered_lines(source: str, values: Mapping[str, Json]) -> list[Line]:
    """The lines of that text, each with the lines of the template that it came from."""
    renderer = Renderer(values, _BOUNDS)
    return lines_of(_run(source, renderer)[0], renderer.pieces())


def _render(source: str, values: Mapping[str, Json], bounds: Bounds) -> str:
    return _run(source, Renderer(values, bounds))[1]


def _run(source: str, renderer: Renderer) -> tuple[str, str]:
    """The template as it was read, and its text."""
    try:
        reading = read(source)
    except RecursionError:
        raise TemplateStopped(_TOO_DEEP, 1) from None
    if reading.tree is None or reading.faults:
        fault = reading.faults.sorted()[0]
        raise TemplateStopped(fault.message, fault.line, fault.column)
    try:
        return reading.source, renderer.text(reading.tree)
    except Stop as stop:
        raise TemplateStopped(str(stop), *reading.faults.place(renderer.at)) from None
    except RecursionError:
        raise TemplateStopped(_TOO_DEEP, *reading.faults.place(renderer.at)) from None
