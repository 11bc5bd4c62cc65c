"""In what two JSON values differ, path by path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from agentrun.canon import NOT_JSON, read_json, same
from agentrun.cassette.shown import arrow, told
from agentrun.spec.text import json_text
from agentrun.wire import HttpCall


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
        return told(path, self.was, self.now)

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
        yield told("the address", recorded.url, call.url)
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
