"""Show untrusted text exactly, for a person who has to approve it.

Rule 1  The shown text is unambiguous: read as a Python literal, it gives the original text.
Rule 2  Nothing in it controls the terminal or is invisible. Control characters, direction marks, all blanks but the
        space, and stacked combining marks are escaped. Nothing is masked, because the text is used as it is.
Rule 3  Anything that can still mislead the eye causes a warning: look-alike letters of another script, right-to-left
        text, and gaps that push the rest out of sight.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from agentrun.spec.problems import escape_invisible

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
