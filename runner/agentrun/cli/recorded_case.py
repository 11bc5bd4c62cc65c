"""Play the cassette of the recorded case of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from agentrun.compiler.package_file import PackageFile

if TYPE_CHECKING:
    from agentrun.cassette.player import Player
    from agentrun.cli.plan import RunPlan
    from agentrun.cli.run_output import RunOutput
    from agentrun.engine.request import Request
    from agentrun.testing.suite.fault_injection import FaultInjection


def make_player(plan: RunPlan, request: Request) -> Player:
    from agentrun.cassette.file import load_cassette
    from agentrun.cassette.miss_context import make_miss_context
    from agentrun.cassette.player import FaultInjectionPlayer, Player
    from agentrun.cassette.redaction import RunRedaction

    assert plan.cassette is not None
    file = cast(PackageFile, request.package)
    has_faults = plan.case is not None and bool(plan.case.faults) and plan.required_tier != "exact"
    return (FaultInjectionPlayer if has_faults else Player)(
        load_cassette(plan.cassette, plan.spec.project.cassette_limit),
        volatile=file.agent.replay.volatile,
        redaction=RunRedaction(file.agent.replay.redact),
        require=plan.required_tier,
        context=lambda: make_miss_context(
            plan.spec,
            file,
            message=request.message,
            params=request.params,
            accept=plan.command,
            whole=plan.mode in ("live-tools", "live-model"),
        ),
    )


def make_fault_injection(plan: RunPlan, player: Player | None = None) -> FaultInjection | None:
    """The faults, stubs and clock of the case. `player`: set if all of the run is replayed. None: the case has none."""
    case = plan.case
    if case is not None and plan.has_real_tools:
        case = case.without_approvals
    if case is None or case.is_plain_replay:
        return None
    from agentrun.testing.suite.fault_injection import FaultInjection

    return FaultInjection(case, player)


def warn_unused_faults(faults: FaultInjection | None, output: RunOutput) -> None:
    for place in () if faults is None else faults.untriggered_faults():
        output.say(f"the fault at {place} was not injected: the run made no such call", "warn")
