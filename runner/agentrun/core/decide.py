"""What happens next: a function of the package and the state.

Rule 1  Nothing here changes anything. After a fold the pending work is a function of the state, so a resume
        needs no bookkeeping.
Rule 2  Every judgement is committed as a fact with its reason.
Rule 3  Whatever the phase: a run that was cancelled, or has taken too long, stops.

    starting   the input passes hooks and policy         think.py
    thinking   ask the model, if the budgets let us      think.py
    asking     wait
    failed     send again, switch the route, or stop     judge.py
    waiting    wait, then ask again                      think.py
    answered   calls, or an answer?                      judge.py
    acting     the calls run                             act.py
    ending     the answer is looked at and delivered     finish.py
    stopping   hooks hear of it                          stop.py
    stopped    finished
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from agentrun.core.budget import deadline, out_of_time
from agentrun.core.facts_base import Fault
from agentrun.core.finish import end
from agentrun.core.judge import failed, go_on, judge
from agentrun.core.outcome import outcome_of
from agentrun.core.package import Package
from agentrun.core.state import State, under_way
from agentrun.core.steps import Commit, Finished, Next, Perform, Wait
from agentrun.core.stop import fail, stopping
from agentrun.core.think import start, think

__all__ = ["Commit", "Finished", "Next", "Perform", "Wait", "decide"]


def decide(package: Package, state: State) -> Next:
    """The next step of a run."""
    if state.phase in ("fresh", "stopping", "stopped"):
        return _decide(package, state)
    return _cancelled(package, state) if state.cancelled else _in_time(package, state)


def _cancelled(package: Package, state: State) -> Next:
    by = state.cancelled.by if state.cancelled else ""
    return fail(package, state, Fault("cancelled", f"the run was cancelled by {by}", {"by": by}))


def _in_time(package: Package, state: State) -> Next:
    """The next step, and the moment at which the run will have taken too long, if it is not over."""
    limit = deadline(package, state)
    if limit is None:
        return _decide(package, state)
    if state.now >= limit:
        return fail(package, state, out_of_time(package, state))
    next = _decide(package, state)
    if isinstance(next, Commit | Finished) or (isinstance(next, Wait) and not next.inflight and next.deadline is None):
        return next  # nothing is waited for, or only people are, and that takes no time
    return replace(next, deadline=limit if next.deadline is None else min(limit, next.deadline))


def _decide(package: Package, state: State) -> Next:
    match state.phase:
        case "fresh":
            return Wait()
        case "starting":
            return start(package, state)
        case "thinking":
            return think(package, state)
        case "asking":
            return Wait(inflight=under_way(state))
        case "failed":
            return failed(package, state)
        case "waiting":
            return think(package, state) if state.now >= state.until else Wait(deadline=state.until)
        case "answered":
            return judge(package, state)
        case "acting":
            return go_on(package, state)
        case "ending":
            return end(package, state)
        case "stopping":
            return stopping(package, state)
        case "stopped":
            return Finished(outcome_of(state))
        case _:
            assert_never(state.phase)
