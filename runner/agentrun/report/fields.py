"""In what two plain values differ, field by field, and how a person sees it.

Rule 1  What may be a secret is masked before anything is cut. Two values that differ in nothing else are said to differ
        in what may be a secret.
Rule 2  A text is shown from just before the place where it differs, and never whole when it is long.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from agentrun.canon import compact, same
from agentrun.redact import masked
from agentrun.secret import MASK, names_credential
from agentrun.spec.text import short

SHOWN = 80
"""Characters of a value that are shown."""
MAX_FIELDS = 8
"""Fields of one thing that are told one by one."""
MAX_LINES = 200
"""Lines, from the first that differs on, in which equal ones are looked for."""
_BEFORE = 15


class _Absent:
    """Nothing, which is not null."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Any = _Absent()


class Field(NamedTuple):
    """One place in which two values differ."""

    path: str
    """Dotted, with `[n]` for an item; empty for the values themselves."""
    before: Any
    after: Any

    def words(self, place: str = "") -> str:
        """`total 120 → 130`."""
        name = short(self.path, SHOWN) or place
        if self.before is ABSENT:
            return f"{name} is new: {shown(self.after, self.path)}"
        if self.after is ABSENT:
            return f"{name} is gone: {shown(self.before, self.path)}"
        return f"{name} {arrow(self.before, self.after, self.path)}".lstrip()


def fields(before: Any, after: Any, path: str = "") -> Iterator[Field]:
    """Every difference of two values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            place = f"{path}.{key}" if path else str(key)
            yield from fields(before.get(key, ABSENT), after.get(key, ABSENT), place)
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            one, two = (each[index] if index < len(each) else ABSENT for each in (before, after))
            yield from fields(one, two, f"{path}[{index}]")
    elif not same(before, after):
        yield Field(path, before, after)


def listed(before: Any, after: Any, place: str = "it") -> str:
    """All differences in a line, as far as there is room."""
    found = list(islice(fields(before, after), MAX_FIELDS + 1))
    told = [field.words(place) for field in found[:MAX_FIELDS]]
    return ", ".join([*told, "and more"] if len(found) > MAX_FIELDS else told)


def arrow(before: Any, after: Any, key: str = "") -> str:
    """`120 → 130`."""
    if isinstance(before, str) and isinstance(after, str):
        before, after = masked(before), masked(after)
        start = max(0, _together(before, after) - _BEFORE) if max(len(before), len(after)) > SHOWN else 0
        lead = "…" if start else ""
        one, two = (shown(lead + each[start:], key) for each in (before, after))
    else:
        one, two = shown(before, key), shown(after, key)
    return f"{one} → {two}" if one != two else f"{one}, which differs in what may be a secret or is not shown"


def shown(value: Any, key: str = "") -> str:
    """A value as JSON, cut."""
    if isinstance(value, str):
        return MASK if names_credential(key.rpartition(".")[2]) else f"“{short(value, SHOWN)}”"
    if isinstance(value, dict | list) and value:
        value = _masked(value)
    try:
        return short(compact(value).decode(), SHOWN)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return "something that is no JSON"


def as_json(text: Any) -> Any:
    """What a text says, when it is a JSON object or a list; else the text."""
    if not isinstance(text, str) or text[:1] not in ("{", "["):
        return text
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


class Lines(NamedTuple):
    """Lines that differ."""

    number: int
    """From 1; of one that is gone, in the text before."""
    before: str | None
    after: str | None


def lines(before: str, after: str) -> list[Lines]:
    """The lines in which two texts differ, old and new side by side."""
    one, two = before.split("\n"), after.split("\n")
    shortest = min(len(one), len(two))
    start = next((n for n in range(shortest) if one[n] != two[n]), shortest)
    end = next((n for n in range(shortest - start) if one[-1 - n] != two[-1 - n]), shortest - start)
    one, two = one[start : len(one) - end][:MAX_LINES], two[start : len(two) - end][:MAX_LINES]
    found = []
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        for n in range(max(i_end - i, j_end - j) if tag != "equal" else 0):
            old = one[i + n] if i + n < i_end else None
            new = two[j + n] if j + n < j_end else None
            found.append(Lines(start + (i if new is None else j) + n + 1, old, new))
    return found


def _masked(value: Any, key: str = "") -> Any:
    match value:
        case str():
            return MASK if names_credential(key) else masked(value)
        case dict():
            return {masked(str(name)): _masked(item, str(name)) for name, item in islice(value.items(), SHOWN)}
        case list():
            return [_masked(item) for item in value[:SHOWN]]
    return value


def _together(one: str, two: str) -> int:
    """How many characters two texts begin with together."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == two[low:middle] else (low, middle - 1)
    return low
