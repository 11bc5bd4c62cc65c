"""`--mode record`: runs for real, and writes what the run saw of the world to the cassette of its case."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import click
from msgspec import UNSET

from agentrun.cli.consent import answers_of, confirm_recording
from agentrun.cli.interrupt import Interrupts
from agentrun.cli.live import own_output, real_world
from agentrun.cli.new_case import add_case
from agentrun.cli.recorded import faults_of, player_of, say_unmet
from agentrun.compiler.cases import cases_for_spec, cases_path, cassette_owner
from agentrun.compiler.package_file import PackageFile
from agentrun.compiler.prompts import complete_params
from agentrun.engine.approvals import TO_ANSWER, Nobody
from agentrun.engine.clean import cleaned
from agentrun.engine.known import known_values
from agentrun.engine.recording import CassetteRecording, Recorded, record_runs
from agentrun.engine.run import FinishedRun
from agentrun.errors import RequestError
from agentrun.redactor import Redactor
from agentrun.spec.safe_text import plural, short_text
from agentrun.spec.source_files import display_path
from agentrun.testing.suite.recording_preview import PlannedCassette, preview_recording

if TYPE_CHECKING:
    from agentrun.cli.plan import Plan
    from agentrun.cli.teller import Teller
    from agentrun.core.package import Package
    from agentrun.engine.ports import Approver
    from agentrun.engine.request import Request
    from agentrun.engine.world import World
    from agentrun.report.formatting import Tone
    from agentrun.spec.v1.cases import Case


def confirm(plan: Plan, package: Package, approve: str | None, teller: Teller, *, yes: bool) -> None:
    """Announce the recording, and ask about it where that is needed. `approve`: what `--approve` says."""
    assert plan.case is not None
    assert plan.cassette is not None
    answers = answers_of(approve, teller, option_first=True)
    planned = PlannedCassette(package, plan.case, plan.cassette)
    confirm_recording(preview_recording([planned], plan.record or "all", answers), teller, yes=yes)


def record(
    plan: Plan, request: Request, approver: Approver | None, teller: Teller, recording: CassetteRecording
) -> FinishedRun:
    """Run for real, and write what the run saw of the world to the cassette."""
    package, faults, interrupts = cast(PackageFile, request.package), faults_of(plan), Interrupts(teller)
    added: list[tuple[str, Tone]] = []

    @asynccontextmanager
    async def open_world(run: str) -> AsyncIterator[World]:
        async with real_world(plan, request, run, approver, teller) as world:
            interrupts.hold(world)
            yield world

    def write_case() -> None:
        if plan.is_new and plan.case is not None:
            added.extend(_write_case(plan, package.agent, plan.case))

    wrappers = () if faults is None else faults.wrappers
    with own_output(teller):
        recorded = interrupts.run(
            record_runs(
                recording,
                open_world,
                package,
                [request],
                approver or Nobody(),
                wrappers=wrappers,
                after_save=write_case,
            )
        )
    _say_recorded(plan, recorded, teller)
    for text, tone in added:
        teller.say(text, tone)
    say_unmet(faults, teller)
    return recorded.run


def _say_recorded(plan: Plan, recorded: Recorded, teller: Teller) -> None:
    if not recorded.is_saved:
        if recorded.refused is not None and recorded.run.complaint is None:
            teller.say(f"not recorded: {recorded.refused}", "warn")
        _say_spending(recorded, teller)
        return
    assert plan.cassette is not None
    kept = f", {recorded.kept} of them kept" if recorded.kept else ""
    doubts = _doubts(recorded)
    shown = display_path(plan.cassette, plan.spec.project.root)
    teller.say(
        f"recorded: {shown} ({plural(recorded.interactions, 'interaction')}{kept}){doubts}",
        "warn" if doubts else "good",
    )
    _say_spending(recorded, teller)


def _say_spending(recorded: Recorded, teller: Teller) -> None:
    """What was spent now, also on a run that is not recorded, and which calls failed."""
    teller.say(f"spent: {recorded.spent}")
    if failed := recorded.failed_calls:
        teller.say(f"{plural(len(failed), 'tool call')} failed: {', '.join(map(short_text, failed))}", "warn")


def _doubts(recorded: Recorded) -> str:
    """What the user may not have meant to record."""
    run = recorded.run
    nobody = f"; there was nobody to ask about {', '.join(recorded.unasked)}" if recorded.unasked else ""
    if run.ended.exit_code:
        return f"{nobody}; the run failed, and will in every replay"
    return f"{nobody}: {TO_ANSWER}, and record again" if nobody else ""


def _write_case(plan: Plan, package: Package, case: Case) -> Iterator[tuple[str, Tone]]:
    """Add a new case to the cases of its spec, and give what there is to say about it. A secret is written to the case
    as to the cassette: as a placeholder, with which it can be replayed."""
    clean = cleaned(Redactor(known_values(package, os.environ)), case)
    if clean != case:
        yield "a secret in its message or params is not written to the case: a placeholder is", "warn"
        try:
            complete_params(package, clean.params)
        except RequestError:
            yield "the case was not added: one of its params is a secret that no placeholder can stand for", "warn"
            return
    advice = add_case(plan.spec, clean)
    added = f"case {clean.name} added to {display_path(cases_path(plan.spec.path), plan.spec.project.root)}"
    yield (advice, "warn") if advice else (added, "good")


def recording_of(plan: Plan, request: Request) -> CassetteRecording:
    """The cassette to be recorded. Raises what keeps the case from being recorded."""
    project, how, case = plan.spec.project, plan.record, plan.case
    assert plan.cassette is not None
    assert case is not None
    if (maker := cassette_owner(case, cases_path(plan.spec.path))) != case.name:
        raise click.UsageError(f"case {case.name} plays the recording of {maker}: record that one, --case {maker}")
    until = int(how.removeprefix("from:")) - 1 if how and how.startswith("from:") else None
    if until and not plan.has_cassette:
        raise click.UsageError(f"--record {how}: there is no recording to keep the beginning of")
    kept = player_of(plan, request) if plan.has_cassette and (how == "new" or until) else None
    if until is not None and kept is not None and until > len(kept.cassette.interactions):
        raise click.UsageError(f"--record {how}: the recording has {len(kept.cassette.interactions)} interactions")
    profile = {} if case.profile is UNSET else {"profile": case.profile}
    return CassetteRecording(
        project,
        plan.cassette,
        {
            "spec": plan.spec.path.relative_to(project.root).as_posix(),
            "case": case.name,
            **profile,
            "params": complete_params(cast(PackageFile, request.package).agent, request.params),
        },
        kept=kept,
        until=until,
        is_new=not plan.has_cassette,
        is_taken=lambda: plan.is_new and any(each.name == case.name for each in cases_for_spec(plan.spec.path)),
    )
