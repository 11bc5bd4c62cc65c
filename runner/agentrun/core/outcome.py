"""How the work on a run ended. This is read from its state, and so from its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeAlias

from msgspec import UNSET, Struct, to_builtins

from agentrun.core.facts import AnswerLabel, Record
from agentrun.core.fault import Fault
from agentrun.core.messages import Usage
from agentrun.core.state import State
from agentrun.errors import SUSPENDED_EXIT, RetryClass, code_of, error_with_code, open_run_error

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # has defaults, which `typing` has since Python 3.13

    from agentrun.core.trajectory import ObservedCall, RunTrail

    OutputT = TypeVar("OutputT", default=Any)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")

EndingStatus: TypeAlias = Literal["completed", "failed", "suspended", "parked"]
"""completed, failed: the run is finished. suspended: it waits for someone outside. parked: its host left it before it
was over. A suspended or parked run can be resumed."""


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


class Outcome(Struct, Generic[OutputT], frozen=True, kw_only=True, dict=True):
    """How the work on a run ended. It has no truth value: use `ok` or `status`."""

    run: str
    """The id of the run."""
    agent: str
    """The name of the agent."""
    status: EndingStatus
    """`completed`, `failed`, `suspended` or `parked`."""
    replayed: bool
    """Whether the run was replayed from a cassette. No model was asked."""
    answer: str | None = None
    """The final text. Null: the run is not completed."""
    output: OutputT | None = None
    """The parsed answer of an agent with an output contract. Null: there is none."""
    label: AnswerLabel | None = None
    """Why the answer of a completed run may be incomplete."""
    turns: int
    """Replies of the model."""
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
    fault: Fault | None = None
    """Why the run failed."""
    attempt: int
    """The number of requests in the last turn."""
    seq: int
    """The number of the last record."""
    questions: tuple[Question, ...] = ()
    """What a suspended run asks people."""
    waits_for: tuple[str, ...] = ()
    """Calls of a suspended run whose outcome is not known, that a rule deferred, or whose sub-agent waits."""
    until: int | None = None
    """The first time at which a resume asks a rule again that deferred something, in milliseconds since 1970. Null:
    there is no such time."""

    def __bool__(self) -> NoReturn:
        """A failed outcome would be true, so this raises TypeError."""
        raise TypeError("an outcome has no truth value: use outcome.ok, or compare outcome.status")

    @property
    def ok(self) -> bool:
        """Whether the run is completed."""
        return self.status == "completed"

    @property
    def is_finished(self) -> bool:
        """Whether the run is completed or failed. Otherwise it can be resumed."""
        return self.status in ("completed", "failed")

    @property
    def text(self) -> str:
        """The final text, or an empty text if the run is not completed."""
        return self.answer or ""

    @property
    def journal(self) -> tuple[Record, ...]:
        """The records of the run. Empty for an outcome that was not made by a run or a runtime."""
        trail = self._trail
        return () if trail is None else trail.journal

    @property
    def calls(self) -> tuple[ObservedCall, ...]:
        """The tool calls of the model in order, with those of sub-agents. Empty where `journal` is."""
        trail = self._trail
        return () if trail is None else trail.calls

    @property
    def _trail(self) -> RunTrail | None:
        found: RunTrail | None = self.__dict__.get("trail")
        return found

    def with_trail(self, trail: RunTrail | None) -> Self:
        """Attach the journal. It is no field: equal runs have equal outcomes, and it is read when it is used."""
        self.__dict__["trail"] = trail
        return self

    def with_trail_of(self, other: Outcome) -> Self:
        """Attach the journal of another outcome."""
        return self.with_trail(other._trail)

    def raise_for_status(self) -> Self:
        """Return the outcome of a completed run. Raise the error of a failed one, and `run.invalid_state` for a run
        that is suspended or parked."""
        if self.fault is not None:
            fields = {"run": self.run, **self.fault.fields}
            raise error_with_code(self.fault.code, self.fault.message, hint=self.fault.hint, fields=fields)
        if not self.ok:
            raise open_run_error(self.run, self.status, [question.target for question in self.questions])
        return self

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
        """The error code of a failed run."""
        return self.fault.code if self.fault else None

    @property
    def fields(self) -> dict[str, Any]:
        """The data of the error, for programs."""
        return self.fault.fields if self.fault else {}

    @property
    def retry(self) -> RetryClass | None:
        """What can be done about the error: whether the same run may work later, or who has to act."""
        return code_of(self.fault.code).retry if self.fault else None

    @property
    def exit_code(self) -> int:
        """The exit code that a command would have."""
        if not self.is_finished:
            return SUSPENDED_EXIT
        return code_of(self.fault.code).exit if self.fault else 0

    def as_json(self) -> dict[str, Any]:
        """The fields that apply to this status, as the commands print them."""
        data: dict[str, Any] = to_builtins(self)
        match self.status:
            case "suspended":
                names: tuple[str, ...] = ("run", "agent", "questions", "waits_for", "until")
            case "parked":
                names = ("run", "agent", "seq")
            case _:
                return {key: value for key, value in data.items() if key not in _only_if_open(self)}
        return {**{name: data[name] for name in names}, "exit_code": self.exit_code}


def _only_if_open(outcome: Outcome) -> tuple[str, ...]:
    return ("questions", "waits_for", "until", *(("output",) if outcome.output is None else ()))


def suspended_outcome(state: State, questions: tuple[Question, ...], waits_for: tuple[str, ...]) -> Outcome:
    times = [gate.until for gate in (state.gate, *(call.gate for call in state.calls)) if gate.until is not None]
    until = min(times, default=None)
    return _outcome(state, "suspended", questions=questions, waits_for=waits_for, until=until)


def parked_outcome(state: State) -> Outcome:
    return _outcome(state, "parked")


def interrupted_outcome(state: State, fault: Fault) -> Outcome:
    """The outcome of a run that this fault interrupted. The journal does not have it."""
    return _outcome(state, "failed", fault=fault)


def outcome_of(state: State) -> Outcome:
    assert state.stopped is not None
    stopped = state.stopped
    return _outcome(
        state,
        stopped.status,
        answer=answer_of(state) if stopped.status == "completed" else None,
        output=None if stopped.output is UNSET else stopped.output,
        label=stopped.label,
        fault=stopped.fault,
    )


def _outcome(state: State, status: EndingStatus, **fields: Any) -> Outcome:
    return Outcome(
        run=state.started.run,
        agent=state.started.agent,
        status=status,
        replayed=state.started.replayed,
        turns=state.turns,
        usage=state.meter.usage,
        tokens=state.meter.tokens,
        cost=state.meter.cost,
        tool_calls=state.meter.tool_calls,
        runs=state.meter.runs,
        attempt=state.attempt,
        seq=state.seq,
        **fields,
    )


def answer_of(state: State) -> str:
    """The answer: the text of the reply, unless a terminal tool, a hook or a rule replaced it."""
    if state.ending.answer is not None:
        return state.ending.answer
    return state.replies.earlier_text + (state.replies.latest.message.text if state.replies.latest else "")
