"""`agentrun view RUN|CASE|CASSETTE|JOURNAL`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.completion import complete_runs_and_files
from agentrun.cli.console import print_stderr, safe_text, write_output
from agentrun.cli.options import check_file_name
from agentrun.cli.run_files import load_packages, package_option, read_run, redact_family, show_run_error

if TYPE_CHECKING:
    from agentrun.report.run_view import RunView

PAGE_START = b"<!doctype html>"


@click.command("view")
@click.argument("target", metavar="RUN|CASE|CASSETTE|JOURNAL", shell_complete=complete_runs_and_files)
@click.option("--case", "case_name", metavar="NAME", help="The case to view, if the argument is a spec.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_file_name,
    help="The file to write. The default is run.html; `-` is standard output.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@package_option
def command(target: str, case_name: str | None, output: Path | None, opens: bool, packages: tuple[Path, ...]) -> int:
    """Write a run as one HTML page: what the agent did, and why.

    The page shows the turns with their calls, results and rulings, a timeline, and what the run spent. For each line
    it shows why it happened, the prompt with the lines of its templates, the request and reply on the cassette, and
    the record of the journal. The address FILE#r16 points to record 16.

    The file contains all it needs and loads nothing. Nothing is sent, and no tool runs.

    RUN is a run of the store, a unique beginning of its id, or `-`. CASE is FILE::NAME, as in `agentrun test`, or SPEC
    with --case NAME; the case is replayed. CASSETTE and JOURNAL are files.

    \b
    Examples:
      agentrun view -
      agentrun view specs/support.cases.yaml::default --open
      agentrun view specs/support.yaml --case approval -o approval.html
      agentrun view cassettes/support/default.yaml
      agentrun view run.jsonl --package specs/support.yaml
    """
    output = output or Path("run.html")
    views, code = _read_views(target, case_name, packages)
    write_output(output, _page(views).encode(), replaces=PAGE_START)
    if str(output) != "-":
        print_stderr(safe_text(f"page written to {output}"))
        if opens:
            click.launch(output.resolve().as_uri())
    return code


def _read_views(target: str, case_name: str | None, packages: tuple[Path, ...]) -> tuple[list[RunView], int]:
    """The views, and the exit code."""
    from agentrun.report.file_diff import file_kind

    path = Path(target)
    if "::" in target or case_name is not None or (path.is_file() and file_kind(path) == "agent"):
        return _view_case(target, case_name), 0
    if path.is_file() and file_kind(path) == "cassette":
        return _view_cassette(path), 0
    return _view_run(target, packages)


def _view_run(target: str, packages: tuple[Path, ...]) -> tuple[list[RunView], int]:
    from agentrun.cli.run_files import exit_code
    from agentrun.report.run_view import ViewSource, view_run

    family, beside = read_run(target)
    for journal in family.journals:
        if journal.error is not None:
            show_run_error(journal.run, journal.error, as_json=False)
    if not family.root.records:
        return [], exit_code(family)
    run = family.root.started.run
    verbs = ("show", "verify", "audit") if family.root.is_finished else ("resume", "show", "verify", "audit")
    source = ViewSource(source=f"run {run}", commands=tuple(f"agentrun {verb} {run}" for verb in verbs))
    return [view_run(redact_family(family), load_packages(beside, packages), source)], exit_code(family)


def _view_case(target: str, case_name: str | None) -> list[RunView]:
    from agentrun.compiler.cases import cases_path
    from agentrun.testing.suite.case_view import view_case
    from agentrun.testing.suite.replay import CompiledAgents, replay_case
    from agentrun.testing.suite.selection import CaseFilter, select_cases

    if "::" not in target:
        target = f"{cases_path(Path(target))}::{case_name or 'default'}"
    selected = select_cases([target], CaseFilter())
    if len(selected.cases) != 1:
        raise click.UsageError(f"{target} is not the name of one case")
    located = selected.cases[0]
    agent = CompiledAgents().for_case(located)
    runs = replay_case(located, agent)
    if not runs.runs and runs.start_error is not None:
        raise runs.start_error
    return list(view_case(located, agent, runs, agent.load_cassette(located)))


def _view_cassette(path: Path) -> list[RunView]:
    """The run of the case that plays the cassette. A cassette without a case is shown as it is."""
    from agentrun.cassette.selection import select_cassettes

    for file in select_cassettes([path]):
        for owner in file.owners:
            return _view_case(str(owner.spec), owner.case.name)
    raise click.UsageError(f"no case plays the cassette {path}; `agentrun cassette show` shows it")


def _page(views: list[RunView]) -> str:
    from msgspec import to_builtins

    from agentrun.credentials import hidden_secrets
    from agentrun.report.html_page import render_page

    data: Any = hidden_secrets.redactor.redact_data(to_builtins(views))
    return render_page({"views": data})
