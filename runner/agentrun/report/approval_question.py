"""An approval question as rows of a terminal.

Rule 1  The question shows exactly what will happen, and says so if something is left out. Shown text is unambiguous:
        read as a Python literal, it gives the original text. Nothing is masked, because the text is used as it is.
Rule 2  Nothing in it controls the terminal or is invisible. Control characters, direction marks, all blanks but the
        space, and stacked combining marks are escaped.
Rule 3  Anything that can still mislead the eye causes a warning: look-alike letters of another script, right-to-left
        text, and gaps that push the rest out of sight.
Rule 4  The question fits the terminal. Of a long text it shows the beginning, the end, the length and the hash, so that
        nothing scrolls the question away.
Rule 5  Only our own words start at the left margin. Untrusted text is indented, so that it cannot imitate them.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from msgspec import Struct

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.report.formatting import OutputLine, Tone
from agentrun.report.screen import wrap_line
from agentrun.spec.problems import escape_invisible

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


# --- untrusted text ---------------------------------------------------------------------------------------------------

MAX_NAMED_CHARACTERS = 3
LONG_GAP, MANY_LINES = 20, 5
"""Blanks and line feeds in a row that cause a warning."""

_ODD = re.compile(r"[^ -~]")
_ODD_OR_QUOTE = re.compile(r'[^ -~]|["\\]')
_GAP = re.compile(rf"[ \t]{{{LONG_GAP},}}|(?:[ \t]*\r?\n){{{MANY_LINES},}}")
_WORD = re.compile(r"[^\W\d_]+")

LOOKALIKE_LETTERS = "аеорсухіјѕԁһӏԛԝАВЕКМНОРСТУХІЈЅονιυρκαΑΒΕΖΗΙΚΜΝΟΡΤΥΧօսոհցıɑɡ"
"""Cyrillic, Greek, Armenian and other letters that look like ASCII letters."""
LOOKALIKE_SIGNS = "\u2044\u2215\u29f8\u2024\u2010\u2011\u2012\u2212\u2236\u02d0\ua789\u01c3\u01c0\u201a\u037e\u0589"
"""Signs that look like ASCII signs with a meaning in paths, URLs and commands."""


def escape_text(text: str) -> str:
    """The text in quotes."""
    return f'"{_ODD_OR_QUOTE.sub(_escape, text)}"'


def escape_value(value: Any) -> str:
    """A value as JSON."""
    return escape_text(value) if isinstance(value, str) else _ODD.sub(_escape, json.dumps(value, ensure_ascii=False))


def escape_name(name: str) -> str:
    """A name; in quotes if it has unusual characters."""
    return name if re.fullmatch(r"[A-Za-z0-9_./:-]{1,80}", name) else escape_text(name)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char in '"\\':
        return f"\\{char}"
    if char == "\u3000" or char == "\ufe0f" or (_is_mark(char) and not _is_carried(found)):
        return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
    return escape_invisible(char)


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Me")


def _is_carried(found: re.Match[str]) -> bool:
    """Whether a mark is the first or second on a letter that is not ASCII. No script uses more."""
    before = found.string[max(found.start() - 2, 0) : found.start()]
    carrier = before.rstrip("".join(filter(_is_mark, before)))[-1:]
    return carrier != "" and not carrier.isascii()


def text_warnings(text: str) -> Iterator[str]:
    """What a reader should know before trusting the look of a text."""
    odd = (found for found in _ODD.finditer(text) if found[0] not in "\n\t")
    if hidden := _name_characters(found[0] for found in odd if _escape(found) != found[0]):
        yield f"hidden characters: {hidden}"
    if alike := _name_characters(_lookalikes(text)):
        yield f"look-alike characters: {alike}"
    if _ODD.search(text) and any(unicodedata.bidirectional(char) in ("R", "AL") for char in set(text)):
        yield "right-to-left text: the terminal may show it in another order"
    if longest := max((len(gap[0]) for gap in _GAP.finditer(text)), default=0):
        yield f"a gap of {longest:,} blanks or empty lines"


def _name_characters(chars: Iterator[str]) -> str:
    kinds = list(dict.fromkeys(chars))
    pairs = ((char, unicodedata.name(char, "").lower()) for char in kinds[:MAX_NAMED_CHARACTERS])
    named = [f"U+{ord(char):04X}" + (f" ({name})" if name else "") for char, name in pairs]
    more = len(kinds) - MAX_NAMED_CHARACTERS
    return ", ".join([*named, *([f"and {more} more"] if more > 0 else [])])


def _lookalikes(text: str) -> Iterator[str]:
    if text.isascii():
        return
    own = {_script(char) for char in set(text) if _is_letter(char) and not _looks_ascii(char)}
    for found in _WORD.finditer(text):
        word = found[0]
        odd = [char for char in word if _looks_ascii(char)]
        mixed = any(char.isascii() for char in word)
        yield from (char for char in odd if mixed or _script(char) not in own)
    yield from (char for char in text if char in LOOKALIKE_SIGNS or (not _is_letter(char) and _looks_ascii(char)))


def _is_letter(char: str) -> bool:
    return not char.isascii() and char.isalpha()


def _looks_ascii(char: str) -> bool:
    """Whether a character that is not ASCII looks like ASCII: letters of other scripts, wide and styled letters."""
    if char.isascii():
        return False
    if char in LOOKALIKE_LETTERS:
        return True
    other = unicodedata.normalize("NFKC", char)
    return len(other) == 1 and other.isascii() and unicodedata.category(char)[0] in "LNP" and char not in "ªº²³¹"


def _script(char: str) -> str:
    return unicodedata.name(char, "?").partition(" ")[0]
