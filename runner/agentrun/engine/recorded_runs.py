"""Replay and record the runs of a program, with the cassette of a case or with another one.

Rule 1  A replay executes nothing and never goes live. A cassette that is missing is an error.
Rule 2  The answers of the caller's approver replace the recorded ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.cassette.file import cassette_exists, load_cassette
from agentrun.cassette.miss_context import MissContext, make_miss_context
from agentrun.cassette.player import Player
from agentrun.cassette.redaction import RunRedaction
from agentrun.compiler.cases import cases_for_spec, cases_path, cassette_owner
from agentrun.core.fault import fault_of
from agentrun.core.outcome import Outcome
from agentrun.core.trajectory import RunTrail
from agentrun.engine.approvals import NoApprover, to_approver
from agentrun.engine.begin import find_package
from agentrun.engine.ci import in_ci
from agentrun.engine.clock import StepClock
from agentrun.engine.host_ports import make_ports, open_host_world
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.recorded_cases import (
    case_cassette_path,
    find_case,
    matching_cases,
    nothing_recorded_error,
    refuse_conversation,
    require_case_values,
)
from agentrun.engine.run import FinishedRun, replay_run
from agentrun.engine.world import Listener, World
from agentrun.errors import CassetteError, RequestError
from agentrun.spec.project import find_project
from agentrun.spec.v1.cases import Case

if TYPE_CHECKING:
    from agentrun.engine.api import PreparedRun


def resolve_auto(prepared: PreparedRun) -> PreparedRun:
    """The run as a replay if there is a cassette, otherwise as a live one. Raises `cassette.miss` in CI."""
    case, path = _find_cassette(prepared)
    if path is not None and cassette_exists(path):
        return replace(prepared, mode="replay")
    if in_ci():
        raise _nothing_recorded(prepared, case, path, in_ci=True)
    return replace(prepared, mode="live")


def replay_prepared(prepared: PreparedRun, listen: Listener) -> Outcome:
    """Raises `cassette.miss` if there is no cassette. A request that is not on it is a failed outcome."""
    case, path = _find_cassette(prepared)
    if path is None or not cassette_exists(path):
        raise _nothing_recorded(prepared, case, path)
    request = prepared.request
    if case is not None:
        message = request.message if case.input is UNSET else case.input
        request = replace(request, message=message, params=case.params)
    agent, project = prepared.file.agent, find_project(prepared.place)
    player = Player(
        load_cassette(path, project.cassette_limit),
        volatile=agent.replay.volatile,
        redaction=RunRedaction(agent.replay.redact),
        context=lambda: _miss_context(prepared, case),
    )
    approver = to_approver(prepared.arguments.get("approver"), StepClock())
    return outcome_of_recorded(replay_run(replace(request, run=None), player, approver=approver, listen=listen))


def outcome_of_recorded(done: FinishedRun) -> Outcome:
    """The outcome of a run with a cassette. If only the cassette is at fault, the outcome is a failed one."""
    outcome = done.ending
    if done.error is not None:
        outcome = replace(outcome, status="failed", answer=None, output=None, fault=fault_of(done.error))
    journals = {outcome.run: done.journal, **done.children}
    return outcome.with_trail(RunTrail(outcome.run, lambda run: journals.get(run, ())))


def _find_cassette(prepared: PreparedRun) -> tuple[Case | None, Path | None]:
    """The case of a run, and its cassette. Raises `input.rejected`."""
    arguments, spec, package = prepared.arguments, prepared.spec, prepared.file.agent
    if (cassette := arguments.get("cassette")) is not None:
        if "case" in arguments:
            raise ValueError("`case` cannot be combined with `cassette`: a case has its own")
        return None, Path(cassette)
    if spec is None:
        raise ValueError("`cassette` is missing: a package has no cases, so it does not say which one")
    cases = cases_for_spec(spec.path)
    message, params = prepared.request.message, prepared.request.params
    if (name := arguments.get("case")) is not None:
        case = find_case(cases, name, may_be_new=False)
        assert case is not None
        refuse_conversation(spec.path, case)
        require_case_values(spec.path, package, case, message, params)
    else:
        found = matching_cases(cases, package, arguments.get("profile"), message, params)
        recorded = (each for each in found if cassette_exists(case_cassette_path(spec, package, each)))
        case = next(recorded, found[0] if found else None)
    return case, None if case is None else case_cassette_path(spec, package, case)


def _nothing_recorded(
    prepared: PreparedRun, case: Case | None, path: Path | None, *, in_ci: bool = False
) -> CassetteError:
    if prepared.spec is None or "cassette" in prepared.arguments:
        hint = "record it first with mode='record'"
        return CassetteError("cassette.miss", f"there is no cassette {path}", hint=hint, fields={"file": str(path)})
    folder = prepared.spec.project.cassette_directory / prepared.file.agent.name
    return nothing_recorded_error(prepared.spec, cases_for_spec(prepared.spec.path), folder, case, in_ci=in_ci)


def _miss_context(prepared: PreparedRun, case: Case | None) -> MissContext | None:
    if prepared.spec is None:
        return None
    name = "" if case is None else f" --case {case.name}"
    accept = f"agentrun {prepared.spec.path.name}{name}"
    request = prepared.request
    return make_miss_context(
        prepared.spec, prepared.file, message=request.message, params=request.params, accept=accept, whole=False
    )


async def record_prepared(prepared: PreparedRun, listen: Listener) -> Outcome:
    """Run live and write the cassette of an existing case, or another one. Raises `input.rejected` if no case has this
    input, and `storage.failed`."""
    from agentrun.engine.recording import CassetteRecording, record_runs  # late: a replay needs no event loop

    case, path = _find_cassette(prepared)
    if path is None:
        message, hint = (
            "no case has this message, params and profile",
            "pass `cassette`, or add the case to the cases file",
        )
        raise RequestError("input.rejected", message, hint=hint, fields={"reason": "case"})
    package = find_package({}, prepared.request)
    ports, project = make_ports(package.agent, prepared.arguments), find_project(prepared.place)
    if prepared.spec is not None and case is not None:
        maker = cassette_owner(case, cases_path(prepared.spec.path))
        if maker != case.name:
            message, hint = f"the case {case.name} reuses the cassette of {maker}", f"record that one: case={maker!r}"
            raise RequestError("input.rejected", message, hint=hint, fields={"reason": "case"})

    @asynccontextmanager
    async def open_world(run: str) -> AsyncIterator[World]:
        options: dict[str, Any] = {"place": prepared.place, "env_file": prepared.arguments.get("env_file")}
        opened = open_host_world(package.agent, ports, run, journals=MemoryJournals(), listen=listen, **options)
        async with opened as world:
            yield world if world.approver is not None else replace(world, approver=NoApprover())

    spec = None if prepared.spec is None else prepared.spec.path
    target = project if case is not None else replace(project, cassettes=str(path.resolve().parent))
    recording = CassetteRecording(target, path.resolve(), spec, case, is_new=not cassette_exists(path))
    approver = ports.approver or NoApprover()
    recorded = await record_runs(recording, open_world, package, [prepared.request], approver)
    outcome = outcome_of_recorded(recorded.run)
    if recorded.refusal is not None and outcome.ok:
        raise CassetteError("cassette.unused", f"not recorded: {recorded.refusal}")
    return outcome
