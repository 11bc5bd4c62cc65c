"""What happens next: a function of the package and the state.

Rule 1  Nothing here changes state. The pending work follows from the state, so a resume needs no bookkeeping.
Rule 2  Every decision is committed as a fact with its reason.
Rule 3  In every phase: a run that was cancelled, or has taken too long, stops.

    starting   the input passes hooks and policy           model_request.py
    thinking   ask the model, if the budgets allow it      model_request.py
    asking     wait                                        here
    failed     send again, switch the route, or stop       retry.py
    waiting    wait, then ask again                        retry.py
    answered   tool calls, or an answer                    model_reply.py
    acting     the tool calls run                          tool_calls.py
    ending     the answer is checked and delivered         run_end.py
    stopping   calls are closed and hooks are informed     run_end.py
    stopped    finished                                    here
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from agentrun.core.budget import run_deadline, time_fault
from agentrun.core.call_gate import admit_call
from agentrun.core.effects import Commit, Effect, Finished, Intent, NextStep, Perform, RunChild, Wait, intent
from agentrun.core.facts import ChildStarted, fact_kind
from agentrun.core.fault import Fault
from agentrun.core.gate import GateResult
from agentrun.core.model_reply import process_reply
from agentrun.core.model_request import check_input, request_reply
from agentrun.core.outcome import Question, outcome_of
from agentrun.core.package import Package
from agentrun.core.retry import retry_or_fail, wait_for_retry
from agentrun.core.run_end import close_run, deliver_answer, fail
from agentrun.core.state import Phase, State, pending_effects
from agentrun.core.tool_calls import advance_calls
from agentrun.errors import StorageError

PHASE_STEPS: Mapping[Phase, Callable[[Package, State], NextStep]] = {
    "fresh": lambda package, state: Wait(),
    "starting": check_input,
    "thinking": request_reply,
    "asking": lambda package, state: Wait(inflight=pending_effects(state)),
    "failed": retry_or_fail,
    "waiting": wait_for_retry,
    "answered": process_reply,
    "acting": advance_calls,
    "ending": deliver_answer,
    "stopping": close_run,
    "stopped": lambda package, state: Finished(outcome_of(state)),
}


def decide(package: Package, state: State) -> NextStep:
    is_open = state.phase not in ("stopping", "stopped")
    if state.cancelled is not None and is_open:
        by = state.cancelled.by
        return fail(package, state, Fault("cancelled", f"the run was cancelled by {by}", {"by": by}))
    limit = run_deadline(package, state)
    if limit is not None and state.now >= limit and is_open:
        return fail(package, state, time_fault(package, state))
    next = PHASE_STEPS[state.phase](package, state)
    if limit is None or not is_open or isinstance(next, Commit | Finished):
        return next  # hooks that are informed of the end have their own timeouts
    if isinstance(next, Wait) and not next.inflight and next.deadline is None:
        return next  # only people are waited for, and their time does not count
    return replace(next, deadline=limit if next.deadline is None else min(limit, next.deadline))


def asked_questions(package: Package, state: State) -> tuple[Question, ...]:
    """The questions that a person can answer now, even if the run has something else to do first."""
    steps: Iterable[GateResult] = (decide(package, state),)
    if state.phase == "acting" and state.cancelled is None:
        asking = (index for index, call in enumerate(state.calls) if call.status in ("asking", "deferred"))
        steps = (admit_call(package, state, index) for index in asking)
    return tuple([each for step in steps if isinstance(step, Perform | Wait) for each in step.questions])


def perform_of(package: Package, state: State, fact: Intent) -> Effect:
    """The effect of an intent recorded in this state. Raises `recovery.failed` if the package has no such effect."""
    # Deadline and cancellation are not checked again: neither had happened when the intent was written.
    step = PHASE_STEPS[state.phase](package, state)
    effects = [_with_recorded_share(effect, fact) for effect in step.effects] if isinstance(step, Perform) else []
    found = [effect for effect in effects if intent(effect) == fact]
    if len(found) != 1:
        message = f"record {state.seq + 1} ({fact_kind(fact)}) does not belong to an effect of this package"
        raise StorageError("recovery.failed", message, fields={"seq": state.seq + 1})
    return found[0]


def _with_recorded_share(effect: Effect, fact: Intent) -> Effect:
    """The effect with the recorded share. A new one would differ, because it depends on the clock."""
    if not isinstance(effect, RunChild) or not isinstance(fact, ChildStarted) or effect.id != fact.call:
        return effect
    return replace(effect, parent=replace(effect.parent, share=fact.share))
