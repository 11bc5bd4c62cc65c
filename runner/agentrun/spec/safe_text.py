"""Text from models, tools and files, made safe to put into one line of output.

Rule 1  Secrets are masked first, on the whole text. Then the text is cut: half a key would not be recognised as one.
Rule 2  Characters that a terminal acts on, or does not show, are written as escapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentrun.redactor import mask_except_placeholders, mask_spans_except_placeholders
from agentrun.secret import MASK, names_credential
from agentrun.spec.problems import escape_invisible

SHORT_TEXT_LENGTH = 120
MASKED_LENGTH = 20_000
"""Characters of a long text that are searched for secrets: many more than are ever shown."""
_JSON_LENGTH = 60
_MAX_NUMBERS = 10


def short_text(text: str, most: int = SHORT_TEXT_LENGTH) -> str:
    """Return at most `most` characters of a text, masked and without control characters."""
    return truncate_text(mask_except_placeholders(text[:MASKED_LENGTH]), most)


def truncate_text(text: str, most: int) -> str:
    """Escape control characters, which never shortens a text, and cut it. The text must already be masked."""
    shown = escape_invisible(text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def masked_lines(text: str) -> list[str]:
    """The lines of a masked text. A secret of several lines becomes as many lines of `***`."""
    pieces, end = [], 0
    for start, stop in mask_spans_except_placeholders(text):
        pieces += [text[end:start], MASK, f"\n{MASK}" * text.count("\n", start, stop)]
        end = stop
    return "".join([*pieces, text[end:]]).split("\n")


def plural(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def join_words(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def join_numbers(numbers: Sequence[int]) -> str:
    """`2, 3 and 5`. Of many only the first are named."""
    named = [str(number) for number in numbers[:_MAX_NUMBERS]]
    return join_words(named if len(numbers) <= _MAX_NUMBERS else [*named, f"{len(numbers) - _MAX_NUMBERS} more"])


def json_text(value: Any, key: str = "", lead: str = "") -> str:
    """Return a value as masked JSON of about 60 characters. `lead` is put after the opening quote or bracket."""
    if isinstance(value, str) and names_credential(key):
        value = MASK
    try:
        text = mask_except_placeholders(msgspec.json.encode(value).decode())
    except (TypeError, ValueError, OverflowError, RecursionError):  # YAML has values that JSON does not have
        return "a value that is not JSON"
    text = text if len(text) <= _JSON_LENGTH else text[:_JSON_LENGTH] + "…"
    return text[:1] + lead + text[1:] if lead else text
