"""The branches of a template, and which of them a render takes.

Rule 1  `{% if %}`, `{% elif %}` and `{% else %}` are one branch each. A missing else is a branch too.
Rule 2  A loop has two branches: with items and without.
Rule 3  `a if b else c` has two branches.
Rule 4  A render that stops early took the branches that it reached.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from jinja2 import nodes
from msgspec import Struct

from agentrun.compiler.template import RENDER_ERRORS, TemplateRenderError, compile_bundle, split_bundle
from agentrun.compiler.template_grammar import ParsedTemplate, read_template
from agentrun.compiler.template_meter import Bounds, Json
from agentrun.compiler.template_sandbox import new_environment

_MAX_TAG_LENGTH: Final = 60
_MAX_TAG_SEARCH: Final = 1_000
_ELSE: Final = re.compile(r"\{%[-+]?\s*(else)\b")
_UNSEEN: Final = re.compile(r"\s+|[^\x20-\x7e]")


class Branch(Struct, frozen=True, order=True):
    offset: int
    """The offset of the deciding word; for an else, of the else itself."""
    way: str
    """`true` or `false` for a condition; `some` or `none` for a loop, depending on its items."""
    line: int
    """Line and column, both from 1."""
    column: int
    text: str
    """The text for people: `{% if region == "eu" %}`, `{% for topic in topics %} with none`."""
    over: str = ""
    """For a loop over a variable without a filter: the variable."""
    file: str = ""
    """The included file that it is in, or an empty text for the template itself."""

    @property
    def mark(self) -> str:
        """A text that identifies the branch in its template."""
        return f"{self.file + '@' if self.file else ''}{self.offset}:{self.way}"


def find_branches(source: str) -> list[Branch]:
    """Return all branches of a template in order, then those of the files that follow it; none if it has mistakes."""
    return [
        branch
        for file, text in sorted(split_bundle(source).items())
        if (reading := read_template(text)).tree is not None
        for branch in sorted(branch for branch, _ in _ways(file, reading))
    ]


def branches_taken(source: str, values: Mapping[str, Json]) -> set[str]:
    """Return the marks of the branches that a render takes."""
    environment = new_environment()
    with suppress(*RENDER_ERRORS, TemplateRenderError):  # the real render reports it
        bundle = compile_bundle(source, marks=_node_marks)
        deque(environment.stream(bundle.templates, values, Bounds()), 0)
    return environment.marks


def _node_marks(file: str, reading: ParsedTemplate) -> dict[int, str]:
    """Return the marks of bodies. The mark of a condition is only its place: the render adds the way."""
    return {
        id(at): each.mark.rpartition(":")[0] if isinstance(at, nodes.Node) else each.mark
        for each, at in _ways(file, reading)
    }


def _ways(file: str, reading: ParsedTemplate) -> Iterator[tuple[Branch, list[nodes.Node] | nodes.Expr]]:
    """Yield each branch with its body, or with its condition."""
    assert reading.tree is not None

    def branch(offset: int, way: str, text: str, over: str = "") -> Branch:
        return Branch(offset, way, *reading.faults.place(offset), text, over, file)

    elifs = {id(each) for node in reading.tree.find_all(nodes.If) for each in node.elif_}
    elses = [found.start(1) for found in _ELSE.finditer(reading.source)]
    for node in reading.tree.find_all((nodes.If, nodes.For, nodes.CondExpr)):
        tag = _tag(reading.source, node.lineno)
        match node:
            case nodes.If():
                yield branch(node.lineno, "true", tag), node.body
                if id(node) not in elifs:
                    yield branch(*_else(elses, node, tag)), node.else_
            case nodes.For():
                over = node.iter.name if isinstance(node.iter, nodes.Name) and node.test is None else ""
                yield branch(node.lineno, "some", f"{tag} with items", over), node.body
                yield branch(node.lineno, "none", f"{tag} with none", over), node.else_
            case nodes.CondExpr():
                for way in ("true", "false"):
                    yield branch(node.lineno, way, f"{tag} {way}"), node.test


def _else(elses: list[int], node: nodes.If, tag: str) -> tuple[int, str, str]:
    """Return offset, way and text of an else. An empty else counts as a missing one. `elses`: the offsets of all."""
    if node.else_:
        before = bisect_left(elses, min(each.lineno for each in node.else_))
        return elses[before - 1] if before else node.lineno, "false", f"{{% else %}} of {tag}"
    return node.lineno, "false", f"{tag} false" if not node.elif_ else f"{tag} false, and every elif"


def _tag(source: str, offset: int) -> str:
    """Return the tag around an offset, on one line and shortened."""
    start = max(0, offset - _MAX_TAG_SEARCH)
    begin = max(source.rfind("{%", start, offset), source.rfind("{{", start, offset), start)
    end = source.find(source[begin : begin + 2].replace("{%", "%}").replace("{{", "}}"), offset)
    text = _UNSEEN.sub(" ", source[begin : end + 2 if end >= 0 else None])
    return text if len(text) <= _MAX_TAG_LENGTH else text[: _MAX_TAG_LENGTH - 1] + "…"
