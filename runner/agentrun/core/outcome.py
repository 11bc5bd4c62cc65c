"""How a run ended, read from its state, which is read from its journal: there is no other source."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.facts import AnswerLabel, OutcomeStatus
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Message, Text, ToolResult, Usage
from agentrun.core.state import State
from agentrun.errors import SUSPENDED_EXIT, RetryClass, code_of


class Question(Struct, frozen=True):
    """What a person is asked."""

    subject: str
    """The call's id, or `input`, `output`, `deliver:` and a sink's name."""
    question: str
    """Hash of all that it is about; an answer names it."""
    target: str
    """The tool or the sink, or the stage."""
    value: Any
    """What would go ahead: arguments or a text."""
    rules: tuple[str, ...]
    reason: str | None
    params: dict[str, Any] = {}
    """The run's params, which the templates of a tool are filled in with."""


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a finished run."""

    run: str
    agent: str
    status: OutcomeStatus
    replayed: bool
    """Whether the world was a cassette: nothing was asked of any model."""
    answer: str | None
    """The final text. Null: the run failed."""
    output: Any | UnsetType = UNSET
    """The parsed answer, for an agent with an output contract. Unset: there is none."""
    label: AnswerLabel | None
    """Why a completed run's answer may not be all that was asked for."""
    turns: int
    usage: Usage
    """Summed over all calls. Null: a call did not report it."""
    tokens: int
    """What counts against the budget: what was reported, and where nothing was, what was reserved. With children's."""
    cost: int
    """Micro-dollars, with children's. 0 also when the model has no price."""
    tool_calls: int
    """Calls that ran, with children's."""
    runs: int = 0
    """Sub-agents that were started, with their own."""
    fault: Fault | None
    """Why the run failed."""
    attempt: int
    """Requests of the last turn."""
    seq: int
    """The number of the terminal record."""

    @property
    def cause(self) -> dict[str, Any]:
        """Where a failure comes from: run, turn, attempt, call and record, the part at fault, the rules involved."""
        if self.fault is None:
            return {}
        return {
            "run": self.run,
            "turn": self.fields.get("turn", self.turns),
            "attempt": self.attempt,
            "call": self.fields.get("call"),
            "seq": self.seq,
            "source": self.fault.code.partition(".")[0],
            "rules": self.fields.get("rules", []),
        }

    @property
    def code(self) -> str | None:
        return self.fault.code if self.fault else None

    @property
    def fields(self) -> dict[str, Any]:
        """The evidence of a failure."""
        return self.fault.fields if self.fault else {}

    @property
    def retry(self) -> RetryClass | None:
        return code_of(self.fault.code).retry if self.fault else None

    @property
    def exit_code(self) -> int:
        return code_of(self.fault.code).exit if self.fault else 0


class Suspended(Struct, frozen=True, kw_only=True):
    """A run that waits for somebody outside. It is not over: it can be resumed."""

    run: str
    agent: str
    questions: tuple[Question, ...]
    """What people are asked."""
    waits_for: tuple[str, ...]
    """Calls whose outcome is not known, that a rule deferred, or whose child waits."""
    exit_code: int = SUSPENDED_EXIT


class Parked(Struct, frozen=True, kw_only=True):
    """A run that its host left, in order, before it was over: nothing is under way, and it can be resumed."""

    run: str
    agent: str
    seq: int
    """The number of the last record."""
    exit_code: int = SUSPENDED_EXIT


Ending: TypeAlias = Outcome | Suspended | Parked
"""How the work on a run ends."""


def suspended_outcome(state: State, questions: tuple[Question, ...], waits_for: tuple[str, ...]) -> Suspended:
    """What a run waits for."""
    return Suspended(run=state.started.run, agent=state.started.agent, questions=questions, waits_for=waits_for)


def outcome_of(state: State) -> Outcome:
    """The outcome of a stopped run."""
    assert state.stopped is not None
    stopped = state.stopped
    completed = stopped.status == "completed"
    return Outcome(
        run=state.started.run,
        agent=state.started.agent,
        status=stopped.status,
        replayed=state.started.replayed,
        answer=answer_of(state) if completed else None,
        output=stopped.output,
        label=stopped.label,
        turns=state.turns,
        usage=state.meter.usage,
        tokens=state.meter.tokens,
        cost=state.meter.cost,
        tool_calls=state.meter.tool_calls,
        runs=state.meter.runs,
        fault=stopped.fault,
        attempt=state.attempt,
        seq=state.seq,
    )


def answer_of(state: State) -> str:
    """The text that the run gives: the reply's, unless a terminal tool, a hook or a rule made it another."""
    if state.ending.answer is not None:
        return state.ending.answer
    return state.replies.earlier_text + (state.replies.latest.message.text if state.replies.latest else "")


def session_messages(state: State) -> tuple[Message, ...]:
    """What a later run of the session reads of this one. Every call in it has its result."""
    messages = tuple(state.conversation.transcript)
    if state.stopped is not None and state.stopped.status == "completed":
        return (*messages, Assistant((Text(answer_of(state)),))) if state.in_turn else messages
    if state.replies.latest is None or not state.in_turn:
        return messages
    results = (ToolResult(call.call.id, call.parts) for call in state.calls)
    return (*messages, state.replies.latest.message, *results)
