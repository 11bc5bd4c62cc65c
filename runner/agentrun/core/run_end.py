"""From the model's last word to the end of the run.

Rule 1  Messages that were sent meanwhile come first: then it was not the last word. What a terminal tool says is.
Rule 2  An answer that breaks its contract never becomes an output, also when repairs or turns run out.
Rule 3  The answer passes hooks and policy before anybody outside sees it, and each sink separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.effects import Commit, Deliver, NextStep, Perform, Wait
from agentrun.core.facts import (
    AnswerLabel,
    AnswerReached,
    CallCancelled,
    DeliverySkipped,
    ModelTold,
    OutputRefused,
    RunEnding,
    RunStopped,
)
from agentrun.core.fault import Fault
from agentrun.core.gate import Allowed, Blocked, GateRequest, pass_gate
from agentrun.core.guards import stagnation_fault
from agentrun.core.hooks import hooks_at
from agentrun.core.json_validation import Invalid, validate_output
from agentrun.core.messages import FinishReason, Reply, user_message
from agentrun.core.outcome import answer_of
from agentrun.core.package import Package
from agentrun.core.state import GateState, State

_LABELS: Mapping[FinishReason, AnswerLabel] = {
    "length": "truncated",
    "content_filter": "filtered",
    "unknown": "unknown_finish",
}
"""What a reader must know about an answer that ended like this."""
REPAIR_TEXT = """\
Your answer does not keep its contract:
{}
Answer again with the corrected JSON and nothing else."""


def conclude(package: Package, state: State) -> NextStep:
    """The model stopped without a call, or a terminal tool ended it: is that the answer?"""
    label: AnswerLabel | None = None
    if state.ending.ended_by is None:
        assert state.replies.latest is not None
        label = _label(state.replies.latest)
        if state.queue:
            return Commit((ModelTold("follow_up", state.queue),))
        if package.guards.empty_outcome is not None:
            return _nudge_or_fail(package, state, package.guards.empty_outcome)
    if errors := _contract_errors(package, state):
        return _repair(package, state, errors)
    return Commit((AnswerReached(label),))


def _nudge_or_fail(package: Package, state: State, budget: int) -> NextStep:
    assert state.replies.latest is not None
    observed = state.detector.empty + 1
    if observed > budget:
        message = f"the model stopped {observed} times without calling a tool"
        fault = Fault("guard.empty_outcome", message, {"observed": observed, "budget": budget})
        return fail(package, state, fault)
    if stale := stagnation_fault(package, state, state.replies.original_text, 1):
        return fail(package, state, stale)
    return Commit((ModelTold("nudge", (user_message(state.started.prompts["nudge"]),)),))


def _contract_errors(package: Package, state: State) -> tuple[str, ...]:
    if package.output.schema is None:
        return ()
    checked = validate_output(answer_of(state), package.output)
    return checked.errors if isinstance(checked, Invalid) else ()


def _repair(package: Package, state: State, errors: tuple[str, ...]) -> NextStep:
    if state.ending.repairs < package.output.repairs:
        lines = "\n".join(f"- {error}" for error in errors)
        return Commit((OutputRefused(state.turns, errors, user_message(REPAIR_TEXT.format(lines))),))
    message = f"the answer breaks its contract after {state.ending.repairs} repairs: {errors[0]}"
    fields = {"errors": list(errors), "repairs": state.ending.repairs, "turn": state.turns}
    return fail(package, state, Fault("output.invalid", message, fields))


def deliver_answer(package: Package, state: State) -> NextStep:
    """There is an answer: hooks and policy, the contract once more, sinks, and the end."""
    cut_short = state.ending.label == "budget.turns"
    goes_on = not cut_short and state.ending.ended_by is None
    if state.queue and not state.ending.delivered and state.ending.delivering is None and goes_on:
        return Commit((ModelTold("follow_up", state.queue),))
    is_delivering = state.ending.delivering is not None or isinstance(parse_effect_id(state.gate.subject), DeliveryId)
    if not state.ending.delivered and not is_delivering:
        gate = state.gate if state.gate.subject == "output" else GateState("output")
        text = answer_of(state)
        passage = GateRequest("output", "output", text, point="on_output", stage="output")
        passed = pass_gate(package, state, gate, passage)
        if isinstance(passed, Blocked):
            return fail(package, state, passed.fault)
        if not isinstance(passed, Allowed):
            return passed
        if not cut_short and (errors := _contract_errors(package, state)):
            return _repair(package, state, errors)
    return _deliver(package, state) or stop(
        package, state, RunStopped("completed", label=state.ending.label, output=_parsed_output(package, state))
    )


def _parsed_output(package: Package, state: State) -> Any | UnsetType:
    if package.output.schema is None:
        return UNSET
    checked = validate_output(answer_of(state), package.output)
    return UNSET if isinstance(checked, Invalid) else checked.value


def _deliver(package: Package, state: State) -> NextStep | None:
    """The next step of the deliveries. None: all are done."""
    if state.ending.delivering is not None:
        return Wait(inflight=(str(DeliveryId(state.ending.delivering)),))
    for name, sink in sorted(package.sinks.items()):
        if sink.delivery == "disabled":
            continue
        if name in state.ending.delivered:
            fault = state.ending.delivered[name]
            if fault is not None and sink.delivery == "required":
                return fail(package, state, fault)
            continue
        return _deliver_to(package, state, name)
    return None


def _deliver_to(package: Package, state: State, name: str) -> NextStep:
    sink, subject = package.sinks[name], str(DeliveryId(name))
    gate = state.gate if state.gate.subject == subject else GateState(subject)
    passage = GateRequest(subject, name, answer_of(state), stage="delivery")
    passed = pass_gate(package, state, gate, passage)
    match passed:
        case Allowed():
            text = answer_of(state) if gate.text is None else gate.text
            output = _parsed_output(package, state) if gate.text is None else UNSET
            key = data_hash(sorted_json([state.started.run, name]))
            return Perform((Deliver(subject, name, sink, text, output, key),))
        case Blocked(fault) if sink.delivery == "optional" and fault.code != "policy.interrupted":
            return Commit((DeliverySkipped(name, fault),))
        case Blocked(fault):
            return fail(package, state, fault)
        case _:
            return passed


def _label(reply: Reply) -> AnswerLabel | None:
    return "refused" if reply.message.refused else _LABELS.get(reply.finish)


# --- how a run ends: the reason first, then every open call closed, hooks told, one terminal record -----------


RUN_ENDED_TEXT = "tool.aborted: the run ended before this call did"


def fail(package: Package, state: State, fault: Fault) -> NextStep:
    """Stop over a fault."""
    return stop(package, state, RunStopped("failed", fault=fault))


def stop(package: Package, state: State, stopped: RunStopped) -> NextStep:
    """The last fact of a run, or the one before calls are closed and hooks hear of it."""
    return Commit(
        (RunEnding(stopped) if hooks_at(package, "on_stop") or any(_open_call_cancellations(state)) else stopped,)
    )


def _open_call_cancellations(state: State) -> Iterator[CallCancelled]:
    for call in state.calls:
        if call.status not in ("finished", "done"):
            yield CallCancelled(call.call.id, RUN_ENDED_TEXT)


def close_run(package: Package, state: State) -> NextStep:
    """Close the calls, tell the hooks, then end. What they say changes nothing any more."""
    assert state.ending.stop is not None
    if closed := tuple(_open_call_cancellations(state)):
        return Commit(closed)
    ending = state.ending.stop
    value = {"status": ending.status, "code": ending.fault.code if ending.fault else None}
    gate = state.gate if state.gate.subject == "stop" else GateState("stop")
    passed = pass_gate(package, state, gate, GateRequest("stop", "stop", value, point="on_stop"))
    return Commit((ending,)) if isinstance(passed, Allowed | Blocked) else passed
