"""What happens next: a function of the package and the state.

Rule 1  Nothing here changes anything. After a fold the pending work is a function of the state, so a resume
        needs no bookkeeping.
Rule 2  Every judgement is committed as a fact with its reason.
Rule 3  Whatever the phase: a run that was cancelled, or has taken too long, stops.

    starting   the input passes hooks and policy         think.py
    thinking   ask the model, if the budgets let us      think.py
    asking     wait                                      waiting.py
    failed     send again, switch the route, or stop     judge.py
    waiting    wait, then ask again                      waiting.py
    answered   calls, or an answer?                      judge.py
    acting     the calls run                             tool_calls.py
    ending     the answer is looked at and delivered     finish.py
    stopping   hooks hear of it                          stop.py
    stopped    finished                                  waiting.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from agentrun.core.budget import deadline, out_of_time
from agentrun.core.facts_base import Fault
from agentrun.core.finish import end
from agentrun.core.judge import failed, go_on, judge
from agentrun.core.package import Package
from agentrun.core.state import Phase, State
from agentrun.core.steps import Commit, Finished, Next, Perform, Wait
from agentrun.core.stop import fail, stopping
from agentrun.core.think import start, think
from agentrun.core.waiting import give_outcome, wait_for_reply, wait_for_retry, wait_for_start

__all__ = ["Commit", "Finished", "Next", "Perform", "Wait", "decide"]

STEPS: Mapping[Phase, Callable[[Package, State], Next]] = {
    "fresh": wait_for_start,
    "starting": start,
    "thinking": think,
    "asking": wait_for_reply,
    "failed": failed,
    "waiting": wait_for_retry,
    "answered": judge,
    "acting": go_on,
    "ending": end,
    "stopping": stopping,
    "stopped": give_outcome,
}
"""What is done in each phase."""


def decide(package: Package, state: State) -> Next:
    """The next step of a run."""
    if state.cancelled is not None and state.phase not in ("stopping", "stopped"):
        return _cancelled(package, state, state.cancelled.by)
    limit = deadline(package, state)
    return STEPS[state.phase](package, state) if limit is None else _in_time(package, state, limit)


def _cancelled(package: Package, state: State, by: str) -> Next:
    return fail(package, state, Fault("cancelled", f"the run was cancelled by {by}", {"by": by}))


def _in_time(package: Package, state: State, limit: int) -> Next:
    """The next step, and the moment at which the run will have taken too long, if it is not over."""
    if state.now >= limit and state.phase not in ("stopping", "stopped"):
        return fail(package, state, out_of_time(package, state))
    next = STEPS[state.phase](package, state)
    if isinstance(next, Commit | Finished) or (isinstance(next, Wait) and not next.inflight and next.deadline is None):
        return next  # nothing is waited for, or only people are, and that takes no time
    if state.phase == "stopping":
        return next  # its hooks have times of their own
    return replace(next, deadline=limit if next.deadline is None else min(limit, next.deadline))
