"""`agentrun SPEC [MESSAGE]`"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

import click

from agentrun.cli import options as cli_options
from agentrun.cli.approval_options import (
    approve_option,
    detach_option,
    make_approver,
    terminal_approver,
    yes_option,
)
from agentrun.cli.completion import complete_case_names
from agentrun.cli.console import json_option
from agentrun.credentials import hidden_secrets
from agentrun.errors import HostError, SpecError

if TYPE_CHECKING:
    from agentrun.cli.plan import RunPlan
    from agentrun.cli.run_output import RunOutput
    from agentrun.compiler.package_file import PackageFile
    from agentrun.core.package import Package
    from agentrun.engine.ports import Approver
    from agentrun.engine.recording import CassetteRecording
    from agentrun.engine.request import Attachment, Request
    from agentrun.engine.run import FinishedRun
    from agentrun.spec.problems import Problem
    from agentrun.spec.v1.cases import Case


def _read_attachment(path: Path) -> Attachment:
    from agentrun.engine.request import Attachment

    try:
        return Attachment.from_path(path)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@click.command("run", context_settings={"allow_extra_args": True})
@cli_options.spec_options
@click.argument("message", required=False)
@cli_options.param_option
@click.option(
    "--attach",
    "attached",
    type=cli_options.ExistingFile,
    multiple=True,
    help="Send an image or a file with the message; can be repeated.",
)
@click.option(
    "--case",
    "case_name",
    metavar="NAME",
    shell_complete=complete_case_names,
    help="Use the input, params and profile of this case. Values on the command line must equal those of the case.",
)
@click.option(
    "--mode",
    type=click.Choice(["auto", "live", "record", "replay"]),
    default="auto",
    show_default=True,
    envvar="AGENTRUN_MODE",
    show_envvar=True,
    help="auto replays the recorded case with this input, params and profile, or runs live if there is none; in CI "
    "it never runs live.",
)
@cli_options.live_options
@cli_options.session_options
@approve_option
@detach_option
@yes_option
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=cli_options.check_file_name,
    help="Write the journal of the run to a file; `-` is standard output.",
)
@cli_options.signal_options
@click.option("-q", "--quiet", is_flag=True, help="Print only the answer, no progress.")
@click.option("--no-color", is_flag=True, help="Print no colours, even in a terminal.")
@json_option
def command(spec: Path, profile: str | None, settings: tuple[str, ...], message: str | None, **options: Any) -> int:
    """Run the agent in SPEC with MESSAGE. `-` reads the message from standard input; the default is the spec's input.

    The answer goes to standard output and the progress to standard error. The first line says whether the run is
    replayed or live, and why.

    \b
    Examples:
      agentrun specs/triage.yaml                              replay the recorded case, offline
      agentrun specs/support.yaml "Where is order 2077?"      run live, if no recorded case has this message
      agentrun specs/support.yaml --mode record               record a case with the spec's input
      agentrun specs/support.yaml --record new --yes          record what is missing, without asking
      agentrun specs/support.yaml --record from:3             record again from interaction 3 on
      agentrun specs/support.yaml --case approval --json      print one JSON object per line
      agentrun specs/support.yaml "Hi" --new-session ada      begin a conversation
      agentrun specs/support.yaml "And now?" --session ada    continue it
      agentrun specs/support.yaml --approve all --mode live   approve everything
      agentrun specs/support.yaml --approve answers.yaml      answer some in advance, ask for the rest
      agentrun specs/support.yaml --approve ask --mode live   ask at the terminal
    """
    from agentrun.cli.plan import make_plan
    from agentrun.compiler.cases import cases_for_spec
    from agentrun.compiler.prompts import locate_render_errors
    from agentrun.engine.request import Request, new_run_id

    cli_options.resolve_session(options)
    if more := click.get_current_context().args:
        raise click.UsageError(f"put the message in quotes: {quote(' '.join([message or '', *more]))}")
    message = cli_options.read_message(message)
    cases = cases_for_spec(spec)
    case, profile = _named_case(spec, cases, profile, options)
    compiled, file = _compile(spec, profile, settings)
    assert compiled.spec is not None
    options["settings"] = settings
    run = new_run_id()
    with _name_run(run, options["mode"]), locate_render_errors(compiled.spec):
        params = cli_options.parse_params(options["params"], file.agent.params)
        plan, message, params = make_plan(
            compiled.spec, file.agent, cases, case, message=message, params=params, profile=profile, options=options
        )
    with _name_run(run, plan.mode):
        request = Request(
            agent=file.agent.name,
            package=file,
            message=message,
            params=params,
            attachments=tuple(map(_read_attachment, options["attached"])),
            run=None if plan.mode == "replay" else run,
            session=options["session"],
            any_agent=options["any_agent"],
        )
        return _start_run(plan, request, compiled.problems, options)


def _name_run(run: str, mode: str) -> AbstractContextManager[None]:
    """Errors of a run that cannot start have its id. A replay has an id of its own."""
    from agentrun.engine.begin import name_run_in_errors
    from agentrun.engine.ci import in_ci

    is_replay = mode == "replay" or (mode == "auto" and in_ci())
    return nullcontext() if is_replay else name_run_in_errors(run)


def _start_run(plan: RunPlan, request: Request, warnings: Sequence[Problem], options: dict[str, Any]) -> int:
    from agentrun.cli.journal_file import check_journal

    package = cast("PackageFile", request.package).agent
    plan = _with_settings(plan, package, options["grace"] if options["on_signal"] == "park" else None)
    if options["yes"] and plan.mode != "record":
        raise click.UsageError("--yes needs --mode record or --record")
    if plan.journal is not None:
        check_journal(plan.journal)
    output = _make_output(package, plan, warnings, options)
    approver = _make_approver(plan, package, options, output)
    return _run_plan(plan, request, approver, output)


def _make_approver(plan: RunPlan, package: Package, options: dict[str, Any], output: RunOutput) -> Approver | None:
    approve, session, detach = options["approve"], options["session"], options["detach"]
    if detach and not plan.suspends:
        raise click.UsageError("--detach needs a live run that is stored: only that can wait for an answer")
    person = terminal_approver(approve, plan.mode, package, session, output, detach=detach)
    return make_approver(approve, None if plan.has_real_tools else plan.case, package, person)


def _with_settings(plan: RunPlan, package: Package, grace: int | None) -> RunPlan:
    """The plan with the settings of the environment and of `.env`, whose values are never printed. A replay has none.
    `grace`: None if signals cancel the run."""
    if plan.mode == "replay":
        hidden_secrets.ignore_environment()
        return plan
    from msgspec.structs import replace

    from agentrun.engine.live_providers import hide_run_secrets, live_settings

    settings = live_settings(package, plan.spec.project.root)
    hide_run_secrets(package, settings)
    return replace(plan, settings=settings, grace=grace if plan.is_resumable else None)


def _run_plan(plan: RunPlan, request: Request, approver: Approver | None, output: RunOutput) -> int:
    from agentrun.cli.journal_file import streams_journal, write_journal
    from agentrun.cli.run_output import add_failure_hint, add_start_hint
    from agentrun.compiler.prompts import locate_render_errors

    recording = None
    if plan.mode == "record":
        from agentrun.cli.record import make_recording

        recording = make_recording(plan, request)
    try:
        with locate_render_errors(plan.spec):
            done = _run_in_mode(plan, request, approver, output, recording)
    except HostError as error:
        raise add_start_hint(error, plan) from None
    finally:
        output.close()
    if plan.journal is not None and not streams_journal(plan):
        write_journal(plan.journal, done)
    output.end(add_failure_hint(done, plan))
    if done.error is not None:
        raise done.error
    return done.exit_code


def _run_in_mode(
    plan: RunPlan, request: Request, approver: Approver | None, output: RunOutput, recording: CassetteRecording | None
) -> FinishedRun:
    match plan.mode:
        case "replay":
            return _replay(plan, request, approver, output)
        case "live" | "live-tools" | "live-model":
            from agentrun.cli.live import run_live

            return run_live(plan, request, approver, output)
        case "record":
            from agentrun.cli.record import record_run

            assert recording is not None
            return record_run(plan, request, approver, output, recording)


def _replay(plan: RunPlan, request: Request, approver: Approver | None, output: RunOutput) -> FinishedRun:
    from msgspec.structs import replace

    from agentrun.cassette.player import FaultInjectionPlayer
    from agentrun.cli.recorded_case import make_fault_injection, make_player, warn_unused_faults
    from agentrun.engine.run import replay_run

    player = make_player(plan, request)
    faults = make_fault_injection(plan, player)
    injected: dict[str, Any] = (
        {} if faults is None else {"start": faults.start, "step": faults.step, "wrappers": faults.wrappers}
    )
    done = replay_run(request, player, approver=approver, listen=output.listen, announce=output.begin, **injected)
    warn_unused_faults(faults, output)
    if not (isinstance(player, FaultInjectionPlayer) and player.has_diverged):
        return done
    output.say(
        "after an injected fault, recorded replies were used for requests that differ from the recorded ones", "warn"
    )
    return replace(done, unused_error=None)


def _make_output(package: Package, plan: RunPlan, warnings: Sequence[Problem], options: dict[str, Any]) -> RunOutput:
    from agentrun.cli.run_output import RunOutput

    return RunOutput(
        package,
        plan.headline,
        plan.start_line,
        warnings,
        is_live=plan.mode != "replay",
        is_resumable=plan.is_resumable,
        as_json=options["as_json"],
        quiet=options["quiet"],
        color=False if options["no_color"] else None,
    )


def _named_case(
    spec: Path, cases: list[Case], profile: str | None, options: dict[str, Any]
) -> tuple[Case | None, str | None]:
    """The case that `--case` names, and the profile to compile with."""
    from msgspec import UNSET

    from agentrun.engine.recorded_cases import find_case, other_values_error, refuse_conversation

    if options["case_name"] is None:
        return None, profile
    may_be_new = options["mode"] == "record" or options["record"] is not None
    case = find_case(cases, options["case_name"], may_be_new=may_be_new)
    if case is None:
        return None, profile
    refuse_conversation(spec, case)
    own_profile = None if case.profile is UNSET else case.profile
    if profile not in (None, own_profile):
        raise other_values_error(spec, case, [("profile", own_profile, profile)])
    return case, own_profile


def _compile(spec: Path, profile: str | None, settings: tuple[str, ...]) -> Any:
    from agentrun.compiler.compile import compile_spec
    from agentrun.compiler.package_file import seal_package

    compiled = compile_spec(spec, profile, settings)
    if compiled.spec is None or compiled.package is None:
        raise SpecError(compiled.errors)
    return compiled, seal_package(compiled.package)
