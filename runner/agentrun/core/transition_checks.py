"""What else must be true for a fact to follow, beside the tables of `transitions.py`. Each check says why it cannot."""

from __future__ import annotations

from agentrun.core.facts import (
    DeliveryFinished,
    Fact,
    MessageQueued,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    WorkLost,
    kind_of,
)
from agentrun.core.facts_calls import OneCall, ResultsGiven
from agentrun.core.facts_gates import (
    ApprovalAnswered,
    GateFact,
    HookAnswered,
    HookAsked,
    Ruled,
    is_about_call,
    is_about_result,
)
from agentrun.core.hooks import is_legal
from agentrun.core.state import CallState, Gate, State, find_call, under_way
from agentrun.core.transitions import CALL_LEGAL, LEGAL, POINT_PHASE, STAGE_PHASE


def check_reply(state: State, fact: ModelReplied | ModelFailed) -> str | None:
    under = state.requests.asking.effect if state.requests.asking else None
    return None if fact.effect == under else f"it answers {fact.effect}, but {under} is under way"


def check_delivery(state: State, fact: DeliveryFinished) -> str | None:
    return None if fact.sink == state.ending.delivering else f"nothing is being delivered to {fact.sink}"


def check_lost_work(state: State, fact: WorkLost) -> str | None:
    return None if fact.effect in under_way(state) else f"{fact.effect} is not under way"


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


def check_call(state: State, fact: OneCall) -> str | None:
    return _in_status(find_call(state, fact.call), fact.call, fact)


def _in_status(call: CallState | None, id: str, fact: Fact) -> str | None:
    if call is None:
        return f"there is no call {id}"
    if type(fact) not in CALL_LEGAL[call.status]:
        return f"{kind_of(fact)} cannot follow while {id} is {call.status}"
    return None


def check_gate(state: State, fact: GateFact) -> str | None:
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
