"""`agentrun resume RUN`"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from agentrun.cli import options as cli_options
from agentrun.cli.approval_options import approve_option, detach_option, make_approver, terminal_approver
from agentrun.cli.completion import complete_runs
from agentrun.cli.console import document_problems, json_line, json_option, print_stderr, safe_text
from agentrun.cli.run_files import find_run, show_run_error, working_project
from agentrun.credentials import hidden_secrets
from agentrun.errors import SUSPENDED_EXIT, AgentrunError, SpecError
from agentrun.spec.source_files import display_path

if TYPE_CHECKING:
    from agentrun.cli.interrupt import InterruptHandler
    from agentrun.cli.run_output import RunOutput
    from agentrun.compiler.package_file import PackageFile
    from agentrun.core.facts import Record
    from agentrun.engine.ports import Approver
    from agentrun.engine.recording import CassetteRecording
    from agentrun.engine.run import FinishedRun
    from agentrun.engine.settings import Settings
    from agentrun.spec.project import Project
    from agentrun.store.files import FileStore

_Command = TypeVar("_Command", bound=Callable[..., Any])


def resume_options(command: _Command) -> _Command:
    """The options of commands that continue a run."""
    for option in (
        json_option,
        click.option("--no-color", is_flag=True, help="Print no colours, even in a terminal."),
        click.option("-q", "--quiet", is_flag=True, help="Print only the answer, no progress."),
        cli_options.signal_options,
        detach_option,
        approve_option,
        click.option(
            "--with-package",
            "with_package",
            type=cli_options.ExistingPath(exists=True, dir_okay=False, path_type=Path),
            help="Continue with another package, or with a spec that is compiled now. The journal records it.",
        ),
    ):
        command = option(command)
    return command


@click.command("resume")
@click.argument("run", required=False, shell_complete=complete_runs)
@click.option("--due", is_flag=True, help="Continue all runs that could continue now, one after another.")
@resume_options
@cli_options.now_option
def command(run: str | None, due: bool, now: int, **options: Any) -> int:
    """Continue RUN, which was interrupted, parked, or waits for something.

    RUN is the id of a run in the store of the project, a unique beginning of it, or `-` for the latest run that is not
    finished. The project is the nearest folder above the working directory with `.agentrun`, `[tool.agentrun]` or
    `.git`.

    Work that was cut off is named. Requests are sent again. Calls with `effect: read` or `idempotent` run again, with
    the same idempotency key. A call with `effect: at_most_once` is not run again, because it may have taken effect: the
    run waits, with exit code 8, and `agentrun settle` decides. The run continues with its own package, even if the spec
    has changed since. If the run is finished, its outcome is printed.

    Rules that deferred something are asked again. If all that is left is deferred until a later time, or until a person
    lifts it, the command says so and does nothing more, with exit code 8.

    --due continues the runs that `agentrun runs --due` lists, the oldest first, and prints one line for each. No one is
    asked at the terminal, unless with --approve ask. A run that fails does not stop the others. The exit code is that
    of the first run that failed; a run that waits again has not failed.

    \b
    Examples:
      agentrun resume run-5f0c6d1e8a7b9c24
      agentrun resume 5f0c
      agentrun resume - --approve all
      agentrun resume - --with-package specs/support.yaml
      agentrun resume --due
    """
    from agentrun.store.files import FileStore
    from agentrun.store.run_ids import root_run

    if (run is None) != due:
        raise click.UsageError("name a RUN, or use --due" if run is None else "--due continues all runs: name no RUN")
    project = working_project()
    if run is None:
        if options["with_package"] is not None:
            raise click.UsageError("--with-package continues one run: it cannot be combined with --due")
        return _resume_due(project, options, now)
    with FileStore(project) as store:
        name = root_run(find_run(store, run))
    return resume_run(project, name, options)


def resume_run(project: Project, run: str, options: dict[str, Any], store: FileStore | None = None) -> int:
    """Continue a run, print it, and return its exit code. `store`: has locked the run; it is closed in the end."""
    from agentrun.store.files import FileStore
    from agentrun.store.owner import refuse_untrusted

    try:
        refuse_untrusted(project)
        with store or FileStore(project) as opened:
            resumed = _resume(opened, run, options)
            resumed.output.end(resumed.done)
            if resumed.done.error is not None:
                raise resumed.done.error
            return resumed.done.exit_code
    except SpecError:
        raise
    except AgentrunError as error:
        if error.code == "tool.drift":
            error.hint = f"review the change, then continue with it: agentrun resume {run} --with-package SPEC"
        show_run_error(run, error, as_json=options["as_json"])
        return error.exit_code


def _resume_due(project: Project, options: dict[str, Any], now: int) -> int:
    from agentrun.engine.due import is_due
    from agentrun.store.files import FileStore
    from agentrun.store.owner import refuse_untrusted

    refuse_untrusted(project)
    store = FileStore(project)  # not the index: what is resumed has effects
    due = [run for run in store.unfinished_runs() if not store.is_locked(run) and is_due(store, run, now)][::-1]
    if not due and not options["as_json"]:
        print_stderr("no run is due")
    code = 0
    for run in due:
        try:
            with FileStore(project) as opened:
                resumed = _resume(opened, run, {**options, "quiet": True, "as_json": False})
        except AgentrunError as error:
            show_run_error(run, error, as_json=options["as_json"])
            is_taken = error.code == "session.busy"  # another process works on it by now
            code = code or (0 if is_taken else error.exit_code)
            continue
        _print_ending(resumed.done, as_json=options["as_json"])
        exit_code = resumed.done.exit_code
        if resumed.is_interrupted:
            return exit_code
        code = code or (0 if exit_code == SUSPENDED_EXIT else exit_code)
    return code


def _print_ending(done: FinishedRun, *, as_json: bool) -> None:
    """Print one line about a run that was resumed."""
    from agentrun.report.run_renderer import outcome_summary
    from agentrun.report.suspension import parked_lines, suspension_lines

    ending = hidden_secrets.redactor.redact_struct(done.ending)
    if as_json:
        kind = "outcome" if ending.is_finished else ending.status
        click.echo(json_line({"run": ending.run, "ended": kind, "code": ending.code, "exit": done.exit_code}))
        return
    match ending.status:
        case "failed":
            assert ending.fault is not None
            text = f"{ending.fault.code}: {ending.fault.message}"
        case "completed":
            text = outcome_summary(ending)
        case "parked":
            text = next(parked_lines(ending, done.journal))
        case _:
            text = next(suspension_lines(ending.run, {ending.run: done.journal, **done.children}, is_resumable=True))
    click.echo(safe_text(f"{ending.run} of {ending.agent}: {text}"))


class _Resumption(NamedTuple):
    done: FinishedRun
    output: RunOutput
    is_interrupted: bool = False


def _resume(store: FileStore, run: str, options: dict[str, Any]) -> _Resumption:
    from agentrun.cli.run_output import RunOutput
    from agentrun.core.facts import RunStarted, RunStopped
    from agentrun.engine.begin import refuse_stand_ins
    from agentrun.engine.due import try_resume
    from agentrun.engine.event_loop import SystemClock
    from agentrun.engine.live_providers import hide_run_secrets, live_settings

    records, package = store.records(run), _package(store, run, options["with_package"])
    settings = None
    recording = _load_recording(store, run, package)
    is_finished = isinstance(records[-1].fact, RunStopped)
    if not is_finished or recording is not None:
        assert isinstance(records[0].fact, RunStarted), "a journal begins with run_started"
        refuse_stand_ins(records[0].fact, is_recorded=recording is not None)
        store.refuse_other_project(run)
        if is_finished or try_resume(store, run, package.agent, SystemClock().now()) != "deferred":
            settings = live_settings(package.agent, store.project.root)
            hide_run_secrets(package.agent, settings)
    headline = _headline(run, len(records), package, settings, recording)
    output = RunOutput(
        package.agent,
        headline,
        {"run": run, "start": {"mode": "resume", "why": headline}},
        is_live=True,
        is_resumable=True,
        as_json=options["as_json"],
        quiet=options["quiet"],
        color=False if options["no_color"] else None,
    )
    if settings is None:  # nothing is needed to print an outcome or a deferral, not even a key
        return _Resumption(_unchanged_run(store, records, package), output)
    return _continue(store, run, package, settings, output, options, recording)


def _load_recording(store: FileStore, run: str, package: PackageFile) -> CassetteRecording | None:
    if not store.recording(run).exists():
        return None
    from agentrun.engine.recording import load_recording

    return load_recording(store, run, package)


def _unchanged_run(store: FileStore, records: tuple[Record, ...], package: PackageFile) -> FinishedRun:
    """A run that is finished, or of which all that is left is deferred."""
    from agentrun.cassette.redaction import RunRedaction
    from agentrun.core.decide import decide
    from agentrun.core.effects import Wait
    from agentrun.core.evolve import fold
    from agentrun.core.outcome import outcome_of, suspended_outcome
    from agentrun.engine.run import FinishedRun, child_journals

    redaction = RunRedaction(package.agent.replay.redact, hidden_secrets.redactor)
    state = fold(records)
    step = decide(package.agent, state)
    if not isinstance(step, Wait):
        return FinishedRun(ending=outcome_of(state), journal=records, children={}, redaction=redaction)
    ending = suspended_outcome(state, step.questions, step.waits_for)
    children = dict(child_journals(store, ending.run))
    return FinishedRun(ending=ending, journal=records, children=children, redaction=redaction)


def _continue(
    store: FileStore,
    run: str,
    package: PackageFile,
    settings: Settings,
    output: RunOutput,
    options: dict[str, Any],
    recording: CassetteRecording | None,
) -> _Resumption:
    from agentrun.cli.interrupt import InterruptHandler
    from agentrun.cli.live import warn_unanswered
    from agentrun.cli.stdout_guard import guard_stdout
    from agentrun.engine.run import child_journals

    approve, session = options["approve"], store.session_of(run)
    person = terminal_approver(approve, "live", package.agent, session, output, detach=options["detach"])
    approver = make_approver(approve, None if recording is None else recording.case, package.agent, person)
    interrupts = InterruptHandler(output, options["grace"] if options["on_signal"] == "park" else None)
    try:
        store.configure(settings.sync, output.say)
        with guard_stdout(output.show_printed):
            output.skip({run: store.records(run), **dict(child_journals(store, run))})
            done = interrupts.run(_drive(store, run, package, settings, approver, output, interrupts, recording))
        warn_unanswered(done, output)
        return _Resumption(done, output, interrupts.is_interrupted)
    finally:
        output.close()


async def _drive(
    store: FileStore,
    run: str,
    package: PackageFile,
    settings: Settings,
    approver: Approver | None,
    output: RunOutput,
    interrupts: InterruptHandler,
    recording: CassetteRecording | None,
) -> FinishedRun:
    from agentrun.cli.live import world_options
    from agentrun.engine.run import resume_in_world
    from agentrun.engine.worlds.live import live_world

    options = world_options(output, settings, approver, run, store)
    options["suspends"] = recording is None
    async with live_world(package.agent, store.project, run, journals=store, **options) as world:
        interrupts.set_world(world)
        announce = interrupts.announce(output.begin)
        if recording is None:
            return await resume_in_world(world, package, announce)
        from agentrun.cli.record import resume_recorded_run

        return await resume_recorded_run(recording, world, package, settings, output, store, announce)


def _package(store: FileStore, run: str, other: Path | None) -> PackageFile:
    from agentrun.engine.api import load_package_source
    from agentrun.engine.memory import stored_package

    if other is None:
        return stored_package(store, run)
    with document_problems():
        return load_package_source(other)


def _headline(
    run: str, records: int, package: PackageFile, settings: Settings | None, recording: CassetteRecording | None
) -> str:
    from agentrun.cli.plan import describe_destinations

    text = f"resume: {run} of {package.agent.name}, after record {records}"
    text += f" (requests go to {describe_destinations(package.agent)}, tools run for real)"
    if recording is not None:
        text += f", and record {display_path(recording.path, recording.project.root)}"
    file = "" if settings is None else settings.headline
    return f"{text}; {file}" if file else text
