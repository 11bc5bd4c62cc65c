"""`agentrun SPEC [MESSAGE]`"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.options import param_option, param_values, spec_options
from agentrun.cli.show import json_option, say, show_problems

if TYPE_CHECKING:
    from agentrun.core.outcome import Outcome

LONGEST_MESSAGE = 1024 * 1024


@click.command("run")
@spec_options
@click.argument("message", required=False)
@param_option
@click.option("--case", "case_name", metavar="NAME", help="Replay this case, with its input, params and profile.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "replay"]),
    default="auto",
    show_default=True,
    envvar="AGENTRUN_MODE",
    help="auto: replay the case that has this input, params and profile.",
)
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the run's journal to a file; `-`: standard output.",
)
@click.option("-q", "--quiet", is_flag=True, help="Only the answer, no story.")
@json_option
def command(spec: Path, profile: str | None, settings: tuple[str, ...], message: str | None, **options: Any) -> int:
    """Run the agent in SPEC with MESSAGE (`-` reads it from standard input; absent: the spec's own input).

    The answer goes to standard output, the story of the run to standard error.

    \b
    Examples:
      agentrun specs/triage.yaml
      agentrun specs/triage.yaml --case default --json
      agentrun specs/triage.yaml --journal run.jsonl
    """
    from msgspec import UNSET

    from agentrun.cli.recorded import asked_case, named_case, recording_of
    from agentrun.compiler.compile import compile_spec
    from agentrun.compiler.fingerprint import sealed
    from agentrun.engine.assemble import replay_run
    from agentrun.engine.unbuilt import unbuilt_problems
    from agentrun.errors import RequestError, SpecError
    from agentrun.spec.problems import arrange

    as_json, quiet = options["as_json"], options["quiet"]
    if message == "-":
        message = _standard_input()
    case = named_case(spec, options["case_name"]) if options["case_name"] is not None else None
    if case is not None:
        if message is not None or options["params"] or profile is not None:
            reason = {"reason": "case"}
            raise RequestError("input.rejected", "a case has its own message, params and profile", fields=reason)
        profile = None if case.profile is UNSET else case.profile
    compiled = compile_spec(spec, profile, settings)
    if compiled.spec is None or compiled.package is None:
        raise SpecError(compiled.errors)
    if unbuilt := arrange(unbuilt_problems(compiled.spec.root)):
        raise SpecError(unbuilt)
    file = sealed(compiled.package)
    package = file.agent
    given = param_values(options["params"], package.params)
    recording = recording_of(compiled.spec, package, case or asked_case(spec, package, profile, message, given))
    if not quiet and not as_json:
        show_problems(list(compiled.problems), as_json=False)
        say(f"replay: {recording.shown} (case {recording.case.name}; nothing is sent)")
    run = replay_run(
        package,
        fingerprint=file.fingerprint,
        message=recording.message,
        params=recording.params,
        cassette=recording.path,
    )
    if options["journal"] is not None:
        _write_journal(options["journal"], run.journal)
    _show(run.outcome, as_json=as_json, quiet=quiet)
    if run.unused is not None and not run.outcome.exit_code:
        raise run.unused
    return run.exit_code


def _standard_input() -> str:
    if sys.stdin is None:
        raise click.UsageError("standard input is closed")
    data = sys.stdin.buffer.read(LONGEST_MESSAGE + 1)
    if len(data) > LONGEST_MESSAGE:
        raise click.UsageError(f"standard input has more than {LONGEST_MESSAGE // 1024} KiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise click.UsageError("standard input is not UTF-8 text") from None


def _write_journal(path: Path, records: Any) -> None:
    from agentrun.canon import compact
    from agentrun.cli.write import write_file

    write_file(path, b"".join(compact(record) + b"\n" for record in records), replaces=b'{"at":')


def _show(outcome: Outcome, *, as_json: bool, quiet: bool) -> None:
    import msgspec

    from agentrun.spec.problems import visible

    if as_json:
        click.echo(json.dumps({"outcome": msgspec.to_builtins(outcome)}, ensure_ascii=False))
        return
    if outcome.answer is not None:
        click.echo("\n".join(map(visible, outcome.answer.split("\n"))))
    if outcome.fault is not None:
        say(f"{outcome.fault.code}: {visible(outcome.fault.message)}")
        if outcome.fault.hint:
            say(f"  → {visible(outcome.fault.hint)}")
    if not quiet:
        say(_summary(outcome))


def _summary(outcome: Outcome) -> str:
    usage = outcome.usage
    label = f", {outcome.label}" if outcome.label else ""
    turns = f"{outcome.turns} turn{'' if outcome.turns == 1 else 's'}"
    return f"{outcome.status}{label} in {turns}, {usage.input} tokens in, {usage.output} out (replayed)"
