"""The data that assertions check, read from the journals of a case, and the result of an assertion.

Rule 1  For a conversation: the last answer, the last outcome, all calls and the total spend.
Rule 2  A call counts with the arguments of the model, whether it ran or not. `status` is how it ended, and `result` the
        text that the model got, even after a hook or a rule changed it.
Rule 3  The calls of a sub-agent follow its own call, named after the tool that calls it: `read/library.search`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.core import facts
from agentrun.core.call_validation import parse_arguments
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.evolve import fold
from agentrun.core.json_validation import Valid, ValidationResult, parse_strict_json
from agentrun.core.messages import text_of
from agentrun.core.outcome import Outcome
from agentrun.engine.run import FinishedRun
from agentrun.spec.safe_text import SHORT_TEXT_LENGTH, short_text
from agentrun.testing.suite.replay import CaseRuns

MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_ANSWER_DEPTH = 64
MAX_DETAIL_LINES = 40
OK_STATUS = "ok"
OPEN_STATUS = "open"
"""The status of a call that has not ended, because the run is suspended or ended before."""


class Evidence(Struct, frozen=True, kw_only=True):
    """The data of a case. Functions of `python` assertions get one."""

    output: str | None
    """The answer. None: there is none."""
    outcome: str
    """`completed`, `suspended`, or the code that it stopped with."""
    params: dict[str, Any]
    """The agent's params, with their defaults."""
    calls: tuple[ObservedCall, ...]
    """The tool calls of the model in order: `id`, `tool`, `args`, `status`, `result`, `turn`."""
    rulings: tuple[ObservedRuling, ...]
    """The rulings of the policy: `target`, `stage`, `ruling`, `rules`, `reason`."""
    approvals: tuple[ObservedApproval, ...]
    """The answers to approvals: `target`, `answer`, `by`."""
    tokens: int
    """Input and output tokens, including sub-agents."""
    cost: int
    """Micro-dollars, including sub-agents."""
    turns: int
    """The number of model turns."""
    time: int
    """Milliseconds by the clock of the runs."""
    runs: tuple[FinishedRun, ...]
    """The runs with their journals: one, or one for each turn of a conversation."""

    @property
    def json(self) -> Any:
        """The answer as JSON, a new copy each time. None: it is not JSON."""
        parsed = parse_answer.__wrapped__(self.output)
        return parsed.value if isinstance(parsed, Valid) else None

    def quoted(self, text: str, most: int = SHORT_TEXT_LENGTH) -> str:
        """A text of the runs, redacted and cut, as part of a line."""
        for run in self.runs:
            text = run.redaction.text(text)
        return short_text(text, most)

    def in_quotes(self, text: str) -> str:
        return f'"{self.quoted(text)}"'


@lru_cache(maxsize=8)
def parse_answer(text: str | None) -> ValidationResult | None:
    """The answer as JSON, or why it is not JSON. None: there is no answer."""
    return None if text is None else parse_strict_json(text, max_bytes=MAX_ANSWER_BYTES, max_depth=MAX_ANSWER_DEPTH)


def collect_evidence(case_runs: CaseRuns) -> Evidence:
    last = case_runs.runs[-1].ending if case_runs.runs and case_runs.start_error is None else None
    starts = [run.journal[0].fact for run in case_runs.runs[:1]]
    trajectories = [Trajectory(run) for run in case_runs.runs]
    spent = [_run_totals(run) for run in case_runs.runs]
    return Evidence(
        output=last.answer if isinstance(last, Outcome) else None,
        outcome=case_runs.outcome_code,
        params=starts[0].params if starts and isinstance(starts[0], facts.RunStarted) else {},
        calls=tuple([call for trajectory in trajectories for call in trajectory.calls]),
        rulings=tuple([ruling for trajectory in trajectories for ruling in trajectory.rulings]),
        approvals=tuple([approval for trajectory in trajectories for approval in trajectory.approvals]),
        tokens=sum([tokens for tokens, _, _ in spent]),
        cost=sum([cost for _, cost, _ in spent]),
        turns=sum([turns for _, _, turns in spent]),
        time=sum([run.journal[-1].at - run.journal[0].at for run in case_runs.runs]),
        runs=case_runs.runs,
    )


def _run_totals(run: FinishedRun) -> tuple[int, int, int]:
    """Tokens, micro-dollars and turns, including those of a suspended run."""
    if isinstance(run.ending, Outcome):
        return run.ending.tokens, run.ending.cost, run.ending.turns
    state = fold(run.journal)
    return state.meter.tokens, state.meter.cost, state.turns


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

    def __init__(self, run: FinishedRun) -> None:
        self.calls: list[ObservedCall] = []
        self.rulings: list[ObservedRuling] = []
        self.approvals: list[ObservedApproval] = []
        self.children = run.children
        self.seen: set[str] = set()
        _TrajectoryReader(self, "").read(run.journal)


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
                child.read(self._trajectory.children.get(fact.run, ()))
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


# --- results of assertions --------------------------------------------------------------------------------------------


class AssertionResult(NamedTuple):
    holds: bool
    describe: Callable[[], str]
    """The actual value in one line, with details in further lines. Called only for a failure."""


class CannotEvaluate(Exception):
    def __init__(self, words: str, hint: str | None = None) -> None:
        super().__init__(words)
        self.message = words
        self.hint = hint


def no_answer_text(evidence: Evidence) -> str:
    return f"there is no answer: the outcome is {evidence.outcome}"


def sorted_json_text(value: Any) -> str:
    return sorted_json(value).decode()


def indent_list(lines: Iterable[str]) -> str:
    every = list(lines)
    more = [f"  … and {len(every) - MAX_DETAIL_LINES} more"] if len(every) > MAX_DETAIL_LINES else []
    return "\n".join([*(f"  {line}" for line in every[:MAX_DETAIL_LINES]), *more])
