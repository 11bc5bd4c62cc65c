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
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.fault import Fault
from agentrun.core.messages import Text
from agentrun.core.package_lookup import matches_pattern
from agentrun.spec.v1.cases import FaultInjectionSpec, InjectedFaultSpec, StubSpec

FaultTarget: TypeAlias = Literal["model", "tool", "approval", "hook", "sink"]

_PLACE = re.compile(r"(?:([a-z0-9.]+)/)?(model|tool|approval|hook|sink)(?::([^#]+))?(?:#([0-9]+))?")


class RunPath(Struct, frozen=True):
    """A run of a family."""

    path: str
    """The calls that led to it: empty is the run that a user started."""
    above: tuple[str, ...]
    """The tools that led to it."""


class FaultPlace(Struct, frozen=True):
    """Where somebody was asked."""

    run_path: RunPath
    kind: FaultTarget
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
        return f"{self.run_path.path}/{words}" if self.run_path.path else words


class PlacePattern(Struct, frozen=True):
    """What a case calls a place."""

    path: str | None
    kind: str
    name: str
    number: int | None

    def matches(self, member: RunPath, kind: FaultTarget, name: str) -> bool:
        if kind != self.kind or self.path not in (None, member.path):
            return False
        if self.path is None and "/" in self.name:
            return bool(member.above) and matches_pattern(self.name, "/".join((*member.above, name)))
        return (self.path is not None or not member.path) and matches_pattern(self.name, name)


def parse_place(at: str) -> PlacePattern:
    """Read a place. Its form was checked with the file."""
    found = _PLACE.fullmatch(at)
    assert found is not None
    path, kind, name, number = found.groups()
    return PlacePattern(path, kind, name or "", int(number) if number else None)


class CaseFault:
    """One fault of a case, and whether it has struck."""

    def __init__(self, fault: FaultInjectionSpec) -> None:
        self.at = fault.at
        self.inject = fault.inject
        self.was_triggered = False
        self._pattern = parse_place(fault.at)
        self._seen: Counter[RunPath] = Counter()
        self._left: Counter[RunPath] = Counter()

    @property
    def is_of_model(self) -> bool:
        return self._pattern.kind == "model"

    def count_call(self, member: RunPath, kind: FaultTarget, name: str) -> None:
        """Somebody is about to be asked."""
        if kind != self._pattern.kind:
            return
        self._left[member] = 0
        if self._pattern.matches(member, kind, name):
            self._seen[member] += 1
            if self._pattern.number in (None, self._seen[member]):
                self._left[member] = self.inject.times if kind == "model" else 1

    def consume(self, member: RunPath, kind: FaultTarget) -> bool:
        """Whether it is its turn at the place where the run has arrived."""
        if kind != self._pattern.kind or not self._left[member]:
            return False
        self._left[member] -= 1
        return True

    def give_back(self, member: RunPath) -> None:
        """There was nothing to strike this time: the next attempt may meet it."""
        self._left[member] += 1


class CaseFaults:
    """The faults of a case, and the places that its runs came to."""

    def __init__(self, faults: Iterable[FaultInjectionSpec]) -> None:
        self._faults = [CaseFault(fault) for fault in faults]
        self._calls: Counter[tuple[RunPath, FaultTarget, str]] = Counter()
        self._failed: set[RunPath] = set()
        """Runs whose latest request to a model has no reply yet."""
        self.places: list[FaultPlace] = []

    def next_for_model(self, member: RunPath) -> CaseFault | None:
        """What goes wrong with the request that a run is about to send. Whoever asks says whether it has struck."""
        if member not in self._failed:
            self._count_call(member, "model", "")
        self._failed.add(member)
        return self._consume_first(member, "model")

    def note_model_answer(self, member: RunPath, code: str | None) -> None:
        """The model has answered, or failed with a code after its reply was read."""
        if code in (None, "provider.context_overflow"):
            self._failed.discard(member)

    def next_for_port(self, member: RunPath, kind: FaultTarget, name: str) -> InjectedFaultSpec | None:
        """What goes wrong with a tool, a person, a hook or a sink that is about to be asked."""
        self._count_call(member, kind, name)
        fault = self._consume_first(member, kind)
        if fault is None:
            return None
        fault.was_triggered = True
        return fault.inject

    def note_reply_pieces(self, member: RunPath, pieces: int) -> None:
        """The reply to the latest request came in so many pieces."""
        for index in range(len(self.places) - 1, -1, -1):
            place = self.places[index]
            if place.run_path == member and place.kind == "model":
                self.places[index] = replace(place, pieces=pieces)
                return

    def was_triggered(self, inject: InjectedFaultSpec) -> bool:
        """Whether this one did: there may be others at its place."""
        return any(fault.was_triggered for fault in self._faults if fault.inject is inject)

    def may_change_requests(self) -> bool:
        """Whether one has struck that a model may read about: a model's own faults it never sees."""
        return any(fault.was_triggered and not fault.is_of_model for fault in self._faults)

    def untriggered_places(self) -> tuple[str, ...]:
        """The places of faults that never struck."""
        return tuple(fault.at for fault in self._faults if not fault.was_triggered)

    def _count_call(self, member: RunPath, kind: FaultTarget, name: str) -> None:
        self._calls[member, kind, name] += 1
        self.places.append(FaultPlace(member, kind, name, self._calls[member, kind, name]))
        for fault in self._faults:
            fault.count_call(member, kind, name)

    def _consume_first(self, member: RunPath, kind: FaultTarget) -> CaseFault | None:
        return next((fault for fault in self._faults if fault.consume(member, kind)), None)


# --- what tools give in place of running ----------------------------------------------------------------------


class CaseStubs:
    """The stubs of a case."""

    def __init__(self, stubs: Mapping[str, StubSpec | list[StubSpec]]) -> None:
        self._stubs = stubs
        self._uses: Counter[tuple[RunPath, str]] = Counter()

    def next(self, member: RunPath, call: RunTool) -> ToolReturn | None:
        """What a call gives. None: there is no stub for it."""
        target = self.find_target("/".join((*member.above, call.name)))
        if target is None:
            return None
        stubs = self._stubs[target]
        if isinstance(stubs, StubSpec):
            return _stub_result(stubs, call)
        at = min(self._uses[member, target], len(stubs) - 1)
        self._uses[member, target] += 1
        return _stub_result(stubs[at], call)

    def find_target(self, name: str) -> str | None:
        """The stub of a tool, which is named with the tools above it: `read/search`. None: there is none."""
        return (
            name if name in self._stubs else next((each for each in self._stubs if _matches_target(each, name)), None)
        )


def _matches_target(target: str, name: str) -> bool:
    return ("/" in target) == ("/" in name) and matches_pattern(target, name)


def _stub_result(stub: StubSpec, call: RunTool) -> ToolReturn:
    if stub.error is not UNSET:
        return ToolReturn(fault=Fault("tool.execution", stub.error, {"tool": call.name}))
    text = stub.result if isinstance(stub.result, str) else sorted_json(stub.result).decode()
    return ToolReturn((Text(text),))
