"""Text from models, tools and files, made safe to put into one line of output, and where two texts differ.

Rule 1  Secrets are masked first, on the whole text. Then the text is cut: half a key would not be recognised as one.
Rule 2  Characters that a terminal acts on, or does not show, are written as escapes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

from agentrun.secret import MASK, mask, mask_spans, names_credential
from agentrun.spec.problems import escape_invisible

SHORT_TEXT_LENGTH = 120
MASKED_LENGTH = 20_000
"""Characters of a long text that are searched for secrets: many more than are ever shown."""
_JSON_LENGTH = 60
_MAX_NUMBERS = 10


def short_text(text: str, most: int = SHORT_TEXT_LENGTH) -> str:
    """Return at most `most` characters of a text, masked and without control characters."""
    return truncate_text(mask(text[:MASKED_LENGTH]), most)


def truncate_text(text: str, most: int) -> str:
    """Escape control characters, which never shortens a text, and cut it. The text must already be masked."""
    shown = escape_invisible(text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def masked_lines(text: str) -> list[str]:
    """The lines of a masked text. A secret of several lines becomes as many lines of `***`."""
    pieces, end = [], 0
    for start, stop in mask_spans(text):
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
        text = mask(msgspec.json.encode(value).decode())
    except (TypeError, ValueError, OverflowError, RecursionError):  # YAML has values that JSON does not have
        return "a value that is not JSON"
    text = text if len(text) <= _JSON_LENGTH else text[:_JSON_LENGTH] + "…"
    return text[:1] + lead + text[1:] if lead else text


# --- where two texts differ -------------------------------------------------------------------------------------------


def common_prefix_length(one: str, two: str) -> int:
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == two[low:middle] else (low, middle - 1)
    return low


def common_ends(left: Sequence[Hashable], right: Sequence[Hashable]) -> tuple[int, int]:
    """The number of equal items at the beginning and at the end."""
    shortest = min(len(left), len(right))
    start = next((n for n in range(shortest) if left[n] != right[n]), shortest)
    end = next((n for n in range(shortest - start) if left[-1 - n] != right[-1 - n]), shortest - start)
    return start, end


def pair_changed_lines(one: list[str], two: list[str]) -> Iterator[tuple[int | None, int | None]]:
    """The indexes of the lines that differ, old and new side by side. Cubic in the worst case."""
    for tag, i, i_end, j, j_end in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        for n in range(max(i_end - i, j_end - j) if tag != "equal" else 0):
            yield i + n if i + n < i_end else None, j + n if j + n < j_end else None
