"""What the placeholders of a recording stand for, learned from a request that is the same but for them.

Rule 1  Everything else must be equal. A placeholder stands for at least one character.
Rule 2  What a placeholder stands for is known only if there is one way to read the text. Of `[redacted:a] [redacted:b]`
        and «Jo Ann Lee» only the whole is known, for who can tell where the first value ends?
Rule 3  No pattern is built: recordings are data of strangers, and have texts of megabytes.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.canon import read_json
from agentrun.secret import Secret
from agentrun.wire import HttpCall

_MARK = "[redacted:"
_placeholder = re.compile(r"\[redacted:([A-Za-z0-9_.-]+)\]")


class StandIns(Struct, frozen=True):
    """What was learned."""

    values: list[tuple[str, Secret]] = []
    """By the names of their placeholders."""
    stretches: list[tuple[Secret, str]] = []
    """Texts that are known only as a whole, each with what stands for it."""


def stand_ins(recorded: HttpCall, call: HttpCall) -> StandIns | None:
    """None: the request is another one."""
    is_marked = _MARK.encode() in recorded.body or _MARK in recorded.url
    if not is_marked or recorded.method.upper() != call.method.upper():
        return None
    found = StandIns([], [])
    try:
        was, now = read_json(recorded.body), read_json(call.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        was, now = recorded.body.decode("utf-8", "replace"), call.body.decode("utf-8", "replace")
    return found if _fits(recorded.url, call.url, found) and _fits(was, now, found) else None


def _fits(was: Any, now: Any, found: StandIns) -> bool:
    """Whether two documents are the same but for placeholders in the first."""
    match was, now:
        case dict(), dict():
            return was.keys() == now.keys() and all(_fits(was[key], now[key], found) for key in was)
        case list(), list():
            return len(was) == len(now) and all(map(_fits, was, now, [found] * len(was)))
        case str(), str() if _MARK in was and was != now:
            return _filled(was, now, found)
        case str(), int() | float() if _MARK in was and not isinstance(now, bool):
            return _filled(was, msgspec.json.encode(now).decode(), found)
        case _:
            return bool(was == now) and isinstance(was, bool) == isinstance(now, bool)


def _filled(was: str, now: str, found: StandIns) -> bool:
    """Whether a text is what is left of another, with something in the place of each placeholder."""
    names = [match[1] for match in _placeholder.finditer(was)]
    pieces = _placeholder.split(was)[::2]
    first = _first(pieces, now)
    if first is None or not names:
        return False
    last = _last(pieces, now)
    begin = 0
    for index in range(len(names)):
        if index + 1 < len(names) and first[index + 1] != last[index + 1]:
            continue  # the text after this placeholder may stand in several places
        start, end = first[begin] + len(pieces[begin]), last[index + 1]
        value = Secret(now[start:end])
        if begin == index:
            found.values.append((names[index], value))
        else:
            words = (f"{_MARK}{names[n]}]{pieces[n + 1]}" for n in range(begin, index))
            found.stretches.append((value, "".join(words) + f"{_MARK}{names[index]}]"))
        begin = index + 1
    return True


def _first(pieces: list[str], text: str) -> list[int] | None:
    """Where the pieces between placeholders begin in a text, each as early as it can be."""
    if not text.startswith(pieces[0]):
        return None
    places, at = [0], len(pieces[0])
    for piece in pieces[1:-1]:
        place = text.find(piece, at + 1)
        if place < 0:
            return None
        places.append(place)
        at = place + len(piece)
    end = len(text) - len(pieces[-1])
    return [*places, end] if len(pieces) > 1 and end > at and text.endswith(pieces[-1]) else None


def _last(pieces: list[str], text: str) -> list[int]:
    """The same, each as late as it can be. There is a way: the early one."""
    at = len(text) - len(pieces[-1])
    places = [at]
    for piece in reversed(pieces[1:-1]):
        at = text.rfind(piece, 0, at - 1)
        places.append(at)
    return [*reversed([*places, 0])]
