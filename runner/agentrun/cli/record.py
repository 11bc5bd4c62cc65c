"""`--mode record`: runs for real, and writes what the run saw of the world to the cassette of its case."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.cli.consent import answers_of, confirm_recording
from agentrun.cli.new_case import add_case
from agentrun.compiler.cases import cases_of, cases_path, maker_of
from agentrun.compiler.prompts import complete_params
from agentrun.engine.approvals import TO_ANSWER
from agentrun.engine.assemble import FinishedRun
from agentrun.engine.clean import cleaned
from agentrun.engine.known import known_values
from agentrun.engine.recording import Recorded, Target, record_run
from agentrun.errors import RequestError
from agentrun.redact import Redactor
from agentrun.spec.files import shown_path
from agentrun.spec.text import plural, short
from agentrun.testing.suite.announcement import PlannedCassette, announcement_of

if TYPE_CHECKING:
    from agentrun.cli.carry_out import Errand
    from agentrun.cli.interrupt import Interrupts
    from agentrun.cli.teller import Teller
    from agentrun.engine.real_time import Job
    from agentrun.report.line import Tone
    from agentrun.spec.v1.cases import Case


def confirm(errand: Errand, teller: Teller, *, yes: bool) -> None:
    """Announce the recording, and ask about it where that is needed."""
    target, case = recording_target(errand), errand.plan.case
    assert case is not None
    answers = answers_of(errand.approve, teller, option_first=True)
    planned = PlannedCassette(errand.file.agent, case, target.path)
    confirm_recording(announcement_of([planned], errand.record or "all", answers), teller, yes=yes)


def record(errand: Errand, job: Job, interrupts: Interrupts, teller: Teller) -> FinishedRun:
    plan, root = errand.plan, errand.spec.project.root
    added: list[tuple[str, Tone]] = []

    def write_case() -> None:
        if plan.is_new and plan.case is not None:
            added.extend(_write_case(errand, plan.case))

    target = replace(recording_target(errand), after_save=write_case)
    recorded = interrupts.run(record_run(job, target))
    if not recorded.is_saved:
        if recorded.refused is not None and recorded.run.complaint is None:
            teller.say(f"not recorded: {recorded.refused}", "warn")
        _say_spending(recorded, teller)
        return recorded.run
    kept = f", {recorded.kept} of them kept" if recorded.kept else ""
    doubts = _doubts(recorded)
    teller.say(
        f"recorded: {shown_path(target.path, root)} ({plural(recorded.interactions, 'interaction')}{kept}){doubts}",
        "warn" if doubts else "good",
    )
    _say_spending(recorded, teller)
    for text, tone in added:
        teller.say(text, tone)
    return recorded.run


def _say_spending(recorded: Recorded, teller: Teller) -> None:
    """What was spent now, also on a run that is not recorded, and which calls failed."""
    teller.say(f"spent: {recorded.spent}")
    if failed := recorded.failed_calls:
        teller.say(f"{plural(len(failed), 'tool call')} failed: {', '.join(map(short, failed))}", "warn")


def _doubts(recorded: Recorded) -> str:
    """What the user may not have meant to record."""
    run = recorded.run
    nobody = f"; there was nobody to ask about {', '.join(recorded.unasked)}" if recorded.unasked else ""
    if run.ended.exit_code:
        return f"{nobody}; the run failed, and will in every replay"
    return f"{nobody}: {TO_ANSWER}, and record again" if nobody else ""


def _write_case(errand: Errand, case: Case) -> Iterator[tuple[str, Tone]]:
    """Add a new case to the cases of its spec, and give what there is to say about it. A secret is written to the case
    as to the cassette: as a placeholder, with which it can be replayed."""
    clean = cleaned(Redactor(known_values(errand.file.agent, os.environ)), case)
    if clean != case:
        yield "a secret in its message or params is not written to the case: a placeholder is", "warn"
        try:
            complete_params(errand.file.agent, clean.params)
        except RequestError:
            yield "the case was not added: one of its params is a secret that no placeholder can stand for", "warn"
            return
    advice = add_case(errand.spec, clean)
    added = f"case {clean.name} added to {shown_path(cases_path(errand.spec.path), errand.spec.project.root)}"
    yield (advice, "warn") if advice else (added, "good")


def recording_target(errand: Errand) -> Target:
    """Where the recording goes. Raises what keeps the case from being recorded."""
    plan, project, how = errand.plan, errand.spec.project, errand.record
    assert plan.cassette is not None
    assert plan.case is not None
    name = plan.case.name
    if (maker := maker_of(plan.case, cases_path(errand.spec.path))) != plan.case.name:
        raise click.UsageError(f"case {plan.case.name} plays the recording of {maker}: record that one, --case {maker}")
    is_there = plan.has_cassette
    until = int(how.removeprefix("from:")) - 1 if how and how.startswith("from:") else None
    if until and not is_there:
        raise click.UsageError(f"--record {how}: there is no recording to keep the beginning of")
    kept = errand.player() if is_there and (how == "new" or until) else None
    if until is not None and kept is not None and until > len(kept.cassette.interactions):
        raise click.UsageError(f"--record {how}: the recording has {len(kept.cassette.interactions)} interactions")
    profile = {} if plan.case.profile is UNSET else {"profile": plan.case.profile}
    return Target(
        project=project,
        path=plan.cassette,
        is_new=not is_there,
        is_taken=lambda: plan.is_new and any(each.name == name for each in cases_of(errand.spec.path)),
        about={
            "spec": errand.spec.path.relative_to(project.root).as_posix(),
            "case": plan.case.name,
            **profile,
            "params": complete_params(errand.file.agent, plan.params),
        },
        kept=kept,
        until=until,
    )
