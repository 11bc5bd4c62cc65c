"""Why a request is on no tape, in words: the nearest recording, and the first thing that differs.

Rule 1  Only on a miss, so it may take its time; it still looks at a bounded number of recordings.
Rule 2  Values are shown cut, from just before the first difference, with what may be a secret masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from agentrun.cassette.match import json_of
from agentrun.cassette.tape import Interaction
from agentrun.secret import mask
from agentrun.wire import HttpCall

MAX_CANDIDATES = 50
MAX_SHOWN = 60
_BEFORE = 15


def nearest(call: HttpCall, candidates: Sequence[tuple[int, Interaction]]) -> tuple[int, str] | None:
    """The number of the most similar candidate and its first difference. None without candidates.

    No candidate is equal to the request: it would have been played.
    """
    best: tuple[int, int, str] | None = None
    for number, interaction in candidates[:MAX_CANDIDATES]:
        found = list(differences(interaction.call, call))
        if best is None or len(found) < best[0]:
            best = len(found), number, found[0]
    return best and best[1:]


def differences(recorded: HttpCall, call: HttpCall) -> Iterator[str]:
    """Everything in which a request differs from a recorded one."""
    if recorded.method.upper() != call.method.upper():
        yield f"the method is {call.method}, recorded was {recorded.method}"
    if recorded.url != call.url:
        yield _differ("the address", recorded.url, call.url)
    try:
        was, now = json_of(recorded.body), json_of(call.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if recorded.body != call.body:
            yield "the body differs, and is not JSON"
        return
    yield from _values("", was, now)


def _values(path: str, was: Any, now: Any) -> Iterator[str]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() | now.keys()):
            place = f"{path}.{key}" if path else key
            if key not in now:
                yield f"{place} is missing, recorded was {_shown(was[key])}"
            elif key not in was:
                yield f"{place} is new: {_shown(now[key])}"
            else:
                yield from _values(place, was[key], now[key])
    elif isinstance(was, list) and isinstance(now, list):
        for index, (one, two) in enumerate(zip(was, now, strict=False)):
            yield from _values(f"{path}[{index}]", one, two)
        if len(was) != len(now):
            yield f"{path or 'the body'} has {len(now)} items, recorded were {len(was)}"
    elif was != now or isinstance(was, bool) != isinstance(now, bool):
        yield _differ(path or "the body", was, now)


def _differ(place: str, was: Any, now: Any) -> str:
    if isinstance(was, str) and isinstance(now, str):
        was, now = mask(was), mask(now)
        start = max(0, _common(was, now) - _BEFORE)
        was, now = was[start:], now[start:]
        lead = "…" if start else ""
        return f"{place} is {_shown(now, lead)}, recorded was {_shown(was, lead)}"
    return f"{place} is {_shown(now)}, recorded was {_shown(was)}"


def _common(one: str, two: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


def _shown(value: Any, lead: str = "") -> str:
    text = mask(msgspec.json.encode(value).decode())
    text = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
    return text[:1] + lead + text[1:] if lead else text
