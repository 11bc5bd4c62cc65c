"""A recording in memory.

What is not HTTP is recorded in the form of HTTP: a tool call is a `CALL tool://refund` whose body is its arguments, an
approval, a hook or a sink likewise. One file, one order, one way to match.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from agentrun.cassette.match import MatchKey
from agentrun.errors import ERROR_CODES
from agentrun.wire import HttpCall, HttpReply

DAY_MS = 86_400_000
"""Milliseconds."""


def is_recordable_failure(code: str) -> bool:
    """Whether a request can fail with a code. What fails in us is on no tape: a stranger's file must not say so."""
    return code.startswith("provider.") and code in ERROR_CODES and code != "provider.not_found"


class Failure(Struct, frozen=True):
    """Why there is no whole reply."""

    code: str
    message: str
    fields: dict[str, Any] = {}


class Interaction(Struct, frozen=True):
    """One request, and what came of it."""

    call: HttpCall
    reply: HttpReply
    """With a failure: as much of it as had come."""
    start: int | None = None
    """When it was sent, in milliseconds after the recording began."""
    end: int | None = None
    line: int = 0
    """Where it stands in its file."""
    path: str = ""
    """Which run asked: empty is the run itself, `c2.0` the sub-agent that its call c2.0 started."""
    chunks: tuple[int, ...] = ()
    """The sizes of the pieces in which the body came. Empty: it came in one."""
    failure: Failure | None = None
    stopped: bool = False
    """Whether it was given up before it was answered."""


class Cassette(Struct, frozen=True):
    """One recording."""

    interactions: tuple[Interaction, ...]
    metadata: dict[str, Any]
    recorded_at: int
    """When the recording began, in milliseconds since 1970. 0: it does not say."""
    hash: str
    """Hash of the file."""
    keys: tuple[MatchKey, ...] = ()
    """What each interaction is found by, as it is spelled. Empty: not looked at yet."""

    def days_old(self, now: int) -> int | None:
        """Whole days since the recording. None: the cassette does not say when it was made."""
        return None if self.recorded_at == 0 else max(0, now - self.recorded_at) // DAY_MS
