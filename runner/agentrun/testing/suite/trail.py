"""What a run did, step by step, read from its journal: calls, rulings, and answers of people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentrun.core.arguments import parsed
from agentrun.core.facts import ModelReplied, Record
from agentrun.core.facts_calls import CallCancelled, CallRefused, CallSettled, ChildStarted, ToolFinished
from agentrun.core.facts_gates import ApprovalAnswered, ApprovalAsked, Ruled
from agentrun.core.messages import Content, words
from agentrun.engine.assemble import FinishedRun


class Call(Struct, frozen=True, kw_only=True):
    """A call of a tool, whether it ran or not."""

    id: str
    tool: str
    """Of a sub-agent's call: the tool that is the sub-agent, a slash, and its own tool."""
    args: dict[str, Any] | None
    """As the model gave them. None: they are no JSON object."""
    status: str
    """`ok`, or the code of what went wrong."""
    result: str
    """What the model reads."""
    turn: int


class RulingSeen(Struct, frozen=True, kw_only=True):
    subject: str
    target: str
    """The tool, sink or stage that it is about."""
    stage: str
    ruling: str
    rules: tuple[str, ...]
    reason: str | None


class ApprovalSeen(Struct, frozen=True, kw_only=True):
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
        self._walk(run.journal, run.children, "")

    def _walk(self, records: Iterable[Record], children: Mapping[str, tuple[Record, ...]], above: str) -> None:
        begun: dict[str, int] = {}
        targets: dict[str, str] = {}
        for record in records:
            match record.fact:
                case ModelReplied() as fact:
                    for call in fact.reply.message.calls:
                        begun[call.id] = len(self.calls)
                        args = parsed(call.arguments)
                        self.calls.append(
                            Call(
                                id=call.id,
                                tool=above + call.tool,
                                args=args,
                                status="open",
                                result="",
                                turn=fact.turn,
                            )
                        )
                case ToolFinished() as fact:
                    self._ended(begun, fact.call, fact.fault.code if fact.fault else "ok", fact.parts)
                case CallSettled(how="result") as fact:
                    self._ended(begun, fact.call, "ok", fact.parts)
                case CallRefused() as fact:
                    self._ended(begun, fact.call, fact.code, (), fact.told)
                case CallCancelled() as fact:
                    self._ended(begun, fact.call, "cancelled", (), fact.told)
                case ChildStarted() as fact:
                    self._walk(children.get(fact.run, ()), children, f"{above}{fact.tool}/")
                case Ruled() as fact:
                    self.rulings.append(
                        RulingSeen(
                            subject=fact.subject,
                            target=above + self._target(begun, fact.subject),
                            stage=fact.stage,
                            ruling=fact.ruling,
                            rules=fact.rules,
                            reason=fact.reason,
                        )
                    )
                case ApprovalAsked() as fact:
                    targets[fact.question] = fact.target
                case ApprovalAnswered() as fact:
                    target = above + targets.get(fact.question, fact.subject)
                    self.approvals.append(
                        ApprovalSeen(subject=fact.subject, target=target, answer=fact.answer, by=fact.by)
                    )

    def _target(self, begun: Mapping[str, int], subject: str) -> str:
        if subject in begun:
            return self.calls[begun[subject]].tool.rpartition("/")[2]
        return subject.removeprefix("deliver:")

    def _ended(
        self, begun: Mapping[str, int], call: str, status: str, parts: tuple[Content, ...], told: str = ""
    ) -> None:
        place = begun[call]
        self.calls[place] = replace(self.calls[place], status=status, result=told or words(parts))
