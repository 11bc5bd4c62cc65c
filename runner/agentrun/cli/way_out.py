"""What can be done about a run that could not start, or that found nobody at the other end."""

from __future__ import annotations

from msgspec.structs import replace

from agentrun.cli.plan import Plan
from agentrun.core.outcome import Outcome
from agentrun.engine.approvals import TO_ANSWER
from agentrun.engine.run import FinishedRun
from agentrun.errors import HostError


def with_way_out(error: HostError, plan: Plan) -> HostError:
    """The error of a run that could not start, with what can be done without what it lacks."""
    if plan.mode == "record" and "names" in error.fields:
        return error  # what tools lack is not what a script gives
    return HostError(error.code, error.message, hint=_way_out(error.hint, plan), fields=error.fields)


def hinted(done: FinishedRun, plan: Plan) -> FinishedRun:
    """The same for a run that found nobody at the other end."""
    outcome = done.ended
    if not isinstance(outcome, Outcome) or outcome.fault is None:
        return done
    fault = outcome.fault
    if plan.mode == "replay":
        if not fault.code.startswith("provider.") or (plan.case is not None and plan.case.faults):
            return done
        hint = "this failure is on the tape; remove the cassette and record again if it is not what you want"
        return replace(done, ended=replace(outcome, fault=replace(fault, hint=hint)))
    if fault.code == "approval.unavailable":
        hint = TO_ANSWER
        return replace(done, ended=replace(outcome, fault=replace(fault, hint=hint)))
    if fault.code != "provider.transient" or fault.fields.get("status") is not None:
        return done
    hint = fault.hint or "is the server running, and its address right?"
    return replace(done, ended=replace(outcome, fault=replace(fault, hint=_way_out(hint, plan))))


def _way_out(hint: str | None, plan: Plan) -> str | None:
    if plan.mode == "record":
        return f"{hint}; or let a script play the model: agentrun provider --help" if hint else None
    if not plan.recorded:
        return hint
    offline = f"or replay a recorded case: --case {' | '.join(plan.recorded)}"
    return f"{hint}; {offline}" if hint else offline
