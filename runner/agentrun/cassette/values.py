"""Find where two JSON values or lines differ, and say so in words.

Rule 1  Secrets are masked before anything is cut, so that no part of a key is shown.
Rule 2  A long text is shown from just before the difference, and never as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from agentrun.canon import NOT_JSON, read_json, same
from agentrun.redact import masked
from agentrun.secret import names_credential
from agentrun.spec.text import json_text
from agentrun.wire import HttpCall

MAX_LINE = 100
_BEFORE = 15


class Change(Struct, frozen=True):
    """One place in which two values differ."""

    path: str
    """Dotted, with `[n]` for an item; empty for the values themselves."""
    change: Literal["added", "removed", "changed", "length"]
    was: Any = None
    now: Any = None

    def words(self, place: str = "the body") -> str:
        """A sentence. `place` is the name of the values themselves."""
        path = self.path or place
        match self.change:
            case "added":
                return f"{path} is new: {json_text(self.now, path)}"
            case "removed":
                return f"{path} is missing, recorded was {json_text(self.was, path)}"
            case "length":
                return f"{path} has {self.now} items, recorded were {self.was}"
        return sentence(path, self.was, self.now)

    def brief(self) -> str:
        """`amount 20 → 25`."""
        if self.change in ("added", "removed"):
            return f"{self.path} is {'new' if self.change == 'added' else 'gone'}"
        return f"{self.path} {'has items: ' * (self.change == 'length')}{arrow(self.path, self.was, self.now)}".lstrip()


def changes(was: Any, now: Any, path: str = "", *, whole_lists: bool = False) -> Iterator[Change]:
    """Every difference of two values. With `whole_lists`, lists without containers are compared as one value."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() | now.keys()):
            place = f"{path}.{key}" if path else key
            if key not in now:
                yield Change(place, "removed", was=was[key])
            elif key not in was:
                yield Change(place, "added", now=now[key])
            else:
                yield from changes(was[key], now[key], place, whole_lists=whole_lists)
    elif isinstance(was, list) and isinstance(now, list) and not (whole_lists and _flat(was) and _flat(now)):
        for index, (one, two) in enumerate(zip(was, now, strict=False)):
            yield from changes(one, two, f"{path}[{index}]", whole_lists=whole_lists)
        if len(was) != len(now):
            yield Change(path, "length", len(was), len(now))
    elif not same(was, now):
        yield Change(path, "changed", was, now)


def differences(recorded: HttpCall, call: HttpCall) -> Iterator[str]:
    """Everything in which a request differs from a recorded one, whatever it is."""
    if recorded.method.upper() != call.method.upper():
        yield f"the method is {call.method}, recorded was {recorded.method}"
    if recorded.url != call.url:
        yield sentence("the address", recorded.url, call.url)
    try:
        was, now = read_json(recorded.body), read_json(call.body)
    except NOT_JSON:
        if recorded.body != call.body:
            yield "the body differs, and is not JSON"
        return
    for change in changes(was, now):
        yield change.words()


def _flat(items: list[Any]) -> bool:
    return not any(isinstance(item, dict | list) for item in items)


def sentence(place: str, was: Any, now: Any) -> str:
    """`amount is 25, recorded was 20`."""
    one, two = _texts(place, was, now)
    return f"{place} is {two}, recorded was {one}"


def arrow(place: str, was: Any, now: Any) -> str:
    """`20 → 25`."""
    return " → ".join(_texts(place, was, now))


def excerpts(was: str, now: str) -> tuple[str, str]:
    """Cut two lines, which must be masked already, to where they differ."""
    start = max(0, common_length(was, now) - _BEFORE) if max(len(was), len(now)) > MAX_LINE else 0
    return _excerpt(was, start), _excerpt(now, start)


def common_length(one: str, two: str) -> int:
    """The length of the common beginning of two texts."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _texts(place: str, was: Any, now: Any) -> tuple[str, str]:
    if not (isinstance(was, str) and isinstance(now, str)) or names_credential(place):
        return json_text(was, place), json_text(now, place)
    was, now = masked(was), masked(now)
    start = max(0, common_length(was, now) - _BEFORE)
    lead = "…" if start else ""
    return json_text(was[start:], "", lead), json_text(now[start:], "", lead)


def _excerpt(line: str, start: int) -> str:
    cut = line[start : start + MAX_LINE]
    return ("…" if start else "") + cut + ("…" if len(line) > start + MAX_LINE else "")
