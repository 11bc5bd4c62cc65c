"""From the model's last word to the end of the run.

Rule 1  Messages that were sent meanwhile come first: then it was not the last word. What a terminal tool says is.
Rule 2  An answer that breaks its contract never becomes an output, also when repairs or turns run out.
Rule 3  The answer passes hooks and policy before anybody outside sees it, and each sink separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from agentrun.canon import compact, data_hash
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.effects import Deliver
from agentrun.core.facts import AnswerReached, DeliverySkipped, Label, ModelTold, OutputRefused, RunStopped
from agentrun.core.facts_base import Fault
from agentrun.core.gate import Open, Passage, Shut, pass_gate
from agentrun.core.guards import stagnation
from agentrun.core.messages import Finish, Reply, said
from agentrun.core.outcome import answer_of
from agentrun.core.output import Broken, check
from agentrun.core.package import Package
from agentrun.core.state import Gate, State
from agentrun.core.steps import Commit, Next, Perform, Wait
from agentrun.core.stop import fail, stop

_LABELS: Mapping[Finish, Label] = {
    "length": "truncated",
    "content_filter": "filtered",
    "unknown": "unknown_finish",
}
"""What a reader must know about an answer that ended like this."""
REPAIR = """\
Your answer does not keep its contract:
{}
Answer again with the corrected JSON and nothing else."""


def conclude(package: Package, state: State) -> Next:
    """The model stopped without a call, or a terminal tool ended it: is that the answer?"""
    label: Label | None = None
    if state.ending.ended_by is None:
        assert state.replies.latest is not None
        label = _label(state.replies.latest)
        if state.queue:
            return Commit((ModelTold("follow_up", state.queue),))
        if package.guards.empty_outcome is not None:
            return _empty(package, state, package.guards.empty_outcome)
    if errors := _errors(package, state):
        return _repair(package, state, errors)
    return Commit((AnswerReached(label),))


def _empty(package: Package, state: State, budget: int) -> Next:
    assert state.replies.latest is not None
    observed = state.detector.empty + 1
    if observed > budget:
        message = f"the model stopped {observed} times without calling a tool"
        fault = Fault("guard.empty_outcome", message, {"observed": observed, "budget": budget})
        return fail(package, state, fault)
    if stale := stagnation(package, state, state.replies.spoken, 1):
        return fail(package, state, stale)
    return Commit((ModelTold("nudge", (said(state.started.prompts["nudge"]),)),))


def _errors(package: Package, state: State) -> tuple[str, ...]:
    if package.output.schema is None:
        return ()
    checked = check(answer_of(state), package.output)
    return checked.errors if isinstance(checked, Broken) else ()


def _repair(package: Package, state: State, errors: tuple[str, ...]) -> Next:
    if state.ending.repairs < package.output.repairs:
        lines = "\n".join(f"- {error}" for error in errors)
        return Commit((OutputRefused(state.turns, errors, said(REPAIR.format(lines))),))
    message = f"the answer breaks its contract after {state.ending.repairs} repairs: {errors[0]}"
    fields = {"errors": list(errors), "repairs": state.ending.repairs, "turn": state.turns}
    return fail(package, state, Fault("output.invalid", message, fields))


def end(package: Package, state: State) -> Next:
    """There is an answer: hooks and policy, the contract once more, sinks, and the end."""
    cut_short = state.ending.label == "budget.turns"
    goes_on = not cut_short and state.ending.ended_by is None
    if state.queue and not state.ending.delivered and state.ending.delivering is None and goes_on:
        return Commit((ModelTold("follow_up", state.queue),))
    is_delivering = state.ending.delivering is not None or isinstance(parse_effect_id(state.gate.subject), DeliveryId)
    if not state.ending.delivered and not is_delivering:
        gate = state.gate if state.gate.subject == "output" else Gate("output")
        text = answer_of(state)
        passage = Passage("output", "output", text, point="on_output", stage="output")
        passed = pass_gate(package, state, gate, passage)
        if isinstance(passed, Shut):
            return fail(package, state, passed.fault)
        if not isinstance(passed, Open):
            return passed
        if not cut_short and (errors := _errors(package, state)):
            return _repair(package, state, errors)
    return _deliver(package, state) or stop(
        package, state, RunStopped("completed", label=state.ending.label, output=_output(package, state))
    )


def _output(package: Package, state: State) -> Any | UnsetType:
    if package.output.schema is None:
        return UNSET
    checked = check(answer_of(state), package.output)
    return UNSET if isinstance(checked, Broken) else checked.value


def _deliver(package: Package, state: State) -> Next | None:
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


def _deliver_to(package: Package, state: State, name: str) -> Next:
    sink, subject = package.sinks[name], str(DeliveryId(name))
    gate = state.gate if state.gate.subject == subject else Gate(subject)
    passage = Passage(subject, name, answer_of(state), stage="delivery")
    passed = pass_gate(package, state, gate, passage)
    match passed:
        case Open():
            text = answer_of(state) if gate.text is None else gate.text
            output = _output(package, state) if gate.text is None else UNSET
            key = data_hash(compact([state.started.run, name]))
            return Perform((Deliver(subject, name, sink, text, output, key),))
        case Shut(fault) if sink.delivery == "optional" and fault.code != "policy.interrupted":
            return Commit((DeliverySkipped(name, fault),))
        case Shut(fault):
            return fail(package, state, fault)
        case _:
            return passed


def _label(reply: Reply) -> Label | None:
    return "refused" if reply.message.refused else _LABELS.get(reply.finish)
