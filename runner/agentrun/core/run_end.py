"""From the last reply of the model to the end of the run.

Rule 1  Messages that were sent in the meantime come first: the run continues with them. The result of a terminal tool
        ends the run anyway.
Rule 2  An answer that breaks its contract never becomes an output, even when repairs or turns run out.
Rule 3  The answer passes hooks and policy before anyone outside sees it. Each sink has its own gate.
Rule 4  The end of a run: the reason is recorded, open calls are closed, hooks are informed, one terminal record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core import facts
from agentrun.core import model_texts as texts
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.effects import Commit, Deliver, NextStep, Perform, Wait
from agentrun.core.fault import Fault
from agentrun.core.gate import Allowed, Blocked, GateRequest, pass_gate
from agentrun.core.guards import stagnation_fault
from agentrun.core.json_validation import Valid, validate_output
from agentrun.core.messages import FinishReason, user_message
from agentrun.core.outcome import answer_of
from agentrun.core.package import Package, hooks_at
from agentrun.core.state import State

_LABELS: Mapping[FinishReason, facts.AnswerLabel] = {
    "length": "truncated",
    "content_filter": "filtered",
    "unknown": "unknown_finish",
}


def conclude(package: Package, state: State) -> NextStep:
    """The model stopped without a call, or a terminal tool finished: decide whether that is the answer."""
    label: facts.AnswerLabel | None = None
    if state.ending.ended_by is None:
        reply = state.reply
        label = "refused" if reply.message.refused else _LABELS.get(reply.finish)
        if state.queue:
            return Commit((facts.ModelTold("follow_up", state.queue),))
        if package.guards.empty_outcome is not None:
            return _nudge_or_fail(package, state, package.guards.empty_outcome)
    _, errors = _parse_answer(package, state)
    return _repair(package, state, errors) if errors else Commit((facts.AnswerReached(label),))


def _nudge_or_fail(package: Package, state: State, budget: int) -> NextStep:
    observed = state.detector.empty + 1
    if observed > budget:
        fields = {"observed": observed, "budget": budget}
        return fail(package, state, Fault("guard.empty_outcome", texts.stopped_without_call(observed), fields))
    if stale := stagnation_fault(package, state, state.replies.original_text, 1):
        return fail(package, state, stale)
    return Commit((facts.ModelTold("nudge", (user_message(state.started.prompts["nudge"]),)),))


def _parse_answer(package: Package, state: State) -> tuple[Any | UnsetType, tuple[str, ...]]:
    """The parsed output and the errors. Without a contract every answer is valid, and there is no parsed output."""
    if package.output.schema is None:
        return UNSET, ()
    result = validate_output(answer_of(state), package.output)
    return (result.value, ()) if isinstance(result, Valid) else (UNSET, result.errors)


def _repair(package: Package, state: State, errors: tuple[str, ...]) -> NextStep:
    repairs = state.ending.repairs
    if repairs < package.output.repairs:
        return Commit((facts.OutputRefused(state.turns, errors, user_message(texts.repair(errors))),))
    fields = {"errors": list(errors), "repairs": repairs, "turn": state.turns}
    return fail(package, state, Fault("output.invalid", texts.answer_invalid(repairs, errors[0]), fields))


def deliver_answer(package: Package, state: State) -> NextStep:
    """There is an answer: pass hooks and policy, check the contract again, serve the sinks, end the run."""
    ending, cut_short = state.ending, state.ending.label == "budget.turns"
    is_delivering = bool(ending.delivered) or ending.delivering is not None
    if state.queue and not is_delivering and not cut_short and ending.ended_by is None:
        return Commit((facts.ModelTold("follow_up", state.queue),))
    if not is_delivering and not isinstance(parse_effect_id(state.gate.subject), DeliveryId):
        request = GateRequest("output", "output", answer_of(state), point="on_output", stage="output")
        return pass_or_fail(package, state, request, _deliver if cut_short else _repair_or_deliver)
    return _deliver(package, state)


def _repair_or_deliver(package: Package, state: State) -> NextStep:
    _, errors = _parse_answer(package, state)
    return _repair(package, state, errors) if errors else _deliver(package, state)


def _deliver(package: Package, state: State) -> NextStep:
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
    output, _ = _parse_answer(package, state)
    return stop(package, state, facts.RunStopped("completed", label=state.ending.label, output=output))


def delivery_key(run: str, sink: str) -> str:
    return data_hash(sorted_json([run, sink]))


def _deliver_to(package: Package, state: State, name: str) -> NextStep:
    sink, subject = package.sinks[name], str(DeliveryId(name))
    gate = state.gate_for(subject)
    result = pass_gate(package, state, gate, GateRequest(subject, name, answer_of(state), stage="delivery"))
    match result:
        case Allowed():
            text = answer_of(state) if gate.text is None else gate.text
            output = _parse_answer(package, state)[0] if gate.text is None else UNSET
            key = delivery_key(state.started.run, name)
            return Perform((Deliver(subject, name, sink, text, output, key),))
        case Blocked(fault) if sink.delivery == "optional" and fault.code != "policy.interrupted":
            return Commit((facts.DeliverySkipped(name, fault),))
        case Blocked(fault):
            return fail(package, state, fault)
        case _:
            return result


def pass_or_fail(
    package: Package, state: State, request: GateRequest, then: Callable[[Package, State], NextStep]
) -> NextStep:
    """Pass a gate of the run as a whole, then continue. If it is blocked, the run fails."""
    result = pass_gate(package, state, state.gate_for(request.subject), request)
    match result:
        case Allowed():
            return then(package, state)
        case Blocked(fault):
            return fail(package, state, fault)
        case _:
            return result


def fail(package: Package, state: State, fault: Fault) -> NextStep:
    return stop(package, state, facts.RunStopped("failed", fault=fault))


def stop(package: Package, state: State, stopped: facts.RunStopped) -> NextStep:
    """End the run. If calls have to be closed or hooks informed, that comes before the terminal record."""
    has_work = hooks_at(package, "on_stop") or any(_open_call_cancellations(state))
    return Commit((facts.RunEnding(stopped) if has_work else stopped,))


def _open_call_cancellations(state: State) -> Iterator[facts.CallCancelled]:
    for call in state.calls:
        if call.status not in ("finished", "done"):
            yield facts.CallCancelled(call.id, texts.with_code("tool.aborted", texts.RUN_ENDED))


def close_run(package: Package, state: State) -> NextStep:
    assert state.ending.stop is not None
    if closed := tuple(_open_call_cancellations(state)):
        return Commit(closed)
    ending = state.ending.stop
    value = {"status": ending.status, "code": ending.fault.code if ending.fault else None}
    result = pass_gate(package, state, state.gate_for("stop"), GateRequest("stop", "stop", value, point="on_stop"))
    return Commit((ending,)) if isinstance(result, Allowed | Blocked) else result
