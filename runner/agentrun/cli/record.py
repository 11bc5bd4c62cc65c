"""`--mode record`: run for real and write every interaction to the cassette of the case."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
import msgspec
import yaml
from msgspec import UNSET

from agentrun.cli.approval_options import (
    NOTHING_RECORDED,
    approval_sources,
    confirm_recording,
    refuse_without_consent,
)
from agentrun.cli.interrupt import InterruptHandler
from agentrun.cli.live import begin_output, missing_approver, open_real_world, open_store
from agentrun.cli.recorded_case import make_fault_injection, make_player, warn_unused_faults
from agentrun.cli.stdout_guard import guard_stdout
from agentrun.compiler import cases
from agentrun.compiler.package_file import PackageFile
from agentrun.compiler.prompts import complete_params
from agentrun.engine.approvals import HOW_TO_ANSWER, NoApprover
from agentrun.engine.live_providers import known_secrets
from agentrun.engine.recording import CassetteRecording, NewCase, RecordingResult, record_runs, resume_recording
from agentrun.engine.run import FinishedRun
from agentrun.errors import RequestError
from agentrun.redactor import Redactor
from agentrun.spec.problems import DocumentError, Source
from agentrun.spec.safe_text import plural, short_text
from agentrun.spec.source_files import display_path, read_source
from agentrun.spec.v1.cases import Case, CasesFile
from agentrun.store.process_lock import lock_project_files
from agentrun.testing.suite.recording_preview import PlannedCassette, RecordingPreview, preview_recording

if TYPE_CHECKING:
    from agentrun.cli.plan import RunPlan
    from agentrun.cli.run_output import RunOutput
    from agentrun.core.package import Package
    from agentrun.engine.ports import Approver
    from agentrun.engine.request import Request
    from agentrun.engine.run import Announce
    from agentrun.engine.settings import Settings
    from agentrun.engine.world import World
    from agentrun.report.formatting import Tone
    from agentrun.spec.project import Project
    from agentrun.store.files import FileStore

_EMPTY_CASES_FILE = 'agentrun: "1"\ncases:\n'


def record_run(
    plan: RunPlan, request: Request, approver: Approver | None, output: RunOutput, recording: CassetteRecording
) -> FinishedRun:
    package = cast(PackageFile, request.package)
    faults, interrupts = make_fault_injection(plan), InterruptHandler(output, plan.grace)
    added: list[tuple[str, Tone]] = []
    preview = _preview(plan, package.agent, output)
    refuse_without_consent(preview, output, yes=plan.yes)

    @asynccontextmanager
    async def open_world(run: str) -> AsyncIterator[World]:
        async with open_real_world(plan, request, run, approver, output, store) as world:
            interrupts.set_world(world)
            yield world

    async def announce() -> None:
        await begin_output(plan, request, output)
        await interrupts.ask(confirm_recording(preview, output, yes=plan.yes), NOTHING_RECORDED)

    def write_case() -> None:
        if plan.is_new and plan.case is not None:
            assert plan.settings is not None
            spec = plan.spec
            added.extend(write_new_case(spec.project, spec.path, package.agent, plan.settings, plan.case))

    wrappers = () if faults is None else faults.wrappers
    with guard_stdout(output.show_printed), open_store(plan, output) as store:
        answers = approver or NoApprover()
        recorded = interrupts.run(
            record_runs(
                recording,
                open_world,
                package,
                [request],
                answers,
                store=store,
                wrappers=wrappers,
                announce=interrupts.announce(announce),
                after_save=write_case,
            )
        )
    show_recording_result(recorded, recording, output)
    for text, tone in added:
        output.say(text, tone)
    warn_unused_faults(faults, output)
    return recorded.run


async def resume_recorded_run(
    recording: CassetteRecording,
    world: World,
    package: PackageFile,
    settings: Settings,
    output: RunOutput,
    store: FileStore,
    announce: Announce,
) -> FinishedRun:
    """Continue a recording that was cut."""
    added: list[tuple[str, Tone]] = []

    def write_case() -> None:
        if recording.new_case is not None:
            new = write_new_case(recording.project, recording.spec, package.agent, settings, recording.new_case)
            added.extend(new)

    approver = world.approver or NoApprover()
    recorded = await resume_recording(
        recording, world, package, approver, store=store, announce=announce, after_save=write_case
    )
    show_recording_result(recorded, recording, output)
    for text, tone in added:
        output.say(text, tone)
    return recorded.run


def _preview(plan: RunPlan, package: Package, output: RunOutput) -> RecordingPreview:
    assert plan.case is not None
    assert plan.cassette is not None
    answers = approval_sources(plan.approve, output)
    planned = PlannedCassette(package, plan.case, plan.cassette, plan.spec.project)
    return preview_recording([planned], plan.record or "all", answers)


def show_recording_result(recorded: RecordingResult, recording: CassetteRecording, output: RunOutput) -> None:
    if not recorded.is_saved:
        if recorded.kept is not None:
            count = plural(recorded.interactions, "interaction")
            output.say(f"not recorded yet: {count} in {recorded.kept}, and `resume` continues the recording", "warn")
        elif recorded.refusal is not None and recorded.run.error is None:
            output.say(f"not recorded: {recorded.refusal}", "warn")
        _show_spending(recorded, output)
        return
    reused = f", {recorded.reused} kept from the old cassette" if recorded.reused else ""
    doubts = _recording_doubts(recorded)
    shown = display_path(recording.destination[1], recording.project.root)
    output.say(
        f"recorded: {shown} ({plural(recorded.interactions, 'interaction')}{reused}){doubts}",
        "warn" if doubts else "good",
    )
    _show_spending(recorded, output)


def _show_spending(recorded: RecordingResult, output: RunOutput) -> None:
    """Report what the run spent, even if it was not saved, and which tool calls failed."""
    output.say(f"spent: {recorded.spent}")
    if failed := recorded.failed_calls:
        output.say(f"{plural(len(failed), 'tool call')} failed: {', '.join(map(short_text, failed))}", "warn")


def _recording_doubts(recorded: RecordingResult) -> str:
    """What the user may not have wanted to record."""
    unanswered = f"; {missing_approver(recorded.unanswered)}" if recorded.unanswered else ""
    if recorded.run.ending.exit_code:
        return f"{unanswered}; the run failed, so every replay will fail"
    return f"{unanswered}; {HOW_TO_ANSWER}, and record again" if unanswered else ""


def write_new_case(
    project: Project, spec: Path, package: Package, settings: Settings, case: Case
) -> Iterator[tuple[str, Tone]]:
    """Add a new case to the cases of its spec, and return what to report. A secret in the case is replaced by the same
    placeholder as on the cassette, so that the case can be replayed."""
    known = known_secrets(package, settings.variables(), project.secrets)
    clean = Redactor(known).redact_struct(case)
    if clean != case:
        yield "a secret in the message or params is written to the case as a placeholder", "warn"
        try:
            complete_params(package, clean.params)
        except RequestError:
            yield "the case was not added: a param is a secret, and a placeholder is not a valid value for it", "warn"
            return
    advice = add_case(project, spec, clean)
    added = f"case {clean.name} added to {display_path(cases.cases_path(spec), project.root)}"
    yield (advice, "warn") if advice else (added, "good")


def make_recording(plan: RunPlan, request: Request) -> CassetteRecording:
    """The cassette to record. Raises click.UsageError if the case cannot be recorded."""
    project, how, case = plan.spec.project, plan.record, plan.case
    assert plan.cassette is not None
    assert case is not None
    if (maker := cases.cassette_owner(case, cases.cases_path(plan.spec.path))) != case.name:
        raise click.UsageError(
            f"case {case.name!r} reuses the cassette of {maker!r}; record that one with --case {maker}"
        )
    until = int(how.removeprefix("from:")) - 1 if how and how.startswith("from:") else None
    if until and not plan.has_cassette:
        raise click.UsageError(f"--record {how} keeps the first interactions, but there is no cassette yet")
    old_player = make_player(plan, request) if plan.has_cassette and (how == "new" or until) else None
    if until is not None and old_player is not None and until > len(old_player.cassette.interactions):
        count = plural(len(old_player.cassette.interactions), "interaction")
        raise click.UsageError(f"--record {how} is too high: the cassette has only {count}")
    return CassetteRecording(
        project,
        plan.cassette,
        plan.spec.path,
        case,
        how=how or "all",
        old_player=old_player,
        is_new=not plan.has_cassette,
        new_case=NewCase(case.input is not UNSET, tuple(case.params)) if plan.is_new else None,
        is_taken=lambda: plan.is_new and any(each.name == case.name for each in cases.cases_for_spec(plan.spec.path)),
    )


def format_case(case: Case) -> str:
    data = {key: value for key, value in msgspec.to_builtins(case).items() if value not in ({}, [])}
    data = {"name": data.pop("name"), **({"input": data.pop("input")} if "input" in data else {}), **data}
    text: str = yaml.safe_dump([data], sort_keys=False, allow_unicode=True, default_flow_style=False, width=100)
    return "".join(f"  {line}\n" for line in text.splitlines())


def add_case(project: Project, spec: Path, case: Case) -> str | None:
    """Add a case to the cases of a spec. Return None, or a message with the YAML that the user has to add."""
    path = cases.cases_path(spec)
    with lock_project_files(project):
        before = read_source(path).text if path.exists() else _EMPTY_CASES_FILE
        old = cases.read_cases_file(path)[1].cases if path.exists() else []
        if case in old:
            return None
        if any(each.name == case.name for each in old):
            return f"case not added: {display_path(path)} now has another case {case.name}:\n{format_case(case)}"
        after = before + ("" if before.endswith("\n") else "\n") + format_case(case)
        now = _parse_or_none(path, after)
        if now is None or now.cases != [*old, case]:
            return f"add this to {display_path(path)}:\n{format_case(case)}"
        merged, keys = cases.complete_cases(now)[-1], ("params", "profile", "stubs", "clock", "faults")
        # The case was recorded without the defaults of the file.
        if changed := ", ".join(key for key in keys if getattr(merged, key) != getattr(case, key)):
            return f"case not added: the defaults in {display_path(path)} change its {changed}:\n{format_case(case)}"
        project.source_tree("cases").write(path, after.encode())
    return None


def _parse_or_none(path: Path, text: str) -> CasesFile | None:
    try:
        return cases.parse_cases(Source(path, display_path(path), text), path)[1]
    except DocumentError:
        return None
