"""Format amounts and lines of text for people.

Rule 1  Amounts are computed in whole numbers and never rounded up.
Rule 2  Untrusted text is masked, escaped and cut before it becomes part of a line.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from agentrun.core.package import BUDGET_KINDS
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible
from agentrun.spec.safe_text import MASKED_LENGTH, SHORT_TEXT_LENGTH, plural, short_text, truncate_text

_MILLION = 1_000_000
Tone: TypeAlias = Literal["plain", "dim", "good", "warn", "bad"]
MAX_LINE_LENGTH = 400
MAX_PARAGRAPH_LINES = 40


def format_count(count: int) -> str:
    """950, 1.2k, 50k, 3.4M."""
    for size, letter in ((_MILLION, "M"), (1000, "k")):
        if count >= size:
            return f"{_tenths(count * 10 // size)}{letter}"
    return str(count)


def format_dollars(micro: int) -> str:
    """Micro-dollars, exactly, with at least two decimals: $0.25, $0.000723."""
    places = f"{micro % _MILLION:06d}".rstrip("0").ljust(2, "0")
    return f"${micro // _MILLION}.{places}"


def format_duration(milliseconds: int) -> str:
    """0.8s, 4s, 1m 5s, 2h 3m."""
    if milliseconds < 60_000:
        return f"{_tenths(milliseconds // 100)}s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    if minutes < 60:
        return f"{minutes}m {seconds}s" if seconds else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if minutes else f"{hours}h"


def format_time(milliseconds: int) -> str:
    """`2026-11-18 04:16:12 UTC`. A time that no calendar has is shown as a number."""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms after 1970"


def format_budget(name: str, amount: int, limit: int | None = None) -> str:
    """An amount of a budget: `1.2k of 50k tokens`, `$0.25`, `3 calls`."""
    unit = BUDGET_KINDS[name].unit
    write = {"micro-dollar": format_dollars, "ms": format_duration, "token": format_count}.get(unit, str)
    text = write(amount) if limit is None else f"{write(amount)} of {write(limit)}"
    if write in (format_dollars, format_duration):
        return text
    noun = unit.rpartition(" ")[2]  # a tool call is shown as a call
    return f"{text} {noun}" if (amount if limit is None else limit) == 1 else f"{text} {noun}s"


def _tenths(tenths: int) -> str:
    whole, rest = divmod(tenths, 10)
    return f"{whole}.{rest}" if rest else str(whole)


class OutputLine(Struct, frozen=True):
    text: str
    """Masked and escaped, without line feeds."""
    tone: Tone = "plain"
    indent: int = 0


def make_line(text: str, tone: Tone = "plain", indent: int = 0) -> OutputLine:
    """A line. Untrusted text in it has already passed `short_text`; control characters are escaped here again."""
    return OutputLine(truncate_text(text, MAX_LINE_LENGTH), tone, indent)


def make_paragraph(text: str, indent: int = 0) -> tuple[OutputLine, ...]:
    """A text as lines. Lines beyond the limit are only counted."""
    text = text.strip("\n")
    if not text.strip():
        return ()
    shown = mask(text[:MASKED_LENGTH]).replace("\r\n", "\n").split("\n")
    lines = tuple(make_line(line, indent=indent) for line in shown[:MAX_PARAGRAPH_LINES])
    left_out = text.count("\n") + 1 - MAX_PARAGRAPH_LINES
    return lines if left_out <= 0 else (*lines, make_line(f"… and {plural(left_out, 'more line')}", "dim", indent))


def preview_text(text: str) -> str:
    """The first line that is not empty, with the size of the text if there is more."""
    size = f"{format_count(len(text.encode('utf-8', 'replace')))}B"
    text = text.strip()
    if not text:
        return "nothing"
    first = mask(text[:MASKED_LENGTH]).partition("\n")[0].rstrip("\r")
    if first == text and len(first) <= SHORT_TEXT_LENGTH:
        return escape_invisible(first)
    lines = text.count("\n") + 1
    return f"{short_text(first)} ({plural(lines, 'line')}, {size})" if lines > 1 else f"{short_text(first)} ({size})"
