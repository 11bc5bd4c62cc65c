"""What assertions look at: all that can be said of the runs of a case, read from their journals."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from agentrun.core.facts import RunStarted
from agentrun.core.outcome import Outcome
from agentrun.engine.assemble import FinishedRun
from agentrun.testing.suite.played import Played
from agentrun.testing.suite.trail import ApprovalSeen, Call, RulingSeen, Trail


class Evidence(Struct, frozen=True, kw_only=True):
    output: str | None
    """The answer. None: there is none."""
    outcome: str
    """`completed`, `suspended`, or the code that it stopped with."""
    params: dict[str, Any]
    calls: tuple[Call, ...]
    rulings: tuple[RulingSeen, ...]
    approvals: tuple[ApprovalSeen, ...]
    tokens: int
    cost: int
    """Micro-dollars."""
    turns: int
    time: int
    """Milliseconds by the clock of the runs."""
    runs: tuple[FinishedRun, ...]


def evidence_of(played: Played) -> Evidence:
    """The evidence of a whole case: of a conversation the last answer, and the sum of all it spent."""
    ends = [run.ended for run in played.runs]
    over = [end for end in ends if isinstance(end, Outcome)]
    last = over[-1] if over and played.error is None and ends[-1] is over[-1] else None
    starts = [record.fact for run in played.runs for record in run.journal if isinstance(record.fact, RunStarted)]
    trails = [Trail(run) for run in played.runs]
    return Evidence(
        output=last.answer if last else None,
        outcome=_outcome(played),
        params=starts[0].params if starts else {},
        calls=tuple(call for trail in trails for call in trail.calls),
        rulings=tuple(ruling for trail in trails for ruling in trail.rulings),
        approvals=tuple(approval for trail in trails for approval in trail.approvals),
        tokens=sum(end.tokens for end in over),
        cost=sum(end.cost for end in over),
        turns=sum(end.turns for end in over),
        time=sum(run.journal[-1].at - run.journal[0].at for run in played.runs),
        runs=played.runs,
    )


def _outcome(played: Played) -> str:
    if played.error is not None:
        return played.error.code
    end = played.runs[-1].ended
    return "suspended" if not isinstance(end, Outcome) else end.code or "completed"
