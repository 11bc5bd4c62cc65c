"""`agentrun SPEC [MESSAGE]`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.approve import approve_option, approver_of, person_for
from agentrun.cli.attach import attach_option, attachments_of
from agentrun.cli.consent import yes_option
from agentrun.cli.options import file_name, is_text, param_option, param_values, session_name, spec_options
from agentrun.cli.show import json_option, show_problems

if TYPE_CHECKING:
    from agentrun.cli.plan import Plan
    from agentrun.cli.teller import Teller
    from agentrun.core.package import Package
    from agentrun.engine.ports import Approver
    from agentrun.engine.recording import CassetteRecording
    from agentrun.engine.request import Request
    from agentrun.engine.run import FinishedRun
    from agentrun.spec.v1.cases import Case

LONGEST_MESSAGE = 1024 * 1024


@click.command("run")
@spec_options
@click.argument("message", required=False)
@param_option
@attach_option
@click.option("--case", "case_name", metavar="NAME", help="Take this case: its input, params and profile.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "live", "record", "replay"]),
    default="auto",
    show_default=True,
    envvar="AGENTRUN_MODE",
    help="auto: replay the case that has this input, params and profile, else go live (never with CI set).",
)
@click.option(
    "--record",
    metavar="new|all|from:N",
    help="Record: what the tape lacks, everything, or from its interaction N on (what comes before is kept).",
)
@click.option("--live-tools", is_flag=True, help="Replay the model, run the tools for real.")
@click.option("--live-model", is_flag=True, help="Replay the tools, ask the model for real.")
@click.option(
    "--require-tier",
    type=click.Choice(["exact", "normalised"]),
    default="normalised",
    show_default=True,
    help="The weakest match of a request with the tape that counts.",
)
@click.option(
    "--session",
    metavar="NAME",
    callback=session_name,
    help="Go on with the conversation of this session, or begin one; always live.",
)
@approve_option(
    "A case's own answers come after these, but only in a replay and while it is recorded; then the person, if there "
    "is one."
)
@yes_option
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=file_name,
    help="Write the run's journal to a file; `-`: standard output.",
)
@click.option("-q", "--quiet", is_flag=True, help="Only the answer, no story.")
@click.option("--no-color", is_flag=True, help="No colours, also in a terminal.")
@json_option
def command(spec: Path, profile: str | None, settings: tuple[str, ...], message: str | None, **options: Any) -> int:
    """Run the agent in SPEC with MESSAGE (`-` reads it from standard input; absent: the spec's own input).

    The answer goes to standard output, the story of the run to standard error; its first line says whether the run is
    live or replayed, and why.

    \b
    Examples:
      agentrun specs/triage.yaml                              replay the recorded case, offline
      agentrun specs/support.yaml "Where is order 2077?"      go live, when no recorded case asks this
      agentrun specs/support.yaml --mode record               record the spec's own input as a case, after a question
      agentrun specs/support.yaml --record new --yes          record what the cassette lacks, without a question
      agentrun specs/support.yaml --record from:3             keep what was recorded before interaction 3
      agentrun specs/support.yaml --case approval --json      one JSON object per line
      agentrun specs/support.yaml --approve all --mode live   answer every approval with yes
      agentrun specs/support.yaml --approve answers.yaml      answer some in advance, be asked about the rest
      agentrun specs/support.yaml --approve ask --mode live   be asked, or do not start
    """
    from agentrun.cli.plan import make_plan
    from agentrun.compiler.cases import cases_for_spec
    from agentrun.engine.request import Request

    message = _message(message)
    cases = cases_for_spec(spec)
    case, profile = _case(spec, cases, message, profile, options)
    compiled, file = _compiled(spec, profile, settings)
    assert compiled.spec is not None
    params = param_values(options["params"], file.agent.params)
    options |= {"record": _record(options["record"]), "settings": settings}
    plan, message, params = make_plan(
        compiled.spec, file.agent, cases, case, message=message, params=params, profile=profile, options=options
    )
    if options["yes"] and plan.mode != "record":
        raise click.UsageError("--yes goes with a recording: --mode record or --record")
    teller = _teller(file.agent, plan, options)
    person = person_for(options["approve"], plan.mode, file.agent, options["session"], teller)
    approver = approver_of(options["approve"], None if plan.has_real_tools else plan.case, file.agent, person)
    request = Request(
        agent=file.agent.name,
        package=file,
        message=message,
        params=params,
        attachments=attachments_of(options["attached"]),
        session=options["session"],
    )
    recording = _recording(plan, request)  # what cannot be recorded is refused before the first line
    if not options["quiet"] and not options["as_json"]:
        show_problems(list(compiled.problems), as_json=False)
    teller.begin(plan)
    if recording is not None:
        from agentrun.cli.record import confirm

        confirm(plan, file.agent, options["approve"], teller, yes=options["yes"])
    return _run(plan, request, approver, teller, recording)


def _recording(plan: Plan, request: Request) -> CassetteRecording | None:
    if plan.mode != "record":
        return None
    from agentrun.cli.record import recording_of

    return recording_of(plan, request)


def _run(
    plan: Plan, request: Request, approver: Approver | None, teller: Teller, recording: CassetteRecording | None
) -> int:
    """Do it. The exit code."""
    from agentrun.cli.journal_file import write_journal, writes_journal_as_it_goes
    from agentrun.cli.way_out import hinted, with_way_out
    from agentrun.errors import HostError

    try:
        done = _done(plan, request, approver, teller, recording)
    except HostError as error:
        raise with_way_out(error, plan) from None
    finally:
        teller.close()
    if plan.journal is not None and not writes_journal_as_it_goes(plan, request):
        write_journal(plan.journal, done)
    teller.end(hinted(done, plan))
    if done.complaint is not None:
        raise done.complaint
    return done.exit_code


def _done(
    plan: Plan, request: Request, approver: Approver | None, teller: Teller, recording: CassetteRecording | None
) -> FinishedRun:
    match plan.mode:
        case "replay":
            return _replay(plan, request, approver, teller)
        case "live" | "live-tools" | "live-model":
            from agentrun.cli.live import run_live

            return run_live(plan, request, approver, teller)
        case "record":
            from agentrun.cli.record import record

            assert recording is not None
            return record(plan, request, approver, teller, recording)


def _replay(plan: Plan, request: Request, approver: Approver | None, teller: Teller) -> FinishedRun:
    from msgspec.structs import replace

    from agentrun.cassette.player import FaultInjectionPlayer
    from agentrun.cli.recorded import faults_of, player_of, say_unmet
    from agentrun.engine.run import replay_run

    player = player_of(plan, request)
    faults = faults_of(plan, player)
    injected: dict[str, Any] = (
        {} if faults is None else {"start": faults.start, "step": faults.step, "wrappers": faults.wrappers}
    )
    done = replay_run(request, player, approver=approver, listen=teller.listen, **injected)
    say_unmet(faults, teller)
    if not (isinstance(player, FaultInjectionPlayer) and player.has_diverged):
        return done
    teller.say("after a fault the recorded replies were played to other requests than the recorded ones", "warn")
    return replace(done, unused=None)


def _teller(package: Package, plan: Plan, options: dict[str, Any]) -> Teller:
    from agentrun.cli.teller import Teller

    color = False if options["no_color"] else None
    live = plan.mode != "replay"
    return Teller(package, as_json=options["as_json"], quiet=options["quiet"], color=color, live=live)


def _message(text: str | None) -> str | None:
    if text == "-":
        return _standard_input()
    if text is not None and not is_text(text):
        raise click.UsageError("the message is not UTF-8 text")
    return text


def _case(
    spec: Path, cases: list[Case], message: str | None, profile: str | None, options: dict[str, Any]
) -> tuple[Case | None, str | None]:
    """The case that is named, and the profile to compile with."""
    from msgspec import UNSET

    from agentrun.cli.recorded import named_case, refuse_conversation
    from agentrun.errors import RequestError

    if options["case_name"] is None:
        return None, profile
    may_be_new = options["mode"] == "record" or options["record"] is not None
    case = named_case(cases, options["case_name"], may_be_new=may_be_new)
    if case is None:
        return None, profile
    refuse_conversation(spec, case)
    if message is not None or options["params"] or profile is not None:
        reason = {"reason": "case"}
        raise RequestError("input.rejected", "a case has its own message, params and profile", fields=reason)
    return case, None if case.profile is UNSET else case.profile


def _compiled(spec: Path, profile: str | None, settings: tuple[str, ...]) -> Any:
    from agentrun.compiler.compile import compile_spec
    from agentrun.compiler.package_file import seal_package
    from agentrun.errors import SpecError

    compiled = compile_spec(spec, profile, settings)
    if compiled.spec is None or compiled.package is None:
        raise SpecError(compiled.errors)
    return compiled, seal_package(compiled.package)


def _record(text: str | None) -> str | None:
    if text is None or text in ("new", "all"):
        return text
    word, _, number = text.partition(":")
    if word != "from" or not (number.isascii() and number.isdigit()) or int(number[:9]) < 1:
        raise click.UsageError("--record takes new, all or from:N, where N is the number of an interaction from 1")
    return text


def _standard_input() -> str:
    if sys.stdin is None:
        raise click.UsageError("standard input is closed")
    data = sys.stdin.buffer.read(LONGEST_MESSAGE + 1)
    if len(data) > LONGEST_MESSAGE:
        raise click.UsageError(f"standard input has more than {LONGEST_MESSAGE // 1024} KiB")
    try:
        # `echo` ends its line, and that is no part of the message.
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise click.UsageError("standard input is not UTF-8 text") from None
