"""What assertions look at: all that can be said of the runs of a case, read from their journals.

Rule 1  A conversation is looked at as a whole: its last answer and its last outcome, all its calls, the sum of what it
        spent.
Rule 2  What is quoted from it is first rid of what must not be shown, and then cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentrun.core.call_validation import parse_arguments
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.evolve import fold
from agentrun.core.facts import (
    APPROVED_ANSWERS,
    ApprovalAnswered,
    ApprovalAsked,
    CallCancelled,
    CallRefused,
    CallSettled,
    ChildStarted,
    Fact,
    HookAnswered,
    ModelReplied,
    Modify,
    Record,
    ReplyDiscarded,
    Ruled,
    RunStarted,
    ToolFinished,
)
from agentrun.core.json_validation import Valid, ValidationResult, parse_strict_json
from agentrun.core.messages import words
from agentrun.core.outcome import Outcome
from agentrun.engine.run import FinishedRun
from agentrun.spec.safe_text import SHORT_TEXT_LENGTH, short_text
from agentrun.testing.suite.replay import CaseRuns

MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_ANSWER_DEPTH = 64


class Evidence(Struct, frozen=True, kw_only=True):
    """A case as it went. A function of an assertion of type `python` is given one."""

    output: str | None
    """The answer. None: there is none."""
    outcome: str
    """`completed`, `suspended`, or the code that it stopped with."""
    params: dict[str, Any]
    """The agent's params, with their defaults."""
    calls: tuple[ObservedCall, ...]
    """What the model asked for, in order: `id`, `tool`, `args`, `status`, `result`, `turn`."""
    rulings: tuple[ObservedRuling, ...]
    """What the policy said: `target`, `stage`, `ruling`, `rules`, `reason`."""
    approvals: tuple[ObservedApproval, ...]
    """What people said: `target`, `answer`, `by`."""
    tokens: int
    """Tokens in and out, with those of sub-agents."""
    cost: int
    """Micro-dollars, with those of sub-agents."""
    turns: int
    """How often the model was asked."""
    time: int
    """Milliseconds by the clock of the runs."""
    runs: tuple[FinishedRun, ...]
    """The runs with their journals: of a conversation, one for each turn."""

    @property
    def json(self) -> Any:
        """The answer as JSON, each time anew. None: it is none."""
        found = parse_answer.__wrapped__(self.output)
        return found.value if isinstance(found, Valid) else None

    def quoted(self, text: str, most: int = SHORT_TEXT_LENGTH) -> str:
        """A text of the runs as part of a line."""
        for run in self.runs:
            text = run.redaction.text(text)
        return short_text(text, most)

    def in_quotes(self, text: str) -> str:
        return f'"{self.quoted(text)}"'


@lru_cache(maxsize=8)
def parse_answer(text: str | None) -> ValidationResult | None:
    """The JSON of an answer, or why it is none. None: there is no answer."""
    return None if text is None else parse_strict_json(text, max_bytes=MAX_ANSWER_BYTES, max_depth=MAX_ANSWER_DEPTH)


def collect_evidence(played: CaseRuns) -> Evidence:
    """The evidence of a whole case."""
    ends = [run.ending for run in played.runs]
    last = ends[-1] if ends and played.start_error is None else None
    starts = [run.journal[0].fact for run in played.runs[:1]]
    trails = [Trajectory(run) for run in played.runs]
    spent = [_run_totals(run) for run in played.runs]
    return Evidence(
        output=last.answer if isinstance(last, Outcome) else None,
        outcome=_outcome_code(played),
        params=starts[0].params if starts and isinstance(starts[0], RunStarted) else {},
        calls=tuple([call for trail in trails for call in trail.calls]),
        rulings=tuple([ruling for trail in trails for ruling in trail.rulings]),
        approvals=tuple([approval for trail in trails for approval in trail.approvals]),
        tokens=sum([tokens for tokens, _, _ in spent]),
        cost=sum([cost for _, cost, _ in spent]),
        turns=sum([turns for _, _, turns in spent]),
        time=sum([run.journal[-1].at - run.journal[0].at for run in played.runs]),
        runs=played.runs,
    )


def _run_totals(run: FinishedRun) -> tuple[int, int, int]:
    """Tokens, micro-dollars and turns. A run that waits has spent something too."""
    if isinstance(run.ending, Outcome):
        return run.ending.tokens, run.ending.cost, run.ending.turns
    state = fold(run.journal)
    return state.meter.tokens, state.meter.cost, state.turns


def _outcome_code(played: CaseRuns) -> str:
    if played.start_error is not None:
        return played.start_error.code
    end = played.runs[-1].ending
    return "suspended" if not isinstance(end, Outcome) else end.code or "completed"


# --- what a run did, step by step, read from its journal: calls, rulings, and answers of people ---------------


