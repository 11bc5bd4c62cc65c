"""`agentrun audit RUN|FILE`"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentrun.cli.console import json_line, json_option, safe_text
from agentrun.cli.run_files import exit_code, journal_argument, load_packages, package_option, read_run, show_run_error
from agentrun.errors import AgentrunError, PackageError
from agentrun.spec.safe_text import plural

if TYPE_CHECKING:
    from agentrun.core.package import Package
    from agentrun.journal.family import ReadJournal


@click.command("audit")
@journal_argument
@package_option
@json_option
def command(run: str, packages: tuple[Path, ...], as_json: bool) -> int:
    """Check that this release of agentrun would make the decisions that are in the journal of a run.

    Replies of models, results of tools and answers of people are taken from the journal, and every decision between
    them is made again: requests, rulings, guards, retries, budgets and the outcome. Nothing is sent, and no tool runs.
    The journals of sub-agents are audited too.

    \b
    --json prints one object per journal:
      {"run", "records", "decisions"}                or
      {"run", "call", "error": {"code", "message", "fields": {"seq", "was", "is", …}, "exit", …}}

    Exit codes: 0 the decisions are the same, 1 one differs, 2 the package is missing, 7 a journal is damaged.

    \b
    Examples:
      agentrun audit 5f0c
      agentrun audit run.jsonl --package specs/support.yaml
      agentrun audit run.jsonl --package support.package.json --json
    """

    family, beside = read_run(run, unknown=False)
    if code := exit_code(family):
        for journal in family.journals:
            if journal.error is not None:
                show_run_error(journal.run, journal.error, as_json=as_json)
        return code
    known = load_packages(beside, packages)
    return max([_audit(journal, known, as_json=as_json) for journal in family.journals])


def _refuse_missing_package(journal: ReadJournal, known: Mapping[str, Package]) -> None:
    missing = next((each for each in journal.fingerprints if each not in known), None)
    if missing is not None:
        message = f"the package {missing} of the run {journal.run} is not next to the journal"
        hint = "pass it, or the spec that it was compiled from: --package FILE"
        if known:
            hint += f" (found: {', '.join(known)})"
        raise PackageError("package.invalid", message, hint=hint, fields={"place": missing, "run": journal.run})


def _audit(journal: ReadJournal, known: Mapping[str, Package], *, as_json: bool) -> int:
    """The exit code."""
    from agentrun.core.facts import Decision
    from agentrun.engine.api import refuse_divergence
    from agentrun.spec.source_files import display_path

    try:
        _refuse_missing_package(journal, known)
        refuse_divergence(journal.records, known[journal.started.package], known)
    except AgentrunError as error:
        error.fields["run"] = journal.run
        show_run_error(journal.run, error, as_json=as_json)
        return error.exit_code
    decisions = sum(isinstance(record.fact, Decision) for record in journal.records)
    if as_json:
        click.echo(json_line({"run": journal.run, "records": len(journal.records), "decisions": decisions}))
    else:
        name = display_path(journal.path)
        click.echo(safe_text(f"{name} would be the same today: {plural(decisions, 'decision')}"))
    return 0
