"""The data that assertions check, read from the journals of a case, and the result of an assertion.

Rule 1  For a conversation: the last answer, the last outcome, all calls and the total spend.
Rule 2  What a call, a ruling and an approval is: `core/trajectory.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct

from agentrun.canonical_json import sorted_json
from agentrun.core import facts
from agentrun.core.json_validation import Valid, ValidationResult, parse_strict_json
from agentrun.core.trajectory import ObservedApproval, ObservedCall, ObservedRuling, Trajectory
from agentrun.engine.run import FinishedRun
from agentrun.spec.safe_text import SHORT_TEXT_LENGTH, short_text
from agentrun.testing.suite.replay import CaseRuns

MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_ANSWER_DEPTH = 64
MAX_DETAIL_LINES = 40


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
    trajectories = [run_trajectory(run) for run in case_runs.runs]
    endings = [run.ending for run in case_runs.runs]
    return Evidence(
        output=None if last is None else last.answer,
        outcome=case_runs.outcome_code,
        params=starts[0].params if starts and isinstance(starts[0], facts.RunStarted) else {},
        calls=tuple([call for trajectory in trajectories for call in trajectory.calls]),
        rulings=tuple([ruling for trajectory in trajectories for ruling in trajectory.rulings]),
        approvals=tuple([approval for trajectory in trajectories for approval in trajectory.approvals]),
        tokens=sum([each.tokens for each in endings]),
        cost=sum([each.cost for each in endings]),
        turns=sum([each.turns for each in endings]),
        time=sum([run.journal[-1].at - run.journal[0].at for run in case_runs.runs]),
        runs=case_runs.runs,
    )


def run_trajectory(run: FinishedRun) -> Trajectory:
    return Trajectory(run.journal, lambda child: run.children.get(child, ()))


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