OPEN_STATUS = "open"
"""The status of a call that has not ended: the run waits, or ended before it."""


class ObservedCall(Struct, frozen=True, kw_only=True):
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


class ObservedRuling(Struct, frozen=True, kw_only=True):
    """What the policy said about something."""

    subject: str
    target: str
    """The tool, sink or stage that it is about."""
    stage: str
    ruling: str
    rules: tuple[str, ...]
    reason: str | None


class ObservedApproval(Struct, frozen=True, kw_only=True):
    """What a person said when asked."""

    subject: str
    target: str
    answer: str
    by: str


class Trajectory:
    """What a run and its sub-agents did, in order."""

    def __init__(self, run: FinishedRun) -> None:
        self.calls: list[ObservedCall] = []
        self.rulings: list[ObservedRuling] = []
        self.approvals: list[ObservedApproval] = []
        self._children = run.children
        self._seen: set[str] = set()
        self.walk(run.journal, "")

    def walk(self, records: Iterable[Record], above: str) -> None:
        """`above`: the tools that lead to the agent, each with a slash."""
        steps = _TrajectoryReader(self, above)
        for record in records:
            steps.read_fact(record.fact)

    def walk_child(self, run: str, above: str) -> None:
        if run not in self._seen:  # one that slept is started again
            self._seen.add(run)
            self.walk(self._children.get(run, ()), above)


class _TrajectoryReader:
    """Reads the journal of one agent."""

    def __init__(self, trail: Trajectory, above: str) -> None:
        self._trail = trail
        self._above = above
        self._call_indexes: dict[str, int] = {}
        """Where each call stands in the trail."""
        self._question_targets: dict[str, str] = {}
        """What each question is about."""
        self._denied: set[str] = set()
        self._latest = 0
        """Where the calls of the latest reply begin."""

    def read_fact(self, fact: Fact) -> None:
        match fact:
            case ModelReplied():
                self._add_calls(fact)
            case ReplyDiscarded():
                del self._trail.calls[self._latest :]  # the model is asked again, and none of them was looked at
            case ToolFinished():
                self._end_call(fact.call, fact.fault.code if fact.fault else "ok", words(fact.parts))
            case CallRefused():
                self._end_call(fact.call, fact.code, fact.told)
            case CallCancelled():
                self._end_call(fact.call, "tool.denied" if fact.call in self._denied else "tool.aborted", fact.told)
            case CallSettled(how="result"):
                self._end_call(fact.call, "ok", words(fact.parts))
            case CallSettled(how="stop"):
                self._end_call(fact.call, "tool.indeterminate", "")
            case ChildStarted():
                self._trail.walk_child(fact.run, f"{self._above}{fact.tool}/")
            case Ruled():
                self._add_ruling(fact)
            case HookAnswered(point="before_tool", closes=True):
                self._denied.add(fact.subject)
            case HookAnswered(point="after_tool", answer=Modify(value)):
                self._replace_result(fact.subject, str(value))
            case ApprovalAsked():
                self._question_targets[fact.question] = fact.target
            case ApprovalAnswered():
                self._add_approval(fact)

    def _add_calls(self, fact: ModelReplied) -> None:
        calls = self._trail.calls
        self._latest = len(calls)
        for call in fact.reply.message.calls:
            self._call_indexes[call.id] = len(calls)
            calls.append(
                ObservedCall(
                    id=call.id,
                    tool=self._above + call.tool,
                    args=parse_arguments(call.arguments),
                    status=OPEN_STATUS,
                    result="",
                    turn=fact.turn,
                )
            )

    def _end_call(self, call: str, status: str, result: str) -> None:
        at = self._call_indexes[call]
        self._trail.calls[at] = replace(self._trail.calls[at], status=status, result=result)

    def _replace_result(self, call: str, result: str) -> None:
        at = self._call_indexes[call]
        self._trail.calls[at] = replace(self._trail.calls[at], result=result)

    def _add_ruling(self, fact: Ruled) -> None:
        if fact.stage == "tool_call" and fact.ruling in ("deny", "interrupt"):
            self._denied.add(fact.subject)
        if fact.stage == "tool_result" and isinstance(fact.text, str):
            self._replace_result(fact.subject, fact.text)
        self._trail.rulings.append(
            ObservedRuling(
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
            return self._trail.calls[self._call_indexes[fact.subject]].tool
        delivery = parse_effect_id(fact.subject)
        return self._above + (delivery.sink if isinstance(delivery, DeliveryId) else fact.stage)

    def _add_approval(self, fact: ApprovalAnswered) -> None:
        if fact.answer not in APPROVED_ANSWERS:
            self._denied.add(fact.subject)
        target = self._above + self._question_targets.get(fact.question, fact.subject)
        self._trail.approvals.append(
            ObservedApproval(subject=fact.subject, target=target, answer=fact.answer, by=fact.by)
        )
