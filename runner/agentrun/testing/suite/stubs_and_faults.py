"""The stubs and faults of a case: which fault is injected at which call, and which stub replaces which tool.

    model#2              the second call of the model, with all its attempts and fallbacks
    tool:refund          every call of a tool; `*` matches any text
    tool:*#3             the third call that matches the pattern
    tool:read/search     the tool of a sub-agent, named after the tool that calls the sub-agent
    c1.0/model#1         in the sub-agent that call c1.0 started

Rule 1  Numbers count in each run and sub-agent from 1; in a conversation they continue from message to message.
Rule 2  An attempt after a failure belongs to the same model call. A context overflow is not a failure but an end: the
        next request is another call.
Rule 3  Of several faults at one place, the first one that is left is injected. A model gets it `times` times, all
        others once, because they are called once.
Rule 4  A stub with an exact name wins over a pattern, and the first of two patterns wins.
Rule 5  A list of stubs is used once in each run or sub-agent, and once in a whole conversation. Its last item repeats.
Rule 6  A name without a slash means a tool of the agent itself, as in assertions (`matches_target`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.compiler.lint_cases import ParsedFaultPlace, parse_fault_place
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.fault import Fault
from agentrun.core.messages import Text
from agentrun.core.package import matches_pattern
from agentrun.spec.v1.cases import FaultInjectionSpec, InjectedFaultSpec, StubSpec

FaultTarget: TypeAlias = Literal["model", "tool", "approval", "hook", "sink"]


class RunPath(Struct, frozen=True):
    """A run or one of its sub-agents."""

    path: str
    """The calls that led to it. Empty: the run itself."""
    above: tuple[str, ...]
    """The tools that led to it."""

    def full_name(self, name: str) -> str:
        """`read/search`."""
        return "/".join((*self.above, name))


def matches_target(target: str, name: str) -> bool:
    """Whether a target matches a tool, sink or stage. A target without a slash does not match those of sub-agents."""
    return ("/" in target or not is_of_sub_agent(name)) and matches_pattern(target, name)


def is_of_sub_agent(name: str) -> bool:
    """Whether a name is of a sub-agent: `read/search`. A tool of a server may have a slash too: `docs.a/b`."""
    agent, slash, _ = name.partition("/")
    return bool(slash) and "." not in agent


class FaultPlace(Struct, frozen=True):
    run_path: RunPath
    kind: FaultTarget
    name: str
    """The tool, hook or sink, or the target of an approval. Empty for a model."""
    number: int
    """From 1, of this name in this run."""
    pieces: int = 1
    """For a model: the number of pieces of its reply."""

    @property
    def at(self) -> str:
        """The place as written in a case."""
        words = f"{self.kind}:{self.name}#{self.number}" if self.name else f"{self.kind}#{self.number}"
        return f"{self.run_path.path}/{words}" if self.run_path.path else words


def matches_place(place: ParsedFaultPlace, member: RunPath, kind: FaultTarget, name: str) -> bool:
    """Whether a call is at the place of a fault, apart from its number."""
    if kind != place.kind:
        return False
    if place.calls is not None:
        return place.calls == member.path and matches_pattern(place.name, name)
    return matches_target(place.name, member.full_name(name))


class CaseFault:
    """One fault of a case, and whether it was injected."""

    def __init__(self, fault: FaultInjectionSpec) -> None:
        self.at = fault.at
        self.inject = fault.inject
        self.was_triggered = False
        self._place = parse_fault_place(fault.at)
        self.kind = self._place.kind
        self._seen: Counter[RunPath] = Counter()
        self._left: Counter[RunPath] = Counter()

    def count_call(self, member: RunPath, kind: FaultTarget, name: str) -> None:
        if kind != self.kind:
            return
        self._left[member] = 0
        if matches_place(self._place, member, kind, name):
            self._seen[member] += 1
            if self._place.number in (None, self._seen[member]):
                self._left[member] = self.inject.times if kind == "model" else 1

    def consume(self, member: RunPath, kind: FaultTarget) -> bool:
        """Whether to inject it into the current call."""
        if kind != self.kind or not self._left[member]:
            return False
        self._left[member] -= 1
        return True

    def give_back(self, member: RunPath) -> None:
        """It could not be injected this time; the next attempt may get it."""
        self._left[member] += 1


class CaseFaults:
    """The faults of a case, and the places that its runs reached."""

    def __init__(self, faults: Iterable[FaultInjectionSpec]) -> None:
        self._faults = [CaseFault(fault) for fault in faults]
        self._calls: Counter[tuple[RunPath, FaultTarget, str]] = Counter()
        self._failed: set[RunPath] = set()
        """Runs whose last model request has no reply yet."""
        self.places: list[FaultPlace] = []

    def next_for_model(self, member: RunPath) -> CaseFault | None:
        """The fault for the next model request of a run. The caller sets `was_triggered`."""
        if member not in self._failed:
            self._count_call(member, "model", "")
        self._failed.add(member)
        return self._consume_first(member, "model")

    def note_model_answer(self, member: RunPath, code: str | None) -> None:
        """Note that the model answered, or failed with a code after its reply was decoded."""
        if code in (None, "provider.context_overflow"):
            self._failed.discard(member)

    def next_for_port(self, member: RunPath, kind: FaultTarget, name: str) -> InjectedFaultSpec | None:
        self._count_call(member, kind, name)
        fault = self._consume_first(member, kind)
        if fault is None:
            return None
        fault.was_triggered = True
        return fault.inject

    def note_reply_pieces(self, member: RunPath, pieces: int) -> None:
        models = [at for at, place in enumerate(self.places) if place.run_path == member and place.kind == "model"]
        self.places[models[-1]] = replace(self.places[models[-1]], pieces=pieces)

    def was_triggered(self, inject: InjectedFaultSpec) -> bool:
        """Whether this fault was injected. There may be others at its place."""
        return any(fault.was_triggered for fault in self._faults if fault.inject is inject)

    def may_change_requests(self) -> bool:
        """Whether a fault was injected that a model can read about. It never sees faults of models."""
        return any(fault.was_triggered and fault.kind != "model" for fault in self._faults)

    def untriggered_places(self) -> tuple[str, ...]:
        return tuple(fault.at for fault in self._faults if not fault.was_triggered)

    def _count_call(self, member: RunPath, kind: FaultTarget, name: str) -> None:
        self._calls[member, kind, name] += 1
        self.places.append(FaultPlace(member, kind, name, self._calls[member, kind, name]))
        for fault in self._faults:
            fault.count_call(member, kind, name)

    def _consume_first(self, member: RunPath, kind: FaultTarget) -> CaseFault | None:
        return next((fault for fault in self._faults if fault.consume(member, kind)), None)


class CaseStubs:
    def __init__(self, stubs: Mapping[str, StubSpec | list[StubSpec]]) -> None:
        self._stubs = stubs
        self._uses: Counter[tuple[RunPath, str]] = Counter()

    def next(self, member: RunPath, call: RunTool) -> ToolReturn | None:
        """The result of a call. None: there is no stub for it."""
        target = self.find_target(member.full_name(call.name))
        if target is None:
            return None
        stubs = self._stubs[target]
        if isinstance(stubs, StubSpec):
            return _stub_result(stubs, call)
        at = min(self._uses[member, target], len(stubs) - 1)
        self._uses[member, target] += 1
        return _stub_result(stubs[at], call)

    def find_target(self, name: str) -> str | None:
        """The target of the stub for a tool, given its full name (`read/search`). None: there is no stub."""
        if name in self._stubs:
            return name
        return next((target for target in self._stubs if matches_target(target, name)), None)


def _stub_result(stub: StubSpec, call: RunTool) -> ToolReturn:
    if stub.error is not UNSET:
        return ToolReturn(fault=Fault("tool.execution", stub.error, {"tool": call.name}))
    text = stub.result if isinstance(stub.result, str) else sorted_json(stub.result).decode()
    return ToolReturn((Text(text),))
