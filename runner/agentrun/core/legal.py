"""Which fact may follow in which phase of a run, and in which status of a call.

Anything else is refused before anything changes: such a journal is not one that this runtime wrote. The tables say
where a fact can lead; the diagrams in docs/states.md are drawn from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, get_args

from agentrun.core.effect_ids import CallId, parse_effect_id
from agentrun.core.facts import (
    AnswerReached,
    CancelRequested,
    CompactionFailed,
    ContextCompacted,
    DeliveryFinished,
    DeliverySkipped,
    DeliveryStarted,
    Fact,
    MessageQueued,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    ModelTold,
    OutputRefused,
    Record,
    ReplyDiscarded,
    RetryPlanned,
    RouteSwitched,
    RunEnding,
    RunResumed,
    RunStarted,
    RunStopped,
    TimePassed,
    WorkLost,
    kind_of,
)
from agentrun.core.facts_calls import (
    CallCancelled,
    CallRefused,
    CallSettled,
    ChildStarted,
    ChildSuspended,
    OneCall,
    ResultsGiven,
    ToolFinished,
    ToolStarted,
)
from agentrun.core.facts_gates import ApprovalAnswered, ApprovalAsked, GateFact, HookAnswered, HookAsked, Point, Ruled
from agentrun.core.hooks import is_legal
from agentrun.core.package import Stage
from agentrun.core.state import CallState, CallStatus, Gate, Phase, State, under_way

Leads: TypeAlias = Mapping[type[Fact], tuple[Phase, ...]]


def _live(phase: Phase, leads: Leads) -> Leads:
    """A phase of a run that is under way: some things can happen at any time."""
    outside: Leads = {CancelRequested: (phase,), TimePassed: (phase,), RunResumed: (phase,), RunStopped: ("stopped",)}
    end: Leads = {} if phase == "stopping" else {RunEnding: ("stopping",), MessageQueued: (phase,)}
    return {**outside, **end, **leads}


LEGAL: Mapping[Phase, Leads] = {
    "fresh": {RunStarted: ("starting",)},
    "starting": _live(
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
    "thinking": _live(
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
    "asking": _live("asking", {ModelReplied: ("answered",), ModelFailed: ("failed",), WorkLost: ("thinking",)}),
    "failed": _live(
        "failed",
        {
            RetryPlanned: ("waiting",),
            RouteSwitched: ("thinking",),
            ModelAsked: ("asking",),
            RunResumed: ("failed", "thinking"),
        },
    ),
    "waiting": _live("waiting", {ModelAsked: ("asking",), RunResumed: ("waiting", "thinking")}),
    "answered": _live(
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
    "acting": _live(
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
    "ending": _live(
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
    "stopping": _live(
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

POINT_PHASE: Mapping[Point, Phase] = {
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

CallLeads: TypeAlias = Mapping[type[Fact], tuple[CallStatus, ...]]


def _open(leads: CallLeads) -> CallLeads:
    """A status of a call that can still be given up."""
    return {CallCancelled: ("done",), **leads}


CALL_LEGAL: Mapping[CallStatus, CallLeads] = {
    "new": _open(
        {
            CallRefused: ("done",),
            HookAsked: ("new",),
            HookAnswered: ("new", "denied"),
            Ruled: ("new", "ready", "asking", "deferred", "denied"),
            WorkLost: ("new",),
        }
    ),
    "asking": _open({ApprovalAsked: ("asking",), ApprovalAnswered: ("ready", "denied"), RunResumed: ("new",)}),
    "deferred": _open({RunResumed: ("new",)}),
    "denied": _open({CallRefused: ("done",)}),
    "ready": _open(
        {CallRefused: ("done",), ToolStarted: ("started",), ChildStarted: ("started",), RunResumed: ("new",)}
    ),
    "started": _open({ToolFinished: ("finished",), ChildSuspended: ("asleep",), WorkLost: ("lost",)}),
    "lost": _open(
        {ToolStarted: ("started",), ChildStarted: ("started",), CallSettled: ("ready", "finished", "abandoned")}
    ),
    "asleep": _open({RunResumed: ("ready",)}),
    "abandoned": _open({}),
    "finished": {
        CallRefused: ("done",),
        HookAsked: ("finished",),
        HookAnswered: ("finished",),
        Ruled: ("finished",),
        WorkLost: ("finished",),
    },
    "done": {},
}


def refusal(state: State, record: Record) -> str | None:
    """Why a record cannot follow."""
    fact = record.fact
    if record.seq != state.seq + 1:
        return f"record {state.seq + 1} is missing"
    if type(fact) not in LEGAL[state.phase]:
        return f"{kind_of(fact)} cannot follow while the run is {state.phase}"
    check = CHECKS.get(type(fact))
    return check(state, fact) if check else None


def _replied(state: State, fact: ModelReplied | ModelFailed) -> str | None:
    under = state.asking.effect if state.asking else None
    return None if fact.effect == under else f"it answers {fact.effect}, but {under} is under way"


def _delivered(state: State, fact: DeliveryFinished) -> str | None:
    return None if fact.sink == state.delivering else f"nothing is being delivered to {fact.sink}"


def _lost(state: State, fact: WorkLost) -> str | None:
    return None if fact.effect in under_way(state) else f"{fact.effect} is not under way"


def _queued(state: State, _: MessageQueued) -> str | None:
    return "the answer is being delivered" if state.delivering or state.delivered else None


def _results(state: State, _: ResultsGiven) -> str | None:
    open_calls = [call.call.id for call in state.calls if call.status not in ("finished", "done")]
    return f"{open_calls[0]} has no result" if open_calls else None


def _asked(state: State, fact: ModelAsked) -> str | None:
    turn = state.turns if state.in_turn else state.turns + 1
    if (fact.turn, fact.attempt) != (turn, state.attempt + 1):
        return f"turn {fact.turn}, attempt {fact.attempt} is not the next one"
    return None


def _call(state: State, fact: OneCall) -> str | None:
    return _in_status(find_call(state, fact.call), fact.call, fact)


def _in_status(call: CallState | None, id: str, fact: Fact) -> str | None:
    if call is None:
        return f"there is no call {id}"
    if type(fact) not in CALL_LEGAL[call.status]:
        return f"{kind_of(fact)} cannot follow while {id} is {call.status}"
    return None


def _gate(state: State, fact: GateFact) -> str | None:
    if is_about_call(fact):
        call = find_call(state, fact.subject)
        wrong = _in_status(call, fact.subject, fact)
        if wrong:
            return wrong
        assert call is not None
        gate = call.after if is_about_result(fact) else call.gate
    else:
        gate = state.gate if state.gate.subject == fact.subject else Gate(fact.subject)
        if _leads_elsewhere(state, fact):
            return f"{kind_of(fact)} about {fact.subject} cannot follow while the run is {state.phase}"
    match fact:
        case HookAnswered():
            if fact.effect != gate.hook:
                return f"{fact.effect} was not asked"
            return None if is_legal(fact.point, fact.answer) else f"that is no answer at {fact.point}"
        case ApprovalAnswered():
            return None if gate.question == fact.question and gate.answer is None else "that is not an open question"
        case HookAsked():
            return f"{gate.hook} is being asked" if gate.hook else None
    return None


def _leads_elsewhere(state: State, fact: GateFact) -> bool:
    match fact:
        case HookAsked():
            return POINT_PHASE[fact.point] not in LEGAL[state.phase][HookAsked]
        case Ruled():
            return STAGE_PHASE.get(fact.stage) not in LEGAL[state.phase][Ruled]
    return False


CHECKS: Mapping[type[Fact], Callable[[State, Any], str | None]] = {
    **dict.fromkeys(get_args(OneCall), _call),
    **dict.fromkeys(get_args(GateFact), _gate),
    ResultsGiven: _results,
    ModelAsked: _asked,
    ModelReplied: _replied,
    ModelFailed: _replied,
    DeliveryFinished: _delivered,
    WorkLost: _lost,
    MessageQueued: _queued,
}
"""What else must be so for a fact to follow. Looked up by type: this is asked for every record."""


def find_call(state: State, id: str) -> CallState | None:
    for call in state.calls:
        if call.call.id == id:
            return call
    return None


def is_about_call(fact: GateFact) -> bool:
    """Whether the fact is about a call or its result, and not about the run as a whole."""
    match fact:
        case Ruled():
            return fact.stage in ("tool_call", "tool_result")
        case HookAsked() | HookAnswered():
            return fact.point in ("before_tool", "after_tool")
        case _:
            return isinstance(parse_effect_id(fact.subject), CallId)


def is_about_result(fact: GateFact) -> bool:
    match fact:
        case Ruled():
            return fact.stage == "tool_result"
        case HookAsked() | HookAnswered():
            return fact.point == "after_tool"
        case _:
            return False
