"""Places in a run at which something can go wrong, and which fault strikes where.

    model#2              the second call of the model; attempts and fallbacks of one call belong to it
    tool:refund          every call of a tool; `*` stands for any text
    tool:*#3             the third call that the pattern means
    tool:read/search     the tool of a sub-agent, by the tool that the sub-agent is
    c1.0/model#1         in the sub-agent that call c1.0 started

Rule 1  Counting begins anew in every run of a family; in a conversation it goes on from message to message.
Rule 2  An attempt belongs to the call before it if that has failed. What the provider finds too long has not failed but
        ended: what follows is another request.
Rule 3  Of several faults at one place the first that is not used up strikes. A model meets it `times` times, everybody
        else once, for they are asked once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.core.names import matches
from agentrun.spec.v1.cases import FaultAt, Inject

Kind: TypeAlias = Literal["model", "tool", "approval", "hook", "sink"]

_PLACE = re.compile(r"(?:([a-z0-9.]+)/)?(model|tool|approval|hook|sink)(?::([^#]+))?(?:#([0-9]+))?")


class Member(Struct, frozen=True):
    """A run of a family."""

    path: str
    """The calls that led to it: empty is the run that a user started."""
    above: tuple[str, ...]
    """The tools that led to it."""


class Place(Struct, frozen=True):
    """Where somebody was asked."""

    member: Member
    kind: Kind
    name: str
    """The tool, hook or sink, or what the question is about. Of a model: nothing."""
    number: int
    """From 1, of this name in this run."""
    pieces: int = 1
    """Of a model: in how many pieces its reply came."""

    @property
    def at(self) -> str:
        """As it is written."""
        words = f"{self.kind}:{self.name}#{self.number}" if self.name else f"{self.kind}#{self.number}"
        return f"{self.member.path}/{words}" if self.member.path else words


class Where(Struct, frozen=True):
    """What a case calls a place."""

    path: str | None
    kind: str
    name: str
    number: int | None

    def means(self, member: Member, kind: Kind, name: str) -> bool:
        if kind != self.kind or self.path not in (None, member.path):
            return False
        if self.path is None and "/" in self.name:
            return bool(member.above) and matches(self.name, "/".join((*member.above, name)))
        return (self.path is not None or not member.path) and matches(self.name, name)


def where(at: str) -> Where:
    """Read a place. Its form was checked with the file."""
    found = _PLACE.fullmatch(at)
    assert found is not None
    path, kind, name, number = found.groups()
    return Where(path, kind, name or "", int(number) if number else None)


class Fault:
    """One fault of a case, and whether it has struck."""

    def __init__(self, fault: FaultAt) -> None:
        self.at = fault.at
        self.inject = fault.inject
        self.has_struck = False
        self._where = where(fault.at)
        self._seen: Counter[Member] = Counter()
        self._left: Counter[Member] = Counter()

    @property
    def is_of_model(self) -> bool:
        return self._where.kind == "model"

    def arrive(self, member: Member, kind: Kind, name: str) -> None:
        """Somebody is about to be asked."""
        if kind != self._where.kind:
            return
        self._left[member] = 0
        if self._where.means(member, kind, name):
            self._seen[member] += 1
            if self._where.number in (None, self._seen[member]):
                self._left[member] = self.inject.times if kind == "model" else 1

    def takes(self, member: Member, kind: Kind) -> bool:
        """Whether it is its turn at the place where the run has arrived."""
        if kind != self._where.kind or not self._left[member]:
            return False
        self._left[member] -= 1
        return True

    def passes(self, member: Member) -> None:
        """There was nothing to strike this time: the next attempt may meet it."""
        self._left[member] += 1


class Faults:
    """The faults of a case, and the places that its runs came to."""

    def __init__(self, faults: Iterable[FaultAt]) -> None:
        self._faults = [Fault(fault) for fault in faults]
        self._calls: Counter[tuple[Member, Kind, str]] = Counter()
        self._failed: set[Member] = set()
        """Runs whose latest request to a model has no reply yet."""
        self.places: list[Place] = []

    def of_model(self, member: Member) -> Fault | None:
        """What goes wrong with the request that a run is about to send. Whoever asks says whether it has struck."""
        if member not in self._failed:
            self._arrive(member, "model", "")
        self._failed.add(member)
        return self._taken(member, "model")

    def settled(self, member: Member, code: str | None) -> None:
        """The model has answered, or failed with a code after its reply was read."""
        if code in (None, "provider.context_overflow"):
            self._failed.discard(member)

    def of_other(self, member: Member, kind: Kind, name: str) -> Inject | None:
        """What goes wrong with a tool, a person, a hook or a sink that is about to be asked."""
        self._arrive(member, kind, name)
        fault = self._taken(member, kind)
        if fault is None:
            return None
        fault.has_struck = True
        return fault.inject

    def heard(self, member: Member, pieces: int) -> None:
        """The reply to the latest request came in so many pieces."""
        for index in range(len(self.places) - 1, -1, -1):
            place = self.places[index]
            if place.member == member and place.kind == "model":
                self.places[index] = replace(place, pieces=pieces)
                return

    def has_struck(self, inject: Inject) -> bool:
        """Whether this one did: there may be others at its place."""
        return any(fault.has_struck for fault in self._faults if fault.inject is inject)

    def is_read_of(self) -> bool:
        """Whether one has struck that a model may read about: a model's own faults it never sees."""
        return any(fault.has_struck and not fault.is_of_model for fault in self._faults)

    def unmet(self) -> tuple[str, ...]:
        """The places of faults that never struck."""
        return tuple(fault.at for fault in self._faults if not fault.has_struck)

    def _arrive(self, member: Member, kind: Kind, name: str) -> None:
        self._calls[member, kind, name] += 1
        self.places.append(Place(member, kind, name, self._calls[member, kind, name]))
        for fault in self._faults:
            fault.arrive(member, kind, name)

    def _taken(self, member: Member, kind: Kind) -> Fault | None:
        return next((fault for fault in self._faults if fault.takes(member, kind)), None)
