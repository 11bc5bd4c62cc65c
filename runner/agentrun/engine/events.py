"""What happens in runs, as events: the records of journals, and transient events of the runs of this process.

Rule 1  A cursor is a position in journals, and is valid in every process, but only for its own scope. `follower.py`
        says what it means.
Rule 2  The text of a cursor has a checksum, so that a part of it, or another text, is refused.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from zlib import crc32

import msgspec
from msgspec import Struct

from agentrun.core.facts import Record, RunStopped
from agentrun.core.outcome import Outcome
from agentrun.engine.ports import TransientEvent
from agentrun.errors import AgentrunError, RequestError
from agentrun.spec.problems import quote_text
from agentrun.store.run_order import RunPlace

_CHECKSUM_BYTES = 4
_VERSION = "1-"
"""What the text of a cursor begins with."""


class Cursor(Struct, frozen=True):
    """A position in journals. `str` makes a text of it, `Cursor.parse` the cursor of a text."""

    scope: str
    place: RunPlace = RunPlace()
    """The runs up to here are known. Not used in the scope of one run."""
    runs: dict[str, int] = {}
    """The known runs that are not read to their end, with the number of the last record that was read."""

    def __str__(self) -> str:
        data = msgspec.json.encode([self.scope, self.place.offset, self.place.run, self.runs])
        return _VERSION + urlsafe_b64encode(_checksum(data) + data).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raises `cursor.invalid`."""
        try:
            whole = urlsafe_b64decode(text.removeprefix(_VERSION) + "=" * (-len(text.removeprefix(_VERSION)) % 4))
            data = whole[_CHECKSUM_BYTES:]
            scope, offset, run, runs = msgspec.json.decode(data, type=tuple[str, int, str, dict[str, int]])
            cursor = cls(scope, RunPlace(offset, run), runs)
            if str(cursor) == text and min((offset, *runs.values())) >= 0:
                return cursor
        except (ValueError, msgspec.MsgspecError):
            pass
        message = f"{quote_text(text)} is not a cursor, or only a part of one"
        hint = "use the whole `cursor` of an event, as it was printed"
        raise RequestError("cursor.invalid", message, hint=hint, fields={"cursor": text})


def _checksum(data: bytes) -> bytes:
    return crc32(data).to_bytes(_CHECKSUM_BYTES, "big")


class Gap(Struct, frozen=True):
    """Events are missing here."""

    since: Cursor
    """The position before the gap."""
    error: AgentrunError | None = None
    """Why the records of a run cannot be read: `run.not_found` if it was removed, or `journal.*`. None: the subscriber
    was too slow, and lost transient events. It lost no record."""


class Event(Struct, frozen=True):
    """A record of a run, a transient event such as a piece of text, or a gap."""

    cursor: Cursor
    run: str | None
    """Null for a gap of a slow subscriber."""
    agent: str | None
    what: Record | TransientEvent | Gap | Outcome
    """An outcome: the run does not continue on its own. It is suspended, or parked because nothing works on it."""

    @property
    def is_terminal(self) -> bool:
        return isinstance(self.what, Record) and isinstance(self.what.fact, RunStopped)


class Scope(Struct, frozen=True):
    """Which events a subscriber gets."""

    name: str
    sees: Callable[[Event], bool]
    run: str | None = None
    """The only run of the scope. It ends with this run."""
    sub_agents: bool = True

    def may_see(self, run: str) -> bool:
        """Whether events of a run can be in the scope."""
        return self.run is None or run == self.run or (self.sub_agents and run.startswith(f"{self.run}."))


ALL_EVENTS = Scope("all", lambda event: True)
"""The events of all runs."""


def run_scope(run: str) -> Scope:
    """The events of one run, without its sub-agents."""
    return Scope(f"run:{run}", lambda event: event.run == run, run, sub_agents=False)


def family_scope(run: str) -> Scope:
    """A run with its sub-agents."""
    return Scope(f"family:{run}", lambda event: True, run)


def agent_scope(agent: str) -> Scope:
    """The events of all runs of an agent."""
    return Scope(f"agent:{agent}", lambda event: event.agent == agent)


def filter_scope(name: str, sees: Callable[[Event], bool]) -> Scope:
    """Filters with the same name are the same scope."""
    return Scope(f"filter:{name}", sees)
