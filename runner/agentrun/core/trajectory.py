"""What happened in a run, read from its journal and those of its sub-agents: tool calls, rulings and approvals.

Rule 1  A call counts with the arguments of the model, whether it ran or not. `status` is how it ended, and `result` the
        text that the model got, even after a hook or a rule changed it.
Rule 2  The calls of a sub-agent follow its own call, named after the tool that calls it: `read/library.search`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentrun.core import facts
from agentrun.core.call_validation import parse_arguments
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.messages import text_of

OK_STATUS = "ok"
OPEN_STATUS = "open"
"""The status of a call that has not ended, because the run is suspended or ended before."""


class ObservedCall(Struct, frozen=True, kw_only=True):
    """A tool call, whether it ran or not."""

    id: str
    tool: str
    """For a sub-agent: the tool that calls it, a slash, and its own tool."""
    args: dict[str, Any] | None
    """The arguments of the model. None: they are not a JSON object."""
    status: str
    """`ok`, `open` if it has not ended, or the code of the error."""
    result: str
    """The text that the model got."""
    turn: int


class ObservedRuling(Struct, frozen=True, kw_only=True):
    subject: str
    target: str
    """The tool, sink or stage."""
    stage: str
    ruling: str
    rules: tuple[str, ...]
    reason: str | None


class ObservedApproval(Struct, frozen=True, kw_only=True):
    subject: str
    target: str
    answer: str
    by: str


class Trajectory:
    """The calls, rulings and approvals of a run and its sub-agents, in order."""

    def __init__(self, journal: Iterable[facts.Record], read_child: Callable[[str], Iterable[facts.Record]]) -> None:
        self.calls: list[ObservedCall] = []
        self.rulings: list[ObservedRuling] = []
        self.approvals: list[ObservedApproval] = []
        self.read_child = read_child
        self.seen: set[str] = set()
        _TrajectoryReader(self, "").read(journal)


class _TrajectoryReader:
    """Reads the journal of one agent. `above`: the tools that lead to the agent, each with a slash."""

    def __init__(self, trajectory: Trajectory, above: str) -> None:
        self._trajectory = trajectory
        self._above = above
        self._call_indexes: dict[str, int] = {}
        self._question_targets: dict[str, str] = {}
        self._denied: set[str] = set()
        self._latest = 0
        """The index of the first call of the last reply."""

    def read(self, records: Iterable[facts.Record]) -> None:
        for record in records:
            self._read_fact(record.fact)

    def _read_fact(self, fact: facts.Fact) -> None:
        match fact:
            case facts.ModelReplied():
                self._add_calls(fact)
            case facts.ReplyDiscarded():
                del self._trajectory.calls[self._latest :]  # the model is asked again; the calls were not processed
            case facts.ToolFinished():
                self._end_call(fact.call, fact.fault.code if fact.fault else OK_STATUS, text_of(fact.parts))
            case facts.CallRefused():
                self._end_call(fact.call, fact.code, fact.told)
            case facts.CallCancelled():
                self._end_call(fact.call, "tool.denied" if fact.call in self._denied else "tool.aborted", fact.told)
            case facts.CallSettled(how="result"):
                self._end_call(fact.call, OK_STATUS, text_of(fact.parts))
            case facts.CallSettled(how="stop"):
                self._end_call(fact.call, "tool.indeterminate", "")
            case facts.ChildStarted() if fact.run not in self._trajectory.seen:  # a suspended one is started again
                self._trajectory.seen.add(fact.run)
                child = _TrajectoryReader(self._trajectory, f"{self._above}{fact.tool}/")
                child.read(self._trajectory.read_child(fact.run))
            case facts.Ruled():
                self._add_ruling(fact)
            case facts.HookAnswered(point="before_tool", closes=True):
                self._denied.add(fact.subject)
            case facts.HookAnswered(point="after_tool", answer=facts.Modify(value)):
                self._update_call(fact.subject, result=str(value))
            case facts.ApprovalAsked():
                self._question_targets[fact.question] = fact.target
            case facts.ApprovalAnswered():
                self._add_approval(fact)

    def _add_calls(self, fact: facts.ModelReplied) -> None:
        calls = self._trajectory.calls
        self._latest = len(calls)
        for call in fact.reply.message.calls:
            self._call_indexes[call.id] = len(calls)
            tool, args = self._above + call.tool, parse_arguments(call.arguments)
            calls.append(ObservedCall(id=call.id, tool=tool, args=args, status=OPEN_STATUS, result="", turn=fact.turn))

    def _update_call(self, call: str, **changes: str) -> None:
        at = self._call_indexes[call]
        self._trajectory.calls[at] = replace(self._trajectory.calls[at], **changes)

    def _end_call(self, call: str, status: str, result: str) -> None:
        self._update_call(call, status=status, result=result)

    def _add_ruling(self, fact: facts.Ruled) -> None:
        if fact.stage == "tool_call" and fact.ruling in ("deny", "interrupt"):
            self._denied.add(fact.subject)
        if fact.stage == "tool_result" and isinstance(fact.text, str):
            self._update_call(fact.subject, result=fact.text)
        same = {name: getattr(fact, name) for name in ("subject", "stage", "ruling", "rules", "reason")}
        self._trajectory.rulings.append(ObservedRuling(target=self._target(fact), **same))

    def _target(self, fact: facts.Ruled) -> str:
        if fact.stage in ("tool_call", "tool_result"):
            return self._trajectory.calls[self._call_indexes[fact.subject]].tool
        delivery = parse_effect_id(fact.subject)
        return self._above + (delivery.sink if isinstance(delivery, DeliveryId) else fact.stage)

    def _add_approval(self, fact: facts.ApprovalAnswered) -> None:
        if fact.answer not in facts.APPROVED_ANSWERS:
            self._denied.add(fact.subject)
        target = self._above + self._question_targets.get(fact.question, fact.subject)
        self._trajectory.approvals.append(
            ObservedApproval(subject=fact.subject, target=target, answer=fact.answer, by=fact.by)
        )


class RunTrail:
    """The journal of a run and its calls, read when they are used."""

    def __init__(self, run: str, read: Callable[[str], Iterable[facts.Record]]) -> None:
        """`read`: the records of a run or of a sub-agent."""
        self._run = run
        self._read = read

    @cached_property
    def journal(self) -> tuple[facts.Record, ...]:
        return tuple(self._read(self._run))

    @cached_property
    def calls(self) -> tuple[ObservedCall, ...]:
        return tuple(Trajectory(self.journal, self._read).calls)
