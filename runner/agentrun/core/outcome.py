"""How a run ended. This is read from its state, and so from its journal."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.facts import AnswerLabel, OutcomeStatus
from agentrun.core.fault import Fault
from agentrun.core.messages import Usage
from agentrun.core.state import State
from agentrun.errors import SUSPENDED_EXIT, RetryClass, code_of


class Question(Struct, frozen=True):
    """A question to a person: may this go ahead?"""

    subject: str
    """The id of a call, `input`, `output`, or `deliver:` and the name of a sink."""
    question: str
    """Hash of everything the question is about. An answer contains it."""
    target: str
    """The tool, the sink or the stage."""
    value: Any
    """The arguments, including defaults, or the text that would go ahead."""
    rules: tuple[str, ...]
    reason: str | None
    params: dict[str, Any] = {}
    """The params of the run, for the templates of the tool."""
    value_without_defaults: dict[str, Any] | None = None
    """The arguments without the defaults that were filled in. Null: there were none to fill in."""
    deferred: bool = False
    """Whether a rule deferred it until a person lifts that. The run does not wait for the answer; it is suspended."""


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a finished run."""

    run: str
    agent: str
    status: OutcomeStatus
    replayed: bool
    """Whether the run was replayed from a cassette. No model was asked."""
    answer: str | None
    """The final text. Null: the run failed."""
    output: Any | UnsetType = UNSET
    """The parsed answer of an agent with an output contract. Unset: there is none."""
    label: AnswerLabel | None
    """Why the answer of a completed run may be incomplete."""
    turns: int
    usage: Usage
    """The sum over all calls. Null: a call did not report it."""
    tokens: int
    """Tokens that count against the budget: as reported, else as reserved. Includes sub-agents."""
    cost: int
    """Micro-dollars, including sub-agents. Also 0 if the model has no price."""
    tool_calls: int
    """Calls that ran, including those of sub-agents."""
    runs: int = 0
    """Sub-agents that were started, at any depth."""
    fault: Fault | None
    """Why the run failed."""
    attempt: int
    """The number of requests in the last turn."""
    seq: int
    """The number of the terminal record."""

    @property
    def cause(self) -> dict[str, Any]:
        """Where a failure comes from: run, turn, attempt, call, record, the part at fault, the rules involved."""
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
        return self.fault.fields if self.fault else {}

    @property
    def retry(self) -> RetryClass | None:
        return code_of(self.fault.code).retry if self.fault else None

    @property
    def exit_code(self) -> int:
        return code_of(self.fault.code).exit if self.fault else 0


class Suspended(Struct, frozen=True, kw_only=True):
    """A run that waits for someone outside. It is not over and can be resumed."""

    run: str
    agent: str
    questions: tuple[Question, ...]
    waits_for: tuple[str, ...]
    """Calls whose outcome is not known, that a rule deferred, or whose sub-agent waits."""
    until: int | None = None
    """The first time at which a resume asks a rule again that deferred something, in milliseconds since 1970. Null:
    there is no such time."""
    exit_code: int = SUSPENDED_EXIT


class Parked(Struct, frozen=True, kw_only=True):
    """A run that its host left before it was over. Nothing is running, and it can be resumed."""

    run: str
    agent: str
    seq: int
    """The number of the last record."""
    exit_code: int = SUSPENDED_EXIT


Ending: TypeAlias = Outcome | Suspended | Parked


def suspended_outcome(state: State, questions: tuple[Question, ...], waits_for: tuple[str, ...]) -> Suspended:
    times = [gate.until for gate in (state.gate, *(call.gate for call in state.calls)) if gate.until is not None]
    return Suspended(
        run=state.started.run,
        agent=state.started.agent,
        questions=questions,
        waits_for=waits_for,
        until=min(times, default=None),
    )


def outcome_of(state: State) -> Outcome:
    assert state.stopped is not None
    stopped = state.stopped
    return Outcome(
        run=state.started.run,
        agent=state.started.agent,
        status=stopped.status,
        replayed=state.started.replayed,
        answer=answer_of(state) if stopped.status == "completed" else None,
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
    """The answer: the text of the reply, unless a terminal tool, a hook or a rule replaced it."""
    if state.ending.answer is not None:
        return state.ending.answer
    return state.replies.earlier_text + (state.replies.latest.message.text if state.replies.latest else "")
