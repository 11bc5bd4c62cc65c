"""One line for human eyes, and how foreign text becomes part of one.

Rule 1  What a model, a tool or a person wrote is data: secrets are masked, and what a terminal would act on, or not
        show, is made visible. That is done first and on the whole text, and only then is it cut: half a key is masked
        by nobody.
Rule 2  A line is short whatever is put into it, and has no line feed.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from agentrun.redact import masked
from agentrun.report.amounts import magnitude
from agentrun.spec.problems import visible
from agentrun.spec.text import MASKED_LENGTH, SHORT, cut, plural, short

Tone: TypeAlias = Literal["plain", "dim", "good", "warn", "bad"]

LONGEST = 400
"""Characters of a line at most."""
LINES = 40
"""Lines of a text that are shown."""


class Line(Struct, frozen=True):
    text: str
    """Masked and visible, without line feeds."""
    tone: Tone = "plain"
    indent: int = 0
    """How deep it stands."""


def told(text: str, tone: Tone = "plain", indent: int = 0) -> Line:
    """A line. What is foreign in it has gone through `short`; what was forgotten is made visible here."""
    return Line(cut(text, LONGEST), tone, indent)


def paragraph(text: str, tone: Tone = "plain", indent: int = 0) -> tuple[Line, ...]:
    """A text of any length, line by line; what is too much of it is only counted."""
    text = text.strip("\n")
    if not text.strip():
        return ()
    shown = masked(text[:MASKED_LENGTH]).replace("\r\n", "\n").split("\n")
    lines = tuple(told(line, tone, indent) for line in shown[:LINES])
    left_out = text.count("\n") + 1 - LINES
    return lines if left_out <= 0 else (*lines, told(f"… and {plural(left_out, 'more line')}", "dim", indent))


def gist(text: str) -> str:
    """The first line that says something, and the size of the whole when that is not all."""
    size = f"{magnitude(len(text.encode('utf-8', 'replace')))}B"
    text = text.strip()
    if not text:
        return "nothing"
    first = masked(text[:MASKED_LENGTH]).partition("\n")[0].rstrip("\r")
    if first == text and len(first) <= SHORT:
        return visible(first)
    lines = text.count("\n") + 1
    return f"{short(first)} ({plural(lines, 'line')}, {size})" if lines > 1 else f"{short(first)} ({size})"
