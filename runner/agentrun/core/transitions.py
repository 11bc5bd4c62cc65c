"""Which fact may follow in which phase of a run, and in which status of a call.

The tables define where a fact can lead. The diagrams in docs/states.md are drawn from them. Any other fact is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, get_args

from agentrun.core import facts
from agentrun.core.hook_answers import is_legal_answer
from agentrun.core.package import HookPoint, Stage
from agentrun.core.state import CallState, CallStatus, Phase, State, find_call, pending_effects

PhaseTransitions: TypeAlias = Mapping[type[facts.Fact], tuple[Phase, ...]]

_GATE_FACTS: tuple[type[facts.Fact], ...] = get_args(facts.GateFact)
_CALL_FACTS: tuple[type[facts.Fact], ...] = get_args(facts.SingleCallFact)


def _active_phase(phase: Phase, stays: Iterable[type[facts.Fact]], leads: PhaseTransitions) -> PhaseTransitions:
    """A phase of a run that is not over. `stays`: facts after which it stays in this phase, unless `leads` differs."""
    outside = (facts.CancelRequested, facts.TimePassed, facts.RunResumed)
    end: PhaseTransitions = {facts.RunStopped: ("stopped",)}
    if phase != "stopping":
        end = {**end, facts.RunEnding: ("stopping",), facts.MessageQueued: (phase,)}
    return {**dict.fromkeys(outside, (phase,)), **end, **dict.fromkeys(stays, (phase,)), **leads}


PHASE_TRANSITIONS: Mapping[Phase, PhaseTransitions] = {
    "fresh": {facts.RunStarted: ("starting",)},
    "starting": _active_phase(
        "starting",
        (*_GATE_FACTS, facts.WorkLost),
        {
            facts.HookAsked: ("starting", "thinking"),
            facts.Ruled: ("starting", "thinking"),
            facts.ModelTold: ("thinking",),
            facts.ModelAsked: ("asking",),
        },
    ),
    "thinking": _active_phase(
        "thinking",
        (facts.HookAsked, facts.HookAnswered, facts.Ruled, facts.WorkLost, facts.ModelTold),
        {facts.ModelAsked: ("asking",), facts.AnswerReached: ("ending",)},
    ),
    "asking": _active_phase(
        "asking",
        (),
        {facts.ModelReplied: ("answered",), facts.ModelFailed: ("failed",), facts.WorkLost: ("thinking",)},
    ),
    "failed": _active_phase(
        "failed",
        (),
        {
            facts.RetryPlanned: ("waiting",),
            facts.RouteSwitched: ("thinking",),
            facts.ModelAsked: ("asking",),
            facts.RunResumed: ("failed", "thinking"),
        },
    ),
    "waiting": _active_phase("waiting", (), {facts.ModelAsked: ("asking",), facts.RunResumed: ("waiting", "thinking")}),
    "answered": _active_phase(
        "answered",
        (facts.HookAnswered, facts.WorkLost),
        {
            facts.HookAsked: ("answered", "acting"),
            facts.Ruled: ("acting",),
            facts.ArgumentsCompleted: ("acting",),
            facts.CallRefused: ("acting",),
            facts.ReplyDiscarded: ("thinking",),
            facts.ModelTold: ("thinking",),
            facts.OutputRefused: ("thinking",),
            facts.ContextCompacted: ("thinking",),
            facts.CompactionFailed: ("thinking",),
            facts.AnswerReached: ("ending",),
        },
    ),
    "acting": _active_phase(
        "acting",
        (*_GATE_FACTS, *_CALL_FACTS, facts.WorkLost),
        {facts.ResultsGiven: ("thinking", "answered")},
    ),
    "ending": _active_phase(
        "ending",
        (*_GATE_FACTS, facts.DeliveryStarted, facts.DeliveryFinished, facts.DeliverySkipped, facts.WorkLost),
        {
            facts.HookAnswered: ("ending", "thinking"),
            facts.ModelTold: ("thinking",),
            facts.OutputRefused: ("thinking",),
        },
    ),
    "stopping": _active_phase(
        "stopping", (facts.CallCancelled, facts.HookAsked, facts.HookAnswered, facts.WorkLost), {}
    ),
    "stopped": {},
}

POINT_PHASE: Mapping[HookPoint, Phase] = {
    "on_input": "starting",
    "before_model": "thinking",
    "after_model": "answered",
    "before_tool": "acting",
    "after_tool": "acting",
    "on_output": "ending",
    "on_stop": "stopping",
}
STAGE_PHASE: Mapping[Stage, Phase] = {
    "input": "starting",
    "model_request": "thinking",
    "tool_call": "acting",
    "tool_result": "acting",
    "output": "ending",
    "delivery": "ending",
}
"""The phase in which hooks of a point are asked, and rulings of a stage are made."""

CallTransitions: TypeAlias = Mapping[type[facts.Fact], tuple[CallStatus, ...]]
_CANCEL: CallTransitions = {facts.CallCancelled: ("done",)}
_START: CallTransitions = dict.fromkeys((facts.ToolStarted, facts.ResultShared, facts.ChildStarted), ("started",))
CALL_TRANSITIONS: Mapping[CallStatus, CallTransitions] = {
    "new": {
        **_CANCEL,
        facts.ArgumentsCompleted: ("new",),
        facts.CallRefused: ("done",),
        facts.HookAsked: ("new",),
        facts.HookAnswered: ("new", "denied"),
        facts.Ruled: ("new", "ready", "asking", "deferred", "denied"),
        facts.WorkLost: ("new",),
    },
    "asking": {
        **_CANCEL,
        facts.ApprovalAsked: ("asking",),
        facts.ApprovalAnswered: ("ready", "denied"),
        facts.RunResumed: ("new",),
    },
    "deferred": {
        **_CANCEL,
        facts.ApprovalAsked: ("deferred",),
        facts.ApprovalAnswered: ("ready", "denied"),
        facts.RunResumed: ("new",),
    },
    "denied": {**_CANCEL, facts.CallRefused: ("done",)},
    "ready": {**_CANCEL, facts.CallRefused: ("done",), **_START, facts.RunResumed: ("new",)},
    "started": {
        **_CANCEL,
        facts.ToolFinished: ("finished",),
        facts.ChildSuspended: ("asleep",),
        facts.WorkLost: ("lost",),
    },
    "lost": {**_CANCEL, **_START, facts.CallSettled: ("ready", "finished", "abandoned")},
    "asleep": {**_CANCEL, facts.RunResumed: ("ready",)},
    "abandoned": _CANCEL,
    "finished": {
        facts.CallRefused: ("done",),
        **dict.fromkeys((facts.HookAsked, facts.HookAnswered, facts.Ruled, facts.WorkLost), ("finished",)),
    },
    "done": {},
}


def check_run(state: State, fact: facts.Fact) -> str | None:
    match fact:
        case facts.ModelAsked():
            turn = state.turns if state.in_turn else state.turns + 1
            if (fact.turn, fact.attempt) != (turn, state.attempt + 1):
                return f"turn {fact.turn}, attempt {fact.attempt} is not the next one"
        case facts.ModelReplied() | facts.ModelFailed():
            running = state.requests.asking.effect if state.requests.asking else None
            return None if fact.effect == running else f"it answers {fact.effect}, but {running} is running"
        case facts.ResultsGiven():
            open_calls = [call.id for call in state.calls if call.status not in ("finished", "done")]
            return f"{open_calls[0]} has no result" if open_calls else None
        case facts.DeliveryFinished() if fact.sink != state.ending.delivering:
            return f"no delivery to {fact.sink} is running"
        case facts.WorkLost() if fact.effect not in pending_effects(state):
            return f"{fact.effect} is not running"
        case facts.MessageQueued() if state.ending.delivering or state.ending.delivered:
            return "the answer is being delivered"
    return None


def check_call(state: State, fact: facts.SingleCallFact) -> str | None:
    return _check_status(find_call(state, fact.call), fact.call, fact)


def _check_status(call: CallState | None, id: str, fact: facts.Fact) -> str | None:
    if call is None:
        return f"there is no call {id}"
    if type(fact) not in CALL_TRANSITIONS[call.status]:
        return f"{facts.fact_kind(fact)} cannot follow while {id} is {call.status}"
    return None


def check_gate(state: State, fact: facts.GateFact) -> str | None:
    if facts.is_about_call(fact):
        call = find_call(state, fact.subject)
        if violation := _check_status(call, fact.subject, fact):
            return violation
        assert call is not None
        gate = call.result_gate if facts.is_about_result(fact) else call.gate
    else:
        gate = state.gate_for(fact.subject)
        if _leads_to_other_phase(state, fact):
            return f"{facts.fact_kind(fact)} about {fact.subject} cannot follow while the run is {state.phase}"
    match fact:
        case facts.HookAnswered():
            if fact.effect != gate.hook:
                return f"{fact.effect} was not asked"
            return None if is_legal_answer(fact.point, fact.answer) else f"the answer is not allowed at {fact.point}"
        case facts.ApprovalAnswered():
            return None if gate.question == fact.question and gate.answer is None else "the question is not open"
        case facts.HookAsked():
            return f"{gate.hook} is being asked" if gate.hook else None
    return None


def _leads_to_other_phase(state: State, fact: facts.GateFact) -> bool:
    match fact:
        case facts.HookAsked():
            return POINT_PHASE[fact.point] not in PHASE_TRANSITIONS[state.phase][facts.HookAsked]
        case facts.Ruled():
            return STAGE_PHASE.get(fact.stage) not in PHASE_TRANSITIONS[state.phase][facts.Ruled]
    return False


TRANSITION_CHECKS: Mapping[type[facts.Fact], Callable[[State, Any], str | None]] = {
    **dict.fromkeys(_CALL_FACTS, check_call),
    **dict.fromkeys(_GATE_FACTS, check_gate),
}


def find_violation(state: State, record: facts.Record) -> str | None:
    """Why a record cannot follow. None: it can."""
    fact = record.fact
    if record.seq != state.seq + 1:
        return f"record {state.seq + 1} is missing"
    if type(fact) not in PHASE_TRANSITIONS[state.phase]:
        return f"{facts.fact_kind(fact)} cannot follow while the run is {state.phase}"
    return TRANSITION_CHECKS.get(type(fact), check_run)(state, fact)


def lost_work(state: State) -> tuple[facts.WorkLost, ...]:
    return tuple(facts.WorkLost(effect) for effect in pending_effects(state))


def is_acceptable(state: State, fact: facts.Fact) -> bool:
    """Whether a fact from outside can still be recorded. A late result or a second answer cannot."""
    return find_violation(state, facts.Record(state.seq + 1, state.now, 0, "", fact)) is None
