"""`agentrun cassette`: the commands that list, show, audit, accept, prune and convert cassettes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentrun.cassette.audit import FAILING_KINDS, FINDING_KINDS, AuditContext, AuditFinding, audit_cassette
from agentrun.cli.console import json_line, json_option, print_stderr, show_error, table_lines
from agentrun.cli.options import ExistingFile, ExistingPath, ListGroup, now_option, parse_max_age
from agentrun.errors import AgentrunError
from agentrun.spec.problems import escape_invisible
from agentrun.spec.safe_text import plural

if TYPE_CHECKING:
    from agentrun.cassette.conversion import Conversion
    from agentrun.cassette.parsed_interaction import ParsedCassette
    from agentrun.cassette.prune import PruneStep
    from agentrun.cassette.selection import CaseReplays, LoadedCassette


@click.group("cassette", cls=ListGroup)
def command() -> None:
    """List, show, audit, prune and convert cassettes.

    \b
    Examples:
      agentrun cassette                                        list all cassettes
      agentrun cassette show cassettes/triage/default.yaml     show one as text
      agentrun cassette audit --fail-on any --max-age 90d      check them in CI
      agentrun cassette prune                                  show what can be removed; --yes removes it
      agentrun cassette upgrade                                pack the requests of old cassettes
    """


@command.command("ls", short_help="List cassettes with their age, model and state.")
@click.argument("paths", nargs=-1, type=ExistingPath(exists=True, path_type=Path))
@now_option
@json_option
def ls_command(paths: tuple[Path, ...], now: int, as_json: bool) -> int:
    """List cassettes: their interactions, age, model and state.

    PATH is a cassette, a spec, or a folder of them. Without PATH all cassettes of the project are listed.

    \b
    fresh     recorded with the current version of the spec
    stale     recorded with another version of the spec
    orphan    no case uses it
    foreign   not recorded by agentrun
    damaged   the file is not a cassette

    \b
    Examples:
      agentrun cassette ls
      agentrun cassette ls specs/support.yaml
      agentrun cassette ls --json | jq 'select(.state == "stale").file'
    """
    from agentrun.cassette.selection import load_selected, select_cassettes
    from agentrun.testing.suite.replay import SuiteReplays

    replays = SuiteReplays()
    rows = [_row(load_selected(file), replays, now) for file in select_cassettes(paths)]
    if as_json:
        for row in rows:
            click.echo(json_line(row))
        return 0
    for line in table_lines([_cells(row) for row in rows]):
        click.echo(line)
    if not rows:
        print_stderr("no cassettes found")
    return 0


def _row(loaded: LoadedCassette, replays: CaseReplays, now: int) -> dict[str, Any]:
    from agentrun.cassette.audit import cassette_state
    from agentrun.cassette.parsed_interaction import model_names, parse_cassette
    from agentrun.report.cassette_text import count_kinds

    cassette, owners = loaded.cassette, loaded.owners
    state, why = cassette_state(loaded, replays)
    row: dict[str, Any] = {"file": loaded.file.label, "state": state, "why": why}
    if cassette is not None:
        row |= {
            "interactions": count_kinds(parse_cassette(cassette).interactions),
            "recorded_at": cassette.recorded_at,
            "days": cassette.days_old(now),
            "models": model_names(cassette),
        }
    if owners:
        row |= {"spec": owners[0].spec_label, "case": owners[0].case.name}
    if len(owners) > 1:
        row["cases"] = [each.case.name for each in owners]
    return row


def _cells(row: dict[str, Any]) -> list[str]:
    from agentrun.report.cassette_text import age_text, kinds_text

    counts = row.get("interactions")
    if counts is None:
        return [escape_invisible(row["file"]), "", "", "", row["state"]]
    models = ", ".join(row["models"]) or "no model"
    return [escape_invisible(row["file"]), kinds_text(counts) or "empty", age_text(row["days"]), models, row["state"]]


@command.command("show", short_help="Show the interactions of a cassette as text.")
@click.argument("file", type=ExistingFile)
@click.option("--n", "number", metavar="N", type=click.IntRange(min=1), help="Show all of interaction N.")
@now_option
@json_option
def show_command(file: Path, number: int | None, now: int, as_json: bool) -> int:
    """Show the cassette in FILE as text: its metadata, then each interaction with its line in the file.

    Times are those of the recorded run: when a request was sent, and how long it took.

    \b
    Examples:
      agentrun cassette show cassettes/triage/default.yaml
      agentrun cassette show cassettes/triage/default.yaml --n 1
    """
    from agentrun.cassette.file import load_cassette
    from agentrun.cassette.parsed_interaction import parse_cassette
    from agentrun.report.cassette_text import content_lines, head_lines, interaction_lines
    from agentrun.spec.project import cassette_limit_for
    from agentrun.spec.source_files import display_path

    if not file.is_file():
        raise click.UsageError(f"{file} is not a regular file")
    cassette = load_cassette(file, cassette_limit_for(file))
    if number is not None and number > len(cassette.interactions):
        raise click.UsageError(f"{file} has only {plural(len(cassette.interactions), 'interaction')}")
    parsed = parse_cassette(cassette)
    if as_json:
        for line in _json_objects(parsed, number):
            click.echo(json_line(line))
        return 0
    if number is None:
        width = len(str(len(cassette.interactions)))
        head = head_lines(display_path(file), parsed, cassette.days_old(now))
        lines = chain(head, *(interaction_lines(each, width) for each in parsed.interactions))
    else:
        one = parsed.interactions[number - 1]
        lines = chain(interaction_lines(one, len(str(number))), content_lines(one))
    for text in lines:
        click.echo(text)
    return 0


def _json_objects(cassette: ParsedCassette, number: int | None) -> Iterator[dict[str, Any]]:
    """The metadata and all interactions, or one interaction with its content."""
    from agentrun.report.cassette_text import content_lines, describe_interaction

    if number is None:
        yield {"metadata": _mask_metadata(cassette.metadata)}
    for each in cassette.interactions if number is None else [cassette.interactions[number - 1]]:
        interaction, text = each.recorded, describe_interaction(each)
        line: dict[str, Any] = {
            "n": each.number,
            "line": interaction.line,
            "kind": each.kind,
            "asked": text.request,
            "answered": text.outcome,
            "start": interaction.start,
            "end": interaction.end,
            "path": interaction.path,
            "status": interaction.reply.status,
            "failure": None if interaction.failure is None else interaction.failure.code,
        }
        yield line | ({} if number is None else {"whole": list(content_lines(each))})


def _mask_metadata(value: Any, key: str = "") -> Any:
    """Metadata with everything masked that may be a secret. The loader limits how deep it is nested."""
    from agentrun.secret import MASK, find_secrets, mask

    match value:
        case dict():
            return {mask(name): _mask_metadata(item, name) for name, item in value.items()}
        case list():
            return [_mask_metadata(item, key) for item in value]
        case str():
            return MASK if find_secrets(value, key) else mask(value)
        case None | bool() | int() | float():
            return value
    return str(value)


def _parse_kinds(_ctx: click.Context, _param: click.Parameter, value: str) -> frozenset[str]:
    if value in ("none", "any"):
        return frozenset(FINDING_KINDS if value == "any" else ())
    named = [word.strip() for word in value.split(",")]
    unknown = [word for word in named if word not in FINDING_KINDS]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} is not a kind of finding; use {', '.join(FINDING_KINDS)}, any or none"
        )
    return frozenset(named)


@command.command("audit", short_help="Find secrets, damage, misses and unused or outdated cassettes.")
@click.argument("paths", nargs=-1, type=ExistingPath(exists=True, path_type=Path))
@click.option(
    "--fail-on",
    metavar="KIND,...|any|none",
    default=",".join(FAILING_KINDS),
    show_default=True,
    callback=_parse_kinds,
    help="Exit with 1 if there is a finding of one of these kinds.",
)
@click.option("--max-age", metavar="90d", callback=parse_max_age, help="Report older cassettes: 36h, 90d, 12w.")
@now_option
@json_option
def audit_command(
    paths: tuple[Path, ...], fail_on: frozenset[str], max_age: int | None, now: int, as_json: bool
) -> int:
    """Check cassettes for everything that can be wrong with them.

    Nothing is sent or written, and no tool runs. PATH is a cassette, a spec, or a folder of them. Without PATH all
    cassettes of the project are checked.

    \b
    damaged   the file is not a cassette
    secret    it contains a credential
    miss      its case can no longer be replayed
    unused    its case does not use some interactions
    stale     it was recorded with another version of the spec
    orphan    no case uses it
    model     a model other than the requested one answered
    old       it is older than --max-age
    foreign   it was not recorded by agentrun

    \b
    Examples:
      agentrun cassette audit
      agentrun cassette audit specs/support.yaml --fail-on any
      agentrun cassette audit --max-age 90d --fail-on old,secret --json
    """
    from agentrun.cassette.selection import load_selected, select_cassettes
    from agentrun.credentials import hidden_secrets
    from agentrun.testing.suite.replay import SuiteReplays

    context = AuditContext(SuiteReplays(), hidden_secrets.redactor, now, max_age)
    files = select_cassettes(paths)
    found = [finding for file in files for finding in audit_cassette(load_selected(file), context)]
    failing = [finding for finding in found if finding.kind in fail_on]
    for finding in found:
        click.echo(_format_finding(finding, finding in failing, as_json=as_json))
    if not as_json:
        fails = "" if not failing else f", {len(failing)} of a kind in --fail-on"
        print_stderr(f"{plural(len(files), 'cassette')}, {plural(len(found), 'finding')}{fails}")
    return 1 if failing else 0


def _format_finding(finding: AuditFinding, fails: bool, *, as_json: bool) -> str:
    if as_json:
        return json_line(finding.as_json(fails=fails))
    place = f"{finding.file}:{finding.line}"
    message, fix = escape_invisible(finding.message), escape_invisible(finding.fix)
    return f"{escape_invisible(place)}  {finding.kind}  {message}\n  → {fix}"


@command.command("accept", short_help="Use a new cassette even though its case fails.")
@click.argument("case", metavar="CASE")
def accept_command(case: str) -> None:
    """Replace the cassette of CASE with the new one that was recorded for it.

    When a case fails with its new cassette, `agentrun test --record` keeps the old cassette and writes the new one
    below .agentrun/recorded. CASE is written as in the report: FILE::NAME.

    \b
    Examples:
      agentrun cassette accept specs/support.cases.yaml::default
    """
    from agentrun.testing.suite.recording import accept_new_cassette
    from agentrun.testing.suite.selection import CaseFilter, select_cases

    if "::" not in case:
        raise click.UsageError("name one case: FILE::NAME, such as specs/support.cases.yaml::default")
    (found,) = select_cases([case], CaseFilter()).cases or (None,)
    if found is None:
        file = case.partition("::")[0]
        raise click.UsageError(f"{file} cannot be read; run `agentrun validate {file}` to see why")
    print_stderr(f"replaced {accept_new_cassette(found)}; to see what changed: agentrun test {found.id}")


@command.command("prune", short_help="Remove cassettes and interactions that no case uses.")
@click.argument("paths", nargs=-1, type=ExistingPath(exists=True, path_type=Path))
@click.option("--yes", is_flag=True, help="Remove them. Without --yes nothing is changed.")
@now_option
@json_option
def prune_command(paths: tuple[Path, ...], yes: bool, now: int, as_json: bool) -> int:
    """Remove cassettes without a case, interactions that no replay uses, and files that were written only in part.

    PATH is a cassette, a spec, or a folder of them. Without PATH all cassettes of the project are pruned. The command
    shows what it would remove; only with --yes does it remove it. It keeps a cassette that is damaged, that was not
    recorded by agentrun, or whose case cannot be replayed to its end.

    \b
    Examples:
      agentrun cassette prune
      agentrun cassette prune specs/support.yaml --yes
    """
    from agentrun.cassette.prune import apply_prune_step, plan_prune
    from agentrun.store.staged_cassettes import lock_cassette
    from agentrun.testing.suite.replay import SuiteReplays

    steps = plan_prune(paths, SuiteReplays())
    at = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    code = changed = 0
    for step in steps:
        done = False
        if yes and step.action != "keep":
            try:
                apply_prune_step(step, at, lock_cassette)
                done, changed = True, changed + 1
            except AgentrunError as error:
                show_error(error, as_json=as_json)
                code = code or error.exit_code
        click.echo(_format_step(step, done=done, as_json=as_json))
    if not as_json:
        could = sum(step.action != "keep" for step in steps)
        advice = "nothing was changed; add --yes to remove them" if could else "there is nothing to prune"
        print_stderr(f"{plural(changed, 'file')} changed" if yes else advice)
    return code


def _format_step(step: PruneStep, *, done: bool, as_json: bool) -> str:
    if as_json:
        line = {"file": step.file.label, "action": step.action, "why": step.reason, "done": done}
        return json_line(line | ({"interactions": list(step.unused)} if step.unused else {}))
    return f"{step.action:<7}  {escape_invisible(step.file.label)}  {escape_invisible(step.reason)}"


@command.command("expand", short_help="Write the whole body of every request into a cassette.")
@click.argument("file", type=ExistingFile)
@json_option
def expand_command(file: Path, as_json: bool) -> int:
    """Write the whole body of every request into the cassette in FILE.

    A packed request shows only what is new since an earlier one. Programs that compare bodies without agentrun, such
    as vcrpy with match_on=["body"], need whole ones. A replay is the same with both.

    \b
    Examples:
      agentrun cassette expand cassettes/triage/broken.yaml
    """
    return _convert([file], packed=False, as_json=as_json)


@command.command("pack", short_help="Write only what is new in each request of a cassette.")
@click.argument("file", type=ExistingFile)
@json_option
def pack_command(file: Path, as_json: bool) -> int:
    """Pack the requests of the cassette in FILE: each shows what it shares with an earlier one, and what is new.

    This is the form that agentrun records. It is the reverse of `agentrun cassette expand`.

    \b
    Examples:
      agentrun cassette pack cassettes/triage/broken.yaml
    """
    return _convert([file], packed=True, as_json=as_json)


@command.command("upgrade", short_help="Pack the requests of old cassettes.")
@click.argument("paths", nargs=-1, type=ExistingPath(exists=True, path_type=Path))
@json_option
def upgrade_command(paths: tuple[Path, ...], as_json: bool) -> int:
    """Pack the requests of cassettes that were recorded with an older version of agentrun.

    PATH is a cassette, a spec, or a folder of them. Without PATH all cassettes of the project are upgraded. The new
    form is read again and compared before it is written: every request, reply and time must be the same. Old cassettes
    replay without an upgrade too. Cassettes that another program recorded are kept as they are.

    \b
    Examples:
      agentrun cassette upgrade
      agentrun cassette upgrade cassettes/support
    """
    return _convert(paths, packed=True, as_json=as_json, is_upgrade=True)


def _convert(paths: Sequence[Path], *, packed: bool, as_json: bool, is_upgrade: bool = False) -> int:
    from agentrun.cassette.conversion import convert_cassette
    from agentrun.cassette.selection import load_selected, select_cassettes
    from agentrun.store.staged_cassettes import lock_cassette

    code = changed = 0
    for file in select_cassettes(paths):
        if is_upgrade and load_selected(file).is_foreign:
            continue
        try:
            done = convert_cassette(file, lock_cassette, packed=packed)
        except AgentrunError as error:
            show_error(error, as_json=as_json)
            code = code or error.exit_code
            continue
        changed += done.is_changed
        line = {"file": file.label, "changed": done.is_changed, "before": done.before, "after": done.after}
        if as_json:
            click.echo(json_line(line))
        elif done.is_changed or not is_upgrade:
            click.echo(f"{escape_invisible(file.label)}  {_describe_conversion(done)}")
    if is_upgrade and not as_json:
        print_stderr(f"{plural(changed, 'cassette')} upgraded")
    return code


def _describe_conversion(done: Conversion) -> str:
    if not done.is_changed:
        return "unchanged: it has this form already"
    same = f"{plural(done.interactions, 'interaction')}, all the same"
    return f"{done.before:,} → {done.after:,} bytes; {same}"
