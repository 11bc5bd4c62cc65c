"""Text templates: Jinja's syntax with a limited set of features and a limit on all work.

Rule 1  Values are data. They are inserted into the text once and never interpreted as a template.
Rule 2  Jinja only parses the syntax, and agentrun walks the tree. No Python code is generated, so a template cannot run
        code or do unlimited work.
Rule 3  A missing value stops the render, unless the template tests it with `is defined` or `|default`.
Rule 4  The result depends only on source and values, not on clock, locale, hash seed, files or environment.

`check_template` finds mistakes and their places. Mistakes that depend on values (a missing field, too much work) stop
`render_template` with `TemplateRenderError`.
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
    "render_template",
    "render_template_lines",
]


_BOUNDS = Bounds()
# The grammar limits the depth; this is for callers that are themselves deep in the call stack.
_TOO_DEEP = "the template is nested too deeply"


class TemplateRenderError(Exception):
    """A render that failed, with the place and the reason but never a value."""

    def __init__(self, message: str, line: int, column: int = 1) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line
        self.column = column


def check_template(source: str, names: Mapping[str, Collection[str] | None]) -> list[TemplateProblem]:
    """Return all mistakes in a template, in order.

    `names`: the variables that the template can use, with their known fields (None: any field).
    """
    try:
        reading = read_template(source)
        faults = reading.faults.copy()
        if reading.tree is not None:
            NameCheck(names, faults).body(reading.tree.body, {})
    except RecursionError:
        return [TemplateProblem(1, 1, 1, "template_syntax", _TOO_DEEP, None)]
    return faults.sorted()


def render_template(source: str, values: Mapping[str, Json]) -> str:
    """Render a template with its values."""
    return _render_within(source, values, _BOUNDS)


def render_template_lines(source: str, values: Mapping[str, Json]) -> list[RenderedLine]:
    """Render a template and return each line with the lines of the template that it came from."""
    renderer = Renderer(values, _BOUNDS)
    return trace_lines(_run(source, renderer)[0], renderer.pieces())


def _render_within(source: str, values: Mapping[str, Json], bounds: Bounds) -> str:
    return _run(source, Renderer(values, bounds))[1]


def _run(source: str, renderer: Renderer) -> tuple[str, str]:
    """Return the template as it was read, and its rendered text."""
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


class RenderedLine(Struct, frozen=True):
    """One line of a rendered text."""

    text: str
    parts: tuple[tuple[int, int], ...]
    """For each part: its first column, from 0, and its line in the template, from 1."""

    def origin(self, column: int = 0) -> int:
        """Return the line of the template for a column; past the end, the line of the last part."""
        return self.parts[max(0, bisect_right(self.parts, column, key=lambda part: part[0]) - 1)][1]


def trace_lines(source: str, pieces: Iterable[tuple[str, nodes.Expr]]) -> list[RenderedLine]:
    """Return the lines of a text that was rendered in these pieces. `source` has `\\n` line ends."""
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
    """Split pieces at line ends: the text, the line of the template, and whether a line ends here."""
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
    """Return the offset of the first word of an expression. Jinja places `a|b` at `b`."""
    first = node.lineno
    pending: list[nodes.Node] = [node]
    while pending:
        one = pending.pop()
        if one.lineno is not None:  # the right side of a comparison has no place, but its parts have
            first = min(first, one.lineno)
        pending.extend(one.iter_child_nodes())
    return first
