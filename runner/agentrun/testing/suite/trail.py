"""What a run did, step by step, read from its journal: calls, rulings, and answers of people.

Rule 1  A call is what the model asked for, with the arguments that it gave, whether it ran or not. `status` tells what
        came of it, `result` what the model read in the end: also after a hook or a rule changed that.
Rule 2  What a sub-agent did stands behind its call, under the name of the tool that it is: `read/library.search`.
Rule 3  A ruling is about a tool, a sink, or the stage itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentrun.core.arguments import parsed
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.evolve_gates import APPROVED
from agentrun.core.facts import Fact, ModelReplied, Record, ReplyDiscarded
from agentrun.core.facts_calls import CallCancelled, CallRefused, CallSettled, ChildStarted, ToolFinished
from agentrun.core.facts_gates import ApprovalAnswered, ApprovalAsked, HookAnswered, Modify, Ruled
from agentrun.core.messages import words
from agentrun.engine.run import FinishedRun

OPEN = "open"
"""The status of a call that has not ended: the run waits, or ended before it."""


class Call(Struct, frozen=True, kw_only=True):
    """A call of a tool, whether it ran or not."""

    id: str
    tool: str
    """Of a sub-agent's call: the tool that is the sub-agent, a slash, and its own tool."""
    args: dict[str, Any] | None
    """As the model gave them. None: they are no JSON object."""
    status: str
    """`ok`, `open` when it has not ended, or the code of what went wrong."""
    result: str
    """What the model reads."""
    turn: int


class RulingSeen(Struct, frozen=True, kw_only=True):
    """What the policy said about something."""

    subject: str
    target: str
    """The tool, sink or stage that it is about."""
    stage: str
    ruling: str
    rules: tuple[str, ...]
    reason: str | None


class ApprovalSeen(Struct, frozen=True, kw_only=True):
    """What a person said when asked."""

    subject: str
    target: str
    answer: str
    by: str


class Trail:
    """What a run and its sub-agents did, in order."""

    def __init__(self, run: FinishedRun) -> None:
        self.calls: list[Call] = []
        self.rulings: list[RulingSeen] = []
        self.approvals: list[ApprovalSeen] = []
        self._children = run.children
        self._seen: set[str] = set()
        self.walk(run.journal, "")

    def walk(self, records: Iterable[Record], above: str) -> None:
        """`above`: the tools that lead to the agent, each with a slash."""
        steps = _Steps(self, above)
        for record in records:
            steps.take(record.fact)

    def walk_child(self, run: str, above: str) -> None:
        if run not in self._seen:  # one that slept is started again
            self._seen.add(run)
            self.walk(self._children.get(run, ()), above)


class _Steps:
    """Reads the journal of one agent."""

    def __init__(self, trail: Trail, above: str) -> None:
        self._trail = trail
        self._above = above
        self._begun: dict[str, int] = {}
        """Where each call stands in the trail."""
        self._asked: dict[str, str] = {}
        """What each question is about."""
        self._denied: set[str] = set()
        self._latest = 0
        """Where the calls of the latest reply begin."""

    def take(self, fact: Fact) -> None:
        match fact:
            case ModelReplied():
                self._calls(fact)
            case ReplyDiscarded():
                del self._trail.calls[self._latest :]  # the model is asked again, and none of them was looked at
            case ToolFinished():
                self._ended(fact.call, fact.fault.code if fact.fault else "ok", words(fact.parts))
            case CallRefused():
                self._ended(fact.call, fact.code, fact.told)
            case CallCancelled():
                self._ended(fact.call, "tool.denied" if fact.call in self._denied else "tool.aborted", fact.told)
            case CallSettled(how="result"):
                self._ended(fact.call, "ok", words(fact.parts))
            case CallSettled(how="stop"):
                self._ended(fact.call, "tool.indeterminate", "")
            case ChildStarted():
                self._trail.walk_child(fact.run, f"{self._above}{fact.tool}/")
            case Ruled():
                self._ruled(fact)
            case HookAnswered(point="before_tool", closes=True):
                self._denied.add(fact.subject)
            case HookAnswered(point="after_tool", answer=Modify(value)):
                self._reads(fact.subject, str(value))
            case ApprovalAsked():
                self._asked[fact.question] = fact.target
            case ApprovalAnswered():
                self._answered(fact)

    def _calls(self, fact: ModelReplied) -> None:
        calls = self._trail.calls
        self._latest = len(calls)
        for call in fact.reply.message.calls:
            self._begun[call.id] = len(calls)
            calls.append(
                Call(
                    id=call.id,
                    tool=self._above + call.tool,
                    args=parsed(call.arguments),
                    status=OPEN,
                    result="",
                    turn=fact.turn,
                )
            )

    def _ended(self, call: str, status: str, result: str) -> None:
        at = self._begun[call]
        self._trail.calls[at] = replace(self._trail.calls[at], status=status, result=result)

    def _reads(self, call: str, result: str) -> None:
        at = self._begun[call]
        self._trail.calls[at] = replace(self._trail.calls[at], result=result)

    def _ruled(self, fact: Ruled) -> None:
        if fact.stage == "tool_call" and fact.ruling in ("deny", "interrupt"):
            self._denied.add(fact.subject)
        if fact.stage == "tool_result" and isinstance(fact.text, str):
            self._reads(fact.subject, fact.text)
        self._trail.rulings.append(
            RulingSeen(
                subject=fact.subject,
                target=self._target(fact),
                stage=fact.stage,
                ruling=fact.ruling,
                rules=fact.rules,
                reason=fact.reason,
            )
        )

    def _target(self, fact: Ruled) -> str:
        if fact.stage in ("tool_call", "tool_result"):
            return self._trail.calls[self._begun[fact.subject]].tool
        delivery = parse_effect_id(fact.subject)
        return self._above + (delivery.sink if isinstance(delivery, DeliveryId) else fact.stage)

    def _answered(self, fact: ApprovalAnswered) -> None:
        if fact.answer not in APPROVED:
            self._denied.add(fact.subject)
        target = self._above + self._asked.get(fact.question, fact.subject)
        self._trail.approvals.append(ApprovalSeen(subject=fact.subject, target=target, answer=fact.answer, by=fact.by))
