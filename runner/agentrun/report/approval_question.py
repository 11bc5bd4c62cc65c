"""An approval question as rows of a terminal.

Rule 1  The question shows exactly what will happen (`escape.py`). It says so if something is left out.
Rule 2  The question fits the terminal. Of a long text it shows the beginning, the end, the length and the hash, so that
        nothing scrolls the question away.
Rule 3  Only our own words start at the left margin. Untrusted text is indented, so that it cannot imitate them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from msgspec import Struct

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.report.escape import escape_name, escape_text, escape_value, text_warnings
from agentrun.report.formatting import OutputLine, Tone
from agentrun.report.screen import wrap_line

LABEL_WIDTH = 12
NARROW_WIDTH = 40
"""In fewer columns each label gets its own row."""
MIN_ITEM_ROWS = 3
"""Rows that every item gets: its beginning, the number of rows left out, its end."""
HASH_LENGTH = 39
"""`sha256:` and enough digits that no second text can be made with them."""


class QuestionItem(Struct, frozen=True):
    label: str
    lines: tuple[str, ...]
    """Safe to show."""


class ApprovalQuestion(Struct, frozen=True):
    title: str
    items: tuple[QuestionItem, ...]
    warnings: tuple[str, ...]
    size: str
    """The length of the whole value, and its hash."""


def make_question(
    title: str, notes: Iterable[QuestionItem], items: Iterable[QuestionItem], value: Any, also: Any = None
) -> ApprovalQuestion:
    """`notes`: who asks, and why. `items`: what will happen, including all of `value`. `also`: other untrusted text in
    the items."""
    text = value if isinstance(value, str) else sorted_json(value).decode()
    size = f"{len(text):,} characters, {text_hash(text)[:HASH_LENGTH]}"
    warnings = dict.fromkeys(warning for part in (*_texts(value), *_texts(also)) for warning in text_warnings(part))
    return ApprovalQuestion(title, (*notes, *items), tuple(warnings), size)


def text_item(label: str, text: str) -> QuestionItem:
    """An item with our own words."""
    return QuestionItem(label, (text,))


def value_item(label: str, value: Any, name: str | None = None) -> QuestionItem:
    """An item with an untrusted value and its name. Several lines of text are numbered."""
    head = "" if name is None else f"{escape_name(name)} = "
    if not isinstance(value, str) or "\n" not in value:
        return QuestionItem(label, (head + escape_value(value),))
    lines = value.split("\n")
    width = len(str(len(lines)))
    numbered = (f"{number:>{width}} {escape_text(line)}" for number, line in enumerate(lines, 1))
    return QuestionItem(label, (f"{head}{len(lines):,} lines", *numbered))


def short_question_lines(asked: ApprovalQuestion, width: int, height: int, below: int) -> list[OutputLine]:
    """The question for a terminal of this size, with `below` rows below it."""
    title = _rows(asked.title, width, "warn")
    warnings = [line for text in asked.warnings[:4] for line in _rows(f"! {text}", width, "bad")[:4]]
    size = _rows(f"! only a part is shown ({asked.size}); d shows the rest", width, "bad")
    most = max(height - 1 - below - len(title) - len(warnings) - len(size), 2 * MIN_ITEM_ROWS + 1)
    shown, is_all = _fit_rows([list(_item_rows(each, width)) for each in asked.items], most)
    size = [] if is_all else size
    return [*title, *map(OutputLine, shown), *warnings, *size]


def full_question_lines(asked: ApprovalQuestion, width: int) -> list[OutputLine]:
    rows = [OutputLine(row) for each in asked.items for row in _item_rows(each, width)]
    return [*_rows(asked.title, width, "warn"), *rows, *_rows(asked.size, width, "dim")]


def choice_lines(lasting: str, seconds: int, width: int) -> list[OutputLine]:
    texts = (
        "y  yes, once",
        f"s  yes, for all identical questions in this {lasting}",
        "d  show everything",
        f"n  no (the same as Enter, or no answer within {seconds} s)",
    )
    return [line for text in texts for line in _rows(text, width, "plain")]


def _rows(text: str, width: int, tone: Tone) -> list[OutputLine]:
    return [OutputLine(row, tone) for row in wrap_line(text, width)]


def _item_rows(each: QuestionItem, width: int) -> Iterator[str]:
    at = LABEL_WIDTH if width >= NARROW_WIDTH else 4
    label = f"  {each.label}"
    if len(label) >= at:
        yield label
        label = ""
    for line in each.lines:
        for row in wrap_line(line, max(width - at, 1)):
            yield f"{label:<{at}}{row}"
            label = ""


def _fit_rows(items: list[list[str]], most: int) -> tuple[list[str], bool]:
    """The rows that fit, and whether these are all rows."""
    if sum(map(len, items)) <= most:
        return [row for rows in items for row in rows], True
    least = [min(len(rows), MIN_ITEM_ROWS) for rows in items]
    first = sum(rows + 1 + least[-1] <= most for rows in accumulate(least[:-1]))
    left_out = len(items) - 1 - max(first, 1)
    if sum(least) > most and left_out > 0:
        items = [*items[: max(first, 1)], [f"  … {left_out:,} more …"], items[-1]]
    share = _share([len(rows) for rows in items], most)
    return [row for rows in items for row in _cut_rows(rows, share)], False


def _share(needs: list[int], most: int) -> int:
    """The number of rows per item that uses the room best."""
    share = MIN_ITEM_ROWS
    while sum(min(need, share + 1) for need in needs) <= most and share < max(needs):
        share += 1
    return share


def _cut_rows(rows: list[str], most: int) -> list[str]:
    if len(rows) <= most:
        return rows
    tail = (most - 1) // 2
    head = most - 1 - tail
    return [*rows[:head], f"    … {len(rows) - head - tail:,} rows …", *rows[len(rows) - tail :]]


def _texts(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            stack += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            stack += part
