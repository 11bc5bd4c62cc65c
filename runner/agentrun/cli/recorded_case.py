"""Which recording answers a request: the case with this input, these params and this profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET

from agentrun.cli.console import environment_redactor
from agentrun.compiler.cases import cases_path
from agentrun.compiler.package_file import PackageFile
from agentrun.compiler.prompts import complete_params, render_input
from agentrun.compiler.spec_reader import Spec
from agentrun.core.package import Package
from agentrun.errors import CassetteError, RequestError
from agentrun.spec.problems import did_you_mean, quote_text
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.cases import Case

if TYPE_CHECKING:
    from agentrun.cassette.player import Player
    from agentrun.cli.plan import RunPlan
    from agentrun.cli.run_output import RunOutput
    from agentrun.engine.request import Request
    from agentrun.testing.suite.fault_injection import FaultInjection


def find_case(cases: list[Case], name: str, *, may_be_new: bool) -> Case | None:
    """The case of that name. None: there is none, and there may be none."""
    for case in cases:
        if case.name == name:
            return case
    if may_be_new:
        return None
    names = [case.name for case in cases]
    hint = did_you_mean(name, names) or f"cases: {', '.join(names) or 'none'}"
    raise RequestError("input.rejected", f"there is no case {quote_text(name)}", hint=hint, fields={"reason": "case"})


def refuse_conversation(spec: Path, case: Case) -> None:
    """A conversation is several runs, and this is about one."""
    if case.turns is not UNSET:
        named = quote(f"{display_path(cases_path(spec))}::{case.name}")
        message = f"case {quote_text(case.name)} is a conversation of {len(case.turns)} messages, and this runs one"
        raise RequestError("input.rejected", message, hint=f"agentrun test {named}", fields={"reason": "case"})


def matching_cases(
    cases: list[Case], package: Package, profile: str | None, message: str | None, params: Mapping[str, Any]
) -> list[Case]:
    """The cases whose message, params and profile are the ones asked for. Cases have no secrets in them."""
    values = complete_params(package, params)
    wanted = (message if message is not None else render_input(package, values), values)
    hidden = cast(tuple[Any, ...], environment_redactor().redact_data(wanted))
    plain = [case for case in cases if case.is_plain_replay]
    own = [case for case in plain if (None if case.profile is UNSET else case.profile) == profile]
    return [case for case in own if _case_input(case, package) in (wanted, hidden)]


def _case_input(case: Case, package: Package) -> tuple[Any, ...] | None:
    """The message and the params of a case. None: the agent does not take them, which is the trouble of that case."""
    try:
        values = complete_params(package, case.params)
        return (render_input(package, values) if case.input is UNSET else case.input), values
    except RequestError:
        return None


def case_cassette_path(spec: Spec, package: Package, case: Case) -> Path:
    """Where the recording of a case is, or would be."""
    return spec.project.cassette_directory / package.name / f"{case.cassette_name}.yaml"


def nothing_recorded_error(
    spec: Spec, cases: list[Case], folder: Path, case: Case | None, *, in_ci: bool = False
) -> CassetteError:
    """The error for a run that cannot be replayed. It says which ones can."""
    recorded = [one.name for one in cases if (folder / f"{one.cassette_name}.yaml").is_file()]
    shown = display_path(folder, spec.project.root)
    listed = display_path(cases_path(spec.path), spec.project.root)
    if case is not None:
        what = f"case {quote_text(case.name)} has no cassette {shown}/{case.cassette_name}.yaml"
    elif cases:
        what = f"no case in {listed} has this message, params and profile"
    else:
        what = f"there are no cases: {listed} does not exist"
    hint = "nothing is recorded yet; --mode record does it"
    if recorded:
        hint = f"recorded cases: {', '.join(recorded)}; replay one with --case NAME"
    if in_ci:
        what += "; with CI set nothing goes live unless --mode says so"
    return CassetteError("cassette.miss", f"nothing to replay: {what}", hint=hint, fields={"recorded": recorded})


def make_player(plan: RunPlan, request: Request) -> Player:
    """Plays the recording of the case."""
    from agentrun.cassette.file import load_cassette
    from agentrun.cassette.player import FaultInjectionPlayer, Player
    from agentrun.cassette.redaction import RunRedaction
    from agentrun.engine.miss_context import make_miss_context

    assert plan.cassette is not None
    file = cast(PackageFile, request.package)
    has_faults = plan.case is not None and bool(plan.case.faults) and plan.required_tier == "normalised"
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
    """What the case puts before the ports of its runs. `player`: plays all of the recording. None: nothing."""
    case = plan.case
    if case is not None and plan.has_real_tools:
        case = case.without_approvals
    if case is None or case.is_plain_replay:
        return None
    from agentrun.testing.suite.fault_injection import FaultInjection

    return FaultInjection(case, player)


def warn_unused_faults(faults: FaultInjection | None, output: RunOutput) -> None:
    for place in () if faults is None else faults.untriggered_faults():
        output.say(f"the fault at {place} never happened", "warn")
