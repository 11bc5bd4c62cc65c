"""What happens next: a function of the package and the state.

Rule 1  Nothing here changes anything. After a fold the pending work is a function of the state, so a resume
        needs no bookkeeping.
Rule 2  Every judgement is committed as a fact with its reason.
Rule 3  A limit of n lets n pass and stops before n + 1.
Rule 4  An answer that breaks its contract never becomes an output, also when repairs or turns run out.

    thinking   turns and tokens left? → ask the model         otherwise stop (`budget.turns`, `budget.tokens`)
    asking     wait
    answered   calls → stop (no tools yet); contract broken → repair or stop (`output.invalid`); else done
    failed     stop with the fault's own code (no retries yet)
    stopped    finished
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from agentrun.core.budget import reservation
from agentrun.core.effects import AskModel, Effect, ModelRequest
from agentrun.core.facts import Fact, Fault, Label, OutputRefused, RunStopped
from agentrun.core.messages import Finish, Reply, Text, User
from agentrun.core.outcome import Outcome, outcome_of
from agentrun.core.output import Broken, check
from agentrun.core.package import Package
from agentrun.core.state import State


class Commit(Struct, frozen=True):
    """Write these facts."""

    facts: tuple[Fact, ...]


class Perform(Struct, frozen=True):
    """Start these effects, each after its intent was written."""

    effects: tuple[Effect, ...]


class Wait(Struct, frozen=True):
    """Nothing to do before one of these settles."""

    inflight: tuple[str, ...] = ()
    """Effects under way."""
    approvals: tuple[str, ...] = ()
    """Questions to people."""
    deadline: int | None = None
    """When to look again at the latest, in milliseconds since 1970."""


class Finished(Struct, frozen=True):
    """It is over."""

    outcome: Outcome


Next: TypeAlias = Commit | Perform | Wait | Finished


def decide(package: Package, state: State) -> Next:
    """The next step of a run."""
    match state.phase:
        case "fresh":
            return Wait()
        case "thinking":
            return _ask(package, state)
        case "asking":
            return Wait(inflight=(str(state.effect),))
        case "answered":
            return _judge(package, state)
        case "failed":
            return _give_up(state)
        case "stopped":
            return Finished(outcome_of(state))
        case _:
            assert_never(state.phase)


def _ask(package: Package, state: State) -> Next:
    turn = state.turns + 1
    if turn > package.budgets.turns:
        return _out_of_turns(package, state)
    reserved = reservation(package, state)
    limit = package.budgets.tokens
    if limit is not None and state.tokens + reserved > limit:
        return _out_of_tokens(state.tokens, reserved, limit)
    assert state.started is not None
    request = ModelRequest(
        route=package.model.routes[0],
        settings=package.model,
        instructions=state.started.instructions,
        messages=state.transcript,
        output=package.output.schema,
    )
    attempt = state.attempt + 1
    return Perform((AskModel(f"m{turn}.{attempt}", turn, attempt, reserved, request),))


def _out_of_turns(package: Package, state: State) -> Next:
    if package.budgets.on_turns == "stop":
        return Commit((RunStopped("completed", label="budget.turns"),))
    limit = package.budgets.turns
    return _fail(
        Fault(
            "budget.turns",
            f"the run has used its {limit} turns",
            {"used": state.turns, "limit": limit},
            "raise budgets.turns, or set budgets.on_turns: stop",
        )
    )


def _out_of_tokens(used: int, reserved: int, limit: int) -> Next:
    message = f"the next call may take {reserved} tokens, and {max(limit - used, 0)} of {limit} are left"
    fields = {"used": used, "reserved": reserved, "limit": limit}
    return _fail(Fault("budget.tokens", message, fields, "raise budgets.tokens, or lower model.max_output_tokens"))


def _judge(package: Package, state: State) -> Next:
    assert state.reply is not None
    if state.reply.message.calls:
        return _fail(_no_tools(state.reply))
    if package.output.schema is None:
        return Commit((RunStopped("completed", label=_label(state.reply)),))
    checked = check(state.reply.message.text, package.output)
    if isinstance(checked, Broken):
        return _repair(package, state, checked.errors)
    return Commit((RunStopped("completed", label=_label(state.reply), output=checked.value),))


_REPAIR = """\
Your answer does not keep its contract:
{}
Answer again with the corrected JSON and nothing else."""


def _repair(package: Package, state: State, errors: tuple[str, ...]) -> Next:
    if state.repairs < package.output.repairs:
        lines = "\n".join(f"- {error}" for error in errors)
        return Commit((OutputRefused(state.turns, errors, User((Text(_REPAIR.format(lines)),))),))
    return _fail(
        Fault(
            "output.invalid",
            f"the answer breaks its contract after {state.repairs} repairs: {errors[0]}",
            {"errors": list(errors), "repairs": state.repairs, "turn": state.turns},
        )
    )


def _give_up(state: State) -> Next:
    assert state.fault is not None
    fields = {**state.fault.fields, "turn": state.turns, "attempts": state.attempt}
    return _fail(replace(state.fault, fields=fields))


def _no_tools(reply: Reply) -> Fault:
    names = [call.tool for call in reply.message.calls]
    return Fault(
        "host.missing",
        f"the model calls {names[0]!r}, and nothing here executes tools",
        {"name": "tools", "calls": names},
    )


def _fail(fault: Fault) -> Next:
    return Commit((RunStopped("failed", fault=fault),))


_LABELS: dict[Finish, Label] = {
    "length": "truncated",
    "content_filter": "filtered",
    "unknown": "unknown_finish",
}


def _label(reply: Reply) -> Label | None:
    return "refused" if reply.message.refused else _LABELS.get(reply.finish)
