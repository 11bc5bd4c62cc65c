"""Text templates: Jinja's syntax, a listed part of its language, a meter on everything.

Rule 1  Values are data: they are put into the text once and never read as template.
Rule 2  Jinja only reads the syntax; we walk the tree. No Python code is made, so there is none to escape into
        and no work that the meter does not see.
Rule 3  A value that is not there stops the render, unless it is asked for by `is defined` or `|default`.
Rule 4  A render is a function of source and values: no clock, locale, hash seed, file or environment.

What a template may not do is found by `check_template`, with its place. What depends on values (a missing field, too
much work) stops `render_template` with `TemplateRenderError`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping

from jinja2 import nodes
from msgspec import Struct

from agentrun.compiler.template_grammar import NameCheck, read_template
from agentrun.compiler.template_meter import Bounds, Json, RenderStopped
from agentrun.compiler.template_parser import TemplateProblem, is_template
from agentrun.compiler.template_renderer import Renderer

__all__ = [
    "Json",
    "RenderedLine",
    "TemplateProblem",
    "TemplateRenderError",
    "check_template",
    "is_template",
    "referenced_variables",
    "render_template",
    "render_template_lines",
]


_BOUNDS = Bounds()
# The grammar keeps a template far from Python's limit; this is for a caller that is deep in calls of its own.
_TOO_DEEP = "the template is nested too deeply"


class TemplateRenderError(Exception):
    """A render that could not be finished. Tells the place and the reason, never a value."""

    def __init__(self, message: str, line: int, column: int = 1) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line
        self.column = column


def check_template(source: str, names: Mapping[str, Collection[str] | None]) -> list[TemplateProblem]:
    """All mistakes in a template, in order.

    `names` has every variable the template may see and the fields known of it; None stands for any field.
    """
    try:
        reading = read_template(source)
        faults = reading.faults.copy()
        if reading.tree is not None:
            NameCheck(names, faults).body(reading.tree.body, {})
    except RecursionError:
        return [TemplateProblem(1, 1, 1, "template_syntax", _TOO_DEEP, None)]
    return faults.sorted()


def referenced_variables(source: str) -> frozenset[str]:
    """The variables a template reads, without those it sets itself. None of them when it cannot be read."""
    names = NameCheck({}, None)
    try:
        reading = read_template(source)
        if reading.tree is not None:
            names.body(reading.tree.body, {})
    except RecursionError:
        return frozenset()
    return frozenset(names.free_names)


def render_template(source: str, values: Mapping[str, Json]) -> str:
    """The text of a template with its values put in."""
    return _render_within(source, values, _BOUNDS)


def render_template_lines(source: str, values: Mapping[str, Json]) -> list[RenderedLine]:
    """The lines of that text, each with the lines of the template that it came from."""
    renderer = Renderer(values, _BOUNDS)
    return trace_lines(_run(source, renderer)[0], renderer.pieces())


def _render_within(source: str, values: Mapping[str, Json], bounds: Bounds) -> str:
    return _run(source, Renderer(values, bounds))[1]


def _run(source: str, renderer: Renderer) -> tuple[str, str]:
    """The template as it was read, and its text."""
    try:
        reading = read_template(source)
    except RecursionError:
        raise TemplateRenderError(_TOO_DEEP, 1) from None
    if reading.tree is None or reading.faults:
        fault = reading.faults.sorted()[0]
        raise TemplateRenderError(fault.message, fault.line, fault.column)
    try:
        return reading.source, renderer.text(reading.tree)
    except RenderStopped as stop:
        raise TemplateRenderError(str(stop), *reading.faults.place(renderer.at)) from None
    except RecursionError:
        raise TemplateRenderError(_TOO_DEEP, *reading.faults.place(renderer.at)) from None


# --- behind `agentrun.compiler.template`: source → tree → grammar and names → renderer, under a meter ---------


# --- where each line of a rendered text came from -------------------------------------------------------------


class RenderedLine(Struct, frozen=True):
    """One line of a rendered text."""

    text: str
    parts: tuple[tuple[int, int], ...]
    """Where something else begins: column, from 0, and the line of the template, from 1. The first column is 0."""

    def origin(self, column: int = 0) -> int:
        """The template's line that gave the character at a column; past the end, that gave the last one."""
        return self.parts[max(0, bisect_right(self.parts, column, key=lambda part: part[0]) - 1)][1]


def trace_lines(source: str, pieces: Iterable[tuple[str, nodes.Expr]]) -> list[RenderedLine]:
    """The lines of a text that was rendered in these pieces. `source` has `\\n` for every end of line."""
    lines: list[RenderedLine] = []
    texts: list[str] = []
    parts: list[tuple[int, int]] = []
    width, end = 0, 1
    for text, at, ended in _split_pieces(source, pieces):
        if text or (ended and not parts):
            if not parts or parts[-1][1] != at:
                parts.append((width, at))
            texts.append(text)
            width += len(text)
        if ended:
            lines.append(RenderedLine("".join(texts), tuple(parts)))
            texts, parts, width = [], [], 0
        end = at
    return [*lines, RenderedLine("".join(texts), tuple(parts) or ((0, end),))]


def _split_pieces(source: str, pieces: Iterable[tuple[str, nodes.Expr]]) -> Iterator[tuple[str, int, bool]]:
    """Pieces within a line: the text, the template's line, and whether a line ends with it."""
    ends = [offset for offset, char in enumerate(source) if char == "\n"]
    places: dict[nodes.Expr, int] = {}
    for text, node in pieces:
        if node not in places:
            places[node] = bisect_left(ends, _start_offset(node)) + 1
        moves = isinstance(node, nodes.TemplateData)
        cut = text.split("\n")
        for index, part in enumerate(cut):
            yield part, places[node] + (index if moves else 0), index < len(cut) - 1


def _start_offset(node: nodes.Node) -> int:
    """The offset of an expression's first word. Jinja places `a|b` at `b`."""
    first = node.lineno
    pending: list[nodes.Node] = [node]
    while pending:
        one = pending.pop()
        if one.lineno is not None:  # a comparison's right side has no place of its own, what stands in it has
            first = min(first, one.lineno)
        pending.extend(one.iter_child_nodes())
    return first
