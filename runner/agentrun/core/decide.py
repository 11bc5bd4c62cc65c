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

from agentrun.core.budget import run_deadline, time_fault
from agentrun.core.effects import Commit, Effect, Finished, Intent, NextStep, Perform, RunChild, Wait, intent
from agentrun.core.facts import ChildStarted, fact_kind
from agentrun.core.fault import Fault
from agentrun.core.model_reply import process_reply
from agentrun.core.model_request import check_input, request_reply
from agentrun.core.outcome import outcome_of
from agentrun.core.package import Package
from agentrun.core.retry import retry_or_fail
from agentrun.core.run_end import close_run, deliver_answer, fail
from agentrun.core.state import Phase, State, pending_effects
from agentrun.core.tool_calls import advance_calls
from agentrun.errors import StorageError

__all__ = ["Commit", "Finished", "NextStep", "Perform", "Wait", "decide"]


# --- the phases in which there is nothing to decide: the run waits, or it is over -----------------------------


def wait_for_start(_: Package, __: State) -> NextStep:
    """Nothing happened yet."""
    return Wait()


def wait_for_reply(_: Package, state: State) -> NextStep:
    """A request is under way."""
    return Wait(inflight=pending_effects(state))


def wait_for_retry(package: Package, state: State) -> NextStep:
    """Ask again, when it is time."""
    return request_reply(package, state) if state.now >= state.requests.until else Wait(deadline=state.requests.until)


def give_outcome(_: Package, state: State) -> NextStep:
    """It is over."""
    return Finished(outcome_of(state))


# --- what happens next: a function of the package and the state -----------------------------------------------


PHASE_STEPS: Mapping[Phase, Callable[[Package, State], NextStep]] = {
    "fresh": wait_for_start,
    "starting": check_input,
    "thinking": request_reply,
    "asking": wait_for_reply,
    "failed": retry_or_fail,
    "waiting": wait_for_retry,
    "answered": process_reply,
    "acting": advance_calls,
    "ending": deliver_answer,
    "stopping": close_run,
    "stopped": give_outcome,
}
"""What is done in each phase."""


def decide(package: Package, state: State) -> NextStep:
    """The next step of a run."""
    if state.cancelled is not None and state.phase not in ("stopping", "stopped"):
        return _cancel(package, state, state.cancelled.by)
    limit = run_deadline(package, state)
    return PHASE_STEPS[state.phase](package, state) if limit is None else _step_with_deadline(package, state, limit)


def _cancel(package: Package, state: State, by: str) -> NextStep:
    return fail(package, state, Fault("cancelled", f"the run was cancelled by {by}", {"by": by}))


def _step_with_deadline(package: Package, state: State, limit: int) -> NextStep:
    """The next step, and the moment at which the run will have taken too long, if it is not over."""
    if state.now >= limit and state.phase not in ("stopping", "stopped"):
        return fail(package, state, time_fault(package, state))
    next = PHASE_STEPS[state.phase](package, state)
    if isinstance(next, Commit | Finished) or (isinstance(next, Wait) and not next.inflight and next.deadline is None):
        return next  # nothing is waited for, or only people are, and that takes no time
    if state.phase == "stopping":
        return next  # its hooks have times of their own
    return replace(next, deadline=limit if next.deadline is None else min(limit, next.deadline))


# --- from an intent back to its effect: what a journal says was about to be done ------------------------------


def effect_of_intent(package: Package, state: State, fact: Intent) -> Effect:
    """The effect that an intent stands for. `state` is the state before the intent was recorded.

    Raises `recovery.failed` if the package would not do exactly this in that state.
    """
    # Neither the deadline nor a cancellation is checked again: the intent was written, so both were in order.
    step = PHASE_STEPS[state.phase](package, state)
    effects = [_with_recorded_share(effect, fact) for effect in step.effects] if isinstance(step, Perform) else []
    found = [effect for effect in effects if intent(effect) == fact]
    if len(found) != 1:
        message = f"record {state.seq + 1} ({fact_kind(fact)}) stands for no effect of this package"
        raise StorageError("recovery.failed", message, fields={"seq": state.seq + 1})
    return found[0]


def _with_recorded_share(effect: Effect, fact: Intent) -> Effect:
    """The effect with the share that was written: what is left for a child also depends on the clock."""
    if not isinstance(effect, RunChild) or not isinstance(fact, ChildStarted) or effect.id != fact.call:
        return effect
    return replace(effect, parent=replace(effect.parent, share=fact.share))
