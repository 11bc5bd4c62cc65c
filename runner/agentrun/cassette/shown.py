"""Values of a request as a person may see them.

Rule 1  What may be a secret is masked before anything is cut: a key must not be shown from its middle.
Rule 2  A text is shown from just before what differs, and never whole when it is long.
Rule 3  Lines are masked as one text, for a private key has many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentrun.redact import concealed, masked
from agentrun.secret import MASK, names_credential

MAX_SHOWN = 60
MAX_LINE = 100
_BEFORE = 15


def told(place: str, was: Any, now: Any) -> str:
    """What a value is and what it was, as a sentence."""
    one, two = _texts(place, was, now)
    return f"{place} is {two}, recorded was {one}"


def arrow(place: str, was: Any, now: Any) -> str:
    """What a value was and what it is: `20 → 25`."""
    return " → ".join(_texts(place, was, now))


def shown(value: Any, place: str = "", lead: str = "") -> str:
    """A value as JSON."""
    if isinstance(value, str) and names_credential(place):
        value = MASK
    try:
        text = masked(msgspec.json.encode(value).decode())
    except (TypeError, ValueError, OverflowError, RecursionError):  # YAML has values that JSON has not
        return "something that is no JSON"
    text = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
    return text[:1] + lead + text[1:] if lead else text


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


def masked_lines(text: str) -> list[str]:
    """The lines of a text, masked; as many as it has."""
    pieces, end = [], 0
    for start, stop in concealed(text):
        pieces += [text[end:start], MASK, f"\n{MASK}" * text.count("\n", start, stop)]
        end = stop
    return "".join([*pieces, text[end:]]).split("\n")


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _texts(place: str, was: Any, now: Any) -> tuple[str, str]:
    if not (isinstance(was, str) and isinstance(now, str)) or names_credential(place):
        return shown(was, place), shown(now, place)
    was, now = masked(was), masked(now)
    start = max(0, common(was, now) - _BEFORE)
    lead = "…" if start else ""
    return shown(was[start:], "", lead), shown(now[start:], "", lead)


def _excerpt(line: str, start: int) -> str:
    cut = line[start : start + MAX_LINE]
    return ("…" if start else "") + cut + ("…" if len(line) > start + MAX_LINE else "")
