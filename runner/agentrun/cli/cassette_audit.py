"""`agentrun cassette audit [PATH...]`"""

from __future__ import annotations

import os
from pathlib import Path

import click

from agentrun.cassette.audit import FAILING_KINDS, FINDING_KINDS, AuditContext, AuditFinding, audit_cassette
from agentrun.cli.console import json_line, json_option, print_stderr
from agentrun.cli.options import ExistingPath, now_option, parse_max_age
from agentrun.spec.problems import escape_invisible


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


@click.command("audit")
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
def command(paths: tuple[Path, ...], fail_on: frozenset[str], max_age: int | None, now: int, as_json: bool) -> int:
    """Check cassettes for everything that can be wrong with them.

    Nothing is sent or written, and no tool runs. PATH is a cassette, a spec, or a folder of them. Without PATH all
    cassettes of the project are checked.

    \b
    damaged   the file is not a cassette
    secret    it contains a credential
    miss      its case does not replay any more
    unused    its case does not use some interactions
    stale     it was recorded with another version of the spec
    orphan    no case uses it
    model     another model answered than the one that was asked
    old       it is older than --max-age
    foreign   it was not recorded by agentrun

    \b
    Examples:
      agentrun cassette audit
      agentrun cassette audit specs/support.yaml --fail-on any
      agentrun cassette audit --max-age 90d --fail-on old,secret --json
    """
    from agentrun.cassette.leaks import credentials_redactor
    from agentrun.cassette.selection import load_selected, select_cassettes
    from agentrun.spec.safe_text import plural
    from agentrun.testing.suite.replay import SuiteReplays

    context = AuditContext(SuiteReplays(), credentials_redactor(os.environ), now, max_age)
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
