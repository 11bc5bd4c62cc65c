"""Which fact may follow in which phase of a run, and in which status of a call.

The tables say where a fact can lead; the diagrams in docs/states.md are drawn from them. The rest is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, get_args

from agentrun.core.facts import (
    AnswerReached,
    ApprovalAnswered,
    ApprovalAsked,
    CallCancelled,
    CallRefused,
    CallSettled,
    CancelRequested,
    ChildStarted,
    ChildSuspended,
    CompactionFailed,
    ContextCompacted,
    DeliveryFinished,
    DeliverySkipped,
    DeliveryStarted,
    Fact,
    GateFact,
    HookAnswered,
    HookAsked,
    HookPoint,
    MessageQueued,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    ModelTold,
    OutputRefused,
    Record,
    ReplyDiscarded,
    ResultsGiven,
    RetryPlanned,
    RouteSwitched,
    Ruled,
    RunEnding,
    RunResumed,
    RunStarted,
    RunStopped,
    SingleCallFact,
    TimePassed,
    ToolFinished,
    ToolStarted,
    WorkLost,
    fact_kind,
    is_about_call,
    is_about_result,
)
from agentrun.core.hooks import is_legal_answer
from agentrun.core.package import Stage
from agentrun.core.state import CallState, CallStatus, GateState, Phase, State, find_call, pending_effects

PhaseTransitions: TypeAlias = Mapping[type[Fact], tuple[Phase, ...]]


def _active_phase(phase: Phase, leads: PhaseTransitions) -> PhaseTransitions:
    """A phase of a run that is under way: some things can happen at any time."""
    outside: PhaseTransitions = {
        CancelRequested: (phase,),
        TimePassed: (phase,),
        RunResumed: (phase,),
        RunStopped: ("stopped",),
    }
    end: PhaseTransitions = {} if phase == "stopping" else {RunEnding: ("stopping",), MessageQueued: (phase,)}
    return {**outside, **end, **leads}


PHASE_TRANSITIONS: Mapping[Phase, PhaseTransitions] = {
    "fresh": {RunStarted: ("starting",)},
    "starting": _active_phase(
        "starting",
        {
            HookAsked: ("starting", "thinking"),
            HookAnswered: ("starting",),
            Ruled: ("starting", "thinking"),
            ApprovalAsked: ("starting",),
            ApprovalAnswered: ("starting",),
            WorkLost: ("starting",),
            ModelTold: ("thinking",),
            ModelAsked: ("asking",),
        },
    ),
    "thinking": _active_phase(
        "thinking",
        {
            HookAsked: ("thinking",),
            HookAnswered: ("thinking",),
            Ruled: ("thinking",),
            WorkLost: ("thinking",),
            ModelTold: ("thinking",),
            ModelAsked: ("asking",),
            AnswerReached: ("ending",),
        },
    ),
    "asking": _active_phase("asking", {ModelReplied: ("answered",), ModelFailed: ("failed",), WorkLost: ("thinking",)}),
    "failed": _active_phase(
        "failed",
        {
            RetryPlanned: ("waiting",),
            RouteSwitched: ("thinking",),
            ModelAsked: ("asking",),
            RunResumed: ("failed", "thinking"),
        },
    ),
    "waiting": _active_phase("waiting", {ModelAsked: ("asking",), RunResumed: ("waiting", "thinking")}),
    "answered": _active_phase(
        "answered",
        {
            HookAsked: ("answered", "acting"),
            HookAnswered: ("answered",),
            WorkLost: ("answered",),
            Ruled: ("acting",),
            CallRefused: ("acting",),
            ReplyDiscarded: ("thinking",),
            ModelTold: ("thinking",),
            OutputRefused: ("thinking",),
            ContextCompacted: ("thinking",),
            CompactionFailed: ("thinking",),
            AnswerReached: ("ending",),
        },
    ),
    "acting": _active_phase(
        "acting",
        {
            HookAsked: ("acting",),
            HookAnswered: ("acting",),
            Ruled: ("acting",),
            ApprovalAsked: ("acting",),
            ApprovalAnswered: ("acting",),
            CallRefused: ("acting",),
            CallCancelled: ("acting",),
            ToolStarted: ("acting",),
            ChildStarted: ("acting",),
            ToolFinished: ("acting",),
            ChildSuspended: ("acting",),
            CallSettled: ("acting",),
            WorkLost: ("acting",),
            ResultsGiven: ("thinking", "answered"),
        },
    ),
    "ending": _active_phase(
        "ending",
        {
            HookAsked: ("ending",),
            HookAnswered: ("ending", "thinking"),
            Ruled: ("ending",),
            ApprovalAsked: ("ending",),
            ApprovalAnswered: ("ending",),
            DeliveryStarted: ("ending",),
            DeliveryFinished: ("ending",),
            DeliverySkipped: ("ending",),
            WorkLost: ("ending",),
            ModelTold: ("thinking",),
            OutputRefused: ("thinking",),
        },
    ),
    "stopping": _active_phase(
        "stopping",
        {
            CallCancelled: ("stopping",),
            HookAsked: ("stopping",),
            HookAnswered: ("stopping",),
            WorkLost: ("stopping",),
        },
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
"""Where hooks are asked and rules are made, by point and by stage."""

CallTransitions: TypeAlias = Mapping[type[Fact], tuple[CallStatus, ...]]


def _open_status(leads: CallTransitions) -> CallTransitions:
    """A status of a call that can still be given up."""
    return {CallCancelled: ("done",), **leads}


CALL_TRANSITIONS: Mapping[CallStatus, CallTransitions] = {
    "new": _open_status(
        {
            CallRefused: ("done",),
            HookAsked: ("new",),
            HookAnswered: ("new", "denied"),
            Ruled: ("new", "ready", "asking", "deferred", "denied"),
            WorkLost: ("new",),
        }
    ),
    "asking": _open_status({ApprovalAsked: ("asking",), ApprovalAnswered: ("ready", "denied"), RunResumed: ("new",)}),
    "deferred": _open_status({RunResumed: ("new",)}),
    "denied": _open_status({CallRefused: ("done",)}),
    "ready": _open_status(
        {CallRefused: ("done",), ToolStarted: ("started",), ChildStarted: ("started",), RunResumed: ("new",)}
    ),
    "started": _open_status({ToolFinished: ("finished",), ChildSuspended: ("asleep",), WorkLost: ("lost",)}),
    "lost": _open_status(
        {ToolStarted: ("started",), ChildStarted: ("started",), CallSettled: ("ready", "finished", "abandoned")}
    ),
    "asleep": _open_status({RunResumed: ("ready",)}),
    "abandoned": _open_status({}),
    "finished": {
        CallRefused: ("done",),
        HookAsked: ("finished",),
        HookAnswered: ("finished",),
        Ruled: ("finished",),
        WorkLost: ("finished",),
    },
    "done": {},
}


# --- what else must be true for a fact to follow, beside the tables of `transitions.py` -----------------------


def check_reply(state: State, fact: ModelReplied | ModelFailed) -> str | None:
    under = state.requests.asking.effect if state.requests.asking else None
    return None if fact.effect == under else f"it answers {fact.effect}, but {under} is under way"


def check_delivery(state: State, fact: DeliveryFinished) -> str | None:
    return None if fact.sink == state.ending.delivering else f"nothing is being delivered to {fact.sink}"


def check_lost_work(state: State, fact: WorkLost) -> str | None:
    return None if fact.effect in pending_effects(state) else f"{fact.effect} is not under way"


def check_message(state: State, _: MessageQueued) -> str | None:
    return "the answer is being delivered" if state.ending.delivering or state.ending.delivered else None


def check_results(state: State, _: ResultsGiven) -> str | None:
    open_calls = [call.call.id for call in state.calls if call.status not in ("finished", "done")]
    return f"{open_calls[0]} has no result" if open_calls else None


def check_request(state: State, fact: ModelAsked) -> str | None:
    turn = state.turns if state.in_turn else state.turns + 1
    if (fact.turn, fact.attempt) != (turn, state.attempt + 1):
        return f"turn {fact.turn}, attempt {fact.attempt} is not the next one"
    return None


def check_call_status(state: State, fact: SingleCallFact) -> str | None:
    return _check_status(find_call(state, fact.call), fact.call, fact)


def _check_status(call: CallState | None, id: str, fact: Fact) -> str | None:
    if call is None:
        return f"there is no call {id}"
    if type(fact) not in CALL_TRANSITIONS[call.status]:
        return f"{fact_kind(fact)} cannot follow while {id} is {call.status}"
    return None


def check_gate(state: State, fact: GateFact) -> str | None:
    if is_about_call(fact):
        call = find_call(state, fact.subject)
        wrong = _check_status(call, fact.subject, fact)
        if wrong:
            return wrong
        assert call is not None
        gate = call.result_gate if is_about_result(fact) else call.gate
    else:
        gate = state.gate if state.gate.subject == fact.subject else GateState(fact.subject)
        if _leads_to_other_phase(state, fact):
            return f"{fact_kind(fact)} about {fact.subject} cannot follow while the run is {state.phase}"
    match fact:
        case HookAnswered():
            if fact.effect != gate.hook:
                return f"{fact.effect} was not asked"
            return None if is_legal_answer(fact.point, fact.answer) else f"that is no answer at {fact.point}"
        case ApprovalAnswered():
            return None if gate.question == fact.question and gate.answer is None else "that is not an open question"
        case HookAsked():
            return f"{gate.hook} is being asked" if gate.hook else None
    return None


def _leads_to_other_phase(state: State, fact: GateFact) -> bool:
    match fact:
        case HookAsked():
            return POINT_PHASE[fact.point] not in PHASE_TRANSITIONS[state.phase][HookAsked]
        case Ruled():
            return STAGE_PHASE.get(fact.stage) not in PHASE_TRANSITIONS[state.phase][Ruled]
    return False


# --- whether a record may follow ------------------------------------------------------------------------------


TRANSITION_CHECKS: Mapping[type[Fact], Callable[[State, Any], str | None]] = {
    **dict.fromkeys(get_args(SingleCallFact), check_call_status),
    **dict.fromkeys(get_args(GateFact), check_gate),
    ResultsGiven: check_results,
    ModelAsked: check_request,
    ModelReplied: check_reply,
    ModelFailed: check_reply,
    DeliveryFinished: check_delivery,
    WorkLost: check_lost_work,
    MessageQueued: check_message,
}
"""What else must be so for a fact to follow. Looked up by type: this is asked for every record."""


def find_violation(state: State, record: Record) -> str | None:
    """Why a record cannot follow."""
    fact = record.fact
    if record.seq != state.seq + 1:
        return f"record {state.seq + 1} is missing"
    if type(fact) not in PHASE_TRANSITIONS[state.phase]:
        return f"{fact_kind(fact)} cannot follow while the run is {state.phase}"
    check = TRANSITION_CHECKS.get(type(fact))
    return check(state, fact) if check else None


# --- what is lost when the owner of a run goes away, and what may still come in from outside ------------------


def lost_work(state: State) -> tuple[WorkLost, ...]:
    """What a new owner of the run has to record first."""
    return tuple(WorkLost(effect) for effect in pending_effects(state))


def is_acceptable(state: State, fact: Fact) -> bool:
    """Whether something from outside still matters: a late result or a second answer does not."""
    return find_violation(state, Record(state.seq + 1, state.now, 0, "", fact)) is None
