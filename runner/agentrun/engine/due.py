"""What a resume would do with a run that nothing works on. It is tried out on the state: nothing is written.

Rule 1  `continues`: the run would decide something other than to defer again, start something, or wait only for a time
        that ends by itself. It is due.
Rule 2  `deferred`: the run would do nothing at all, because rules deferred all that is left to do, until a later time
        or until a person lifts it.
Rule 3  `waits`: the run would take note of the resume and wait again: for an answer, for a decision about a call, or
        because a rule defers again.
Rule 4  A sub-agent that waits is tried out in the same way, with its own journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from agentrun.canonical_json import fingerprint
from agentrun.core.decide import decide
from agentrun.core.effects import Commit, Effect, Finished, Perform, RunChild, Wait
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import RULES_VERSION, Fact, Record, Ruled, RunResumed
from agentrun.core.package import Package
from agentrun.core.state import State, find_call
from agentrun.core.transitions import lost_work
from agentrun.engine.begin import refuse_stand_ins
from agentrun.engine.memory import Journals, stored_package
from agentrun.errors import AgentrunError

ResumeEffect: TypeAlias = Literal["continues", "deferred", "waits"]


def is_due(journals: Journals, run: str, now: int) -> bool:
    """Whether a resume at this time, in milliseconds since 1970, would continue a run. A run that is finished, damaged
    or cannot be resumed is not due."""
    try:
        state = fold(journals.records(run))
        refuse_stand_ins(state.started, is_recorded=False)
        return (
            state.stopped is None and try_resume(journals, run, stored_package(journals, run).agent, now) == "continues"
        )
    except AgentrunError:
        return False


def try_resume(journals: Journals, run: str, package: Package, now: int) -> ResumeEffect:
    """What a resume of an unfinished run would do. Raises `run.not_found` and the errors of reading a journal."""
    before = fold(journals.records(run))
    asleep = {call.id for call in before.calls if call.status == "asleep"}
    state = _add(before, (RunResumed(fingerprint(package), RULES_VERSION),), now)
    lost = lost_work(state)
    state, is_changed = _add(state, lost, now), bool(lost)
    while isinstance(step := decide(package, state), Commit):
        if not all(isinstance(fact, Ruled) and fact.ruling == "defer" for fact in step.facts):
            return "continues"
        state, is_changed = _add(state, step.facts, now), True
    if isinstance(step, Finished) or step.deadline is not None:
        return "continues"
    found = {_only_deferred(state, step)}
    if isinstance(step, Perform):
        found |= {_try_effect(journals, effect, asleep, now) for effect in step.effects}
    if "continues" in found:
        return "continues"
    return "waits" if is_changed or "waits" in found else "deferred"


def _try_effect(journals: Journals, effect: Effect, asleep: Iterable[str], now: int) -> ResumeEffect:
    if not isinstance(effect, RunChild) or effect.id not in asleep:
        return "continues"
    return try_resume(journals, effect.run, effect.package, now)


def _only_deferred(state: State, step: Perform | Wait) -> ResumeEffect:
    calls = [find_call(state, subject) for subject in step.waits_for]
    is_deferred = all(question.deferred for question in step.questions)
    return "deferred" if is_deferred and all(call is None or call.status == "deferred" for call in calls) else "waits"


def _add(state: State, facts: Iterable[Fact], now: int) -> State:
    for fact in facts:
        state = evolve(state, Record(state.seq + 1, max(now, state.now), 0, "", fact))
    return state
