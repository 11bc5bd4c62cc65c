"""A cassette in memory.

Everything is recorded in the form of HTTP: a tool call is a `CALL tool://refund` with its arguments as the body, and
approvals, hooks and sinks are recorded the same way. So there is one file, one order and one way to match.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from agentrun.cassette.match import MatchKey
from agentrun.errors import ERROR_CODES
from agentrun.wire import HttpCall, HttpReply

DAY_MS = 86_400_000
NO_REPLY = 599
"""The status of an interaction without a reply. Clients that ignore `response.agentrun` see a failure too."""


def is_recordable_failure(code: str) -> bool:
    """Whether a request can fail with a code. A cassette must not claim failures of agentrun itself."""
    return code.startswith("provider.") and code in ERROR_CODES and code != "provider.not_found"


class Failure(Struct, frozen=True):
    code: str
    message: str
    fields: dict[str, Any] = {}


class Interaction(Struct, frozen=True):
    call: HttpCall
    reply: HttpReply
    """After a failure: the part that arrived."""
    start: int | None = None
    """When it was sent, in milliseconds after the recording began."""
    end: int | None = None
    line: int = 0
    path: str = ""
    """The run that sent it: empty for the run itself, `c2.0` for the sub-agent that call c2.0 started."""
    chunks: tuple[int, ...] = ()
    """The sizes of the chunks in which the body arrived. Empty: in one."""
    failure: Failure | None = None
    stopped: bool = False
    """Whether it was cancelled before it was answered."""


class Cassette(Struct, frozen=True):
    interactions: tuple[Interaction, ...]
    metadata: dict[str, Any]
    recorded_at: int
    """When the recording began, in milliseconds since 1970. 0: unknown."""
    hash: str
    keys: tuple[MatchKey, ...] = ()
    """The `spelled_key` of each interaction. Empty: not computed yet."""

    def days_old(self, now: int) -> int | None:
        """Whole days since the recording. None: unknown."""
        return None if self.recorded_at == 0 else max(0, now - self.recorded_at) // DAY_MS
