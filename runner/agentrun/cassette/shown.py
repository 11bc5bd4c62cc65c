"""Values of a request as a person may see them.

Rule 1  What may be a secret is masked before anything is cut: a key must not be shown from its middle.
Rule 2  A text is shown from just before what differs, and never whole when it is long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrun.redact import masked
from agentrun.secret import names_credential
from agentrun.spec.text import json_text

MAX_LINE = 100
_BEFORE = 15
_MAX_NUMBERS = 10


def told(place: str, was: Any, now: Any) -> str:
    """What a value is and what it was, as a sentence."""
    one, two = _texts(place, was, now)
    return f"{place} is {two}, recorded was {one}"


def arrow(place: str, was: Any, now: Any) -> str:
    """What a value was and what it is: `20 → 25`."""
    return " → ".join(_texts(place, was, now))


def excerpts(was: str, now: str) -> tuple[str, str]:
    """Two lines that are masked already, cut to where they differ."""
    start = max(0, common(was, now) - _BEFORE) if max(len(was), len(now)) > MAX_LINE else 0
    return _excerpt(was, start), _excerpt(now, start)


def common(one: str, two: str) -> int:
    """How many characters two texts begin with together."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def listed_numbers(numbers: Sequence[int]) -> str:
    """`2, 3 and 5`. Of many only the first are named."""
    named = [str(number) for number in numbers[:_MAX_NUMBERS]]
    return listed(named if len(numbers) <= _MAX_NUMBERS else [*named, f"{len(numbers) - _MAX_NUMBERS} more"])


def _texts(place: str, was: Any, now: Any) -> tuple[str, str]:
    if not (isinstance(was, str) and isinstance(now, str)) or names_credential(place):
        return json_text(was, place), json_text(now, place)
    was, now = masked(was), masked(now)
    start = max(0, common(was, now) - _BEFORE)
    lead = "…" if start else ""
    return json_text(was[start:], "", lead), json_text(now[start:], "", lead)


def _excerpt(line: str, start: int) -> str:
    cut = line[start : start + MAX_LINE]
    return ("…" if start else "") + cut + ("…" if len(line) > start + MAX_LINE else "")
