"""What assertions look at: all that can be said of the runs of a case, read from their journals.

Rule 1  A conversation is looked at as a whole: its last answer and its last outcome, all its calls, the sum of what it
        spent.
Rule 2  What is quoted from it is first rid of what must not be shown, and then cut.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import Struct

from agentrun.core.evolve import fold
from agentrun.core.facts import RunStarted
from agentrun.core.outcome import Outcome
from agentrun.core.output import Checked, Kept, parse
from agentrun.engine.run import FinishedRun
from agentrun.spec.text import SHORT, short
from agentrun.testing.suite.played import Played
from agentrun.testing.suite.trail import ApprovalSeen, Call, RulingSeen, Trail

LARGEST = 16 * 1024 * 1024
DEEPEST = 64


class Evidence(Struct, frozen=True, kw_only=True):
    """A case as it went. A function of an assertion of type `python` is given one."""

    output: str | None
    """The answer. None: there is none."""
    outcome: str
    """`completed`, `suspended`, or the code that it stopped with."""
    params: dict[str, Any]
    """The agent's params, with their defaults."""
    calls: tuple[Call, ...]
    """What the model asked for, in order: `id`, `tool`, `args`, `status`, `result`, `turn`."""
    rulings: tuple[RulingSeen, ...]
    """What the policy said: `target`, `stage`, `ruling`, `rules`, `reason`."""
    approvals: tuple[ApprovalSeen, ...]
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
        found = json_of.__wrapped__(self.output)
        return found.value if isinstance(found, Kept) else None

    def quoted(self, text: str, most: int = SHORT) -> str:
        """A text of the runs as part of a line."""
        for run in self.runs:
            text = run.redaction.text(text)
        return short(text, most)

    def in_quotes(self, text: str) -> str:
        return f'"{self.quoted(text)}"'


@lru_cache(maxsize=8)
def json_of(text: str | None) -> Checked | None:
    """The JSON of an answer, or why it is none. None: there is no answer."""
    return None if text is None else parse(text, max_bytes=LARGEST, max_depth=DEEPEST)


def evidence_of(played: Played) -> Evidence:
    """The evidence of a whole case."""
    ends = [run.ended for run in played.runs]
    last = ends[-1] if ends and played.error is None else None
    starts = [run.journal[0].fact for run in played.runs[:1]]
    trails = [Trail(run) for run in played.runs]
    spent = [_spent(run) for run in played.runs]
    return Evidence(
        output=last.answer if isinstance(last, Outcome) else None,
        outcome=_outcome(played),
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


def _spent(run: FinishedRun) -> tuple[int, int, int]:
    """Tokens, micro-dollars and turns. A run that waits has spent something too."""
    if isinstance(run.ended, Outcome):
        return run.ended.tokens, run.ended.cost, run.ended.turns
    state = fold(run.journal)
    return state.meter.tokens, state.meter.cost, state.turns


def _outcome(played: Played) -> str:
    if played.error is not None:
        return played.error.code
    end = played.runs[-1].ended
    return "suspended" if not isinstance(end, Outcome) else end.code or "completed"
