"""`agentrun store`: where runs are stored, and whether the store is trusted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import click

from agentrun.cli.console import document_problems, json_line, json_option, print_stderr
from agentrun.cli.runs import json_lines, text_lines
from agentrun.spec.project import Project, find_working_project
from agentrun.spec.safe_text import plural
from agentrun.spec.source_files import display_path
from agentrun.store.files import RETENTION_RULE, FileStore
from agentrun.store.index import RunFilter, RunIndex
from agentrun.store.owner import distrust, trust_store
from agentrun.store.run_summary import UNFINISHED_STATUSES, RunSummary, StoredStatus

_UNFINISHED = RunFilter(status=tuple(status for status in get_args(StoredStatus) if status in UNFINISHED_STATUSES))


@click.group("store", invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> int:
    """Show where runs are stored, for how long, and which are not finished.

    Runs are resumed only from a trusted store: one that you made on this machine, and that only you can read. A store
    that came with a repository is not trusted, because someone else may have written what its runs do next.

    \b
    Examples:
      agentrun store             show the store of this project
      agentrun store trust       trust a store that you copied from another machine
    """
    if context.invoked_subcommand is not None:
        return 0
    project = _find_project()
    if not project.stores_runs:
        print_stderr("runs are not stored, because AGENTRUN_STORE is none")
        return 0
    _show(project, as_json=as_json)
    return 0


@command.command("trust")
@click.option("--yes", is_flag=True, help="Trust the store without asking.")
@json_option
def trust_command(yes: bool, as_json: bool) -> int:
    """Trust the store of this project, after showing the runs that wait in it.

    From then on, `agentrun resume` continues its runs. Other users lose their access to the store.

    \b
    Examples:
      agentrun store trust
      agentrun store trust --yes
    """
    project = _find_project()
    if distrust(project) is None:
        print_stderr("the store is trusted already" if project.store_directory.is_dir() else "there is no store yet")
        return 0
    _show(project, as_json=as_json)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to ask at; add --yes to trust the store")
        click.confirm("Trust this store?", default=False, abort=True, err=True)
    trust_store(project)
    print_stderr("the store is trusted")
    return 0


def _find_project() -> Project:
    with document_problems():
        return find_working_project(Path.cwd())


def _show(project: Project, *, as_json: bool) -> None:
    unfinished = RunIndex(project).select(_UNFINISHED)
    about = _describe(project, unfinished)
    if as_json:
        click.echo(json_line({"store": about}))
    else:
        trust = "trusted" if about["trusted"] else f"not trusted: {about['why']}"
        click.echo(f"{about['directory']}, {trust}")
        click.echo(
            f"{plural(about['runs'], 'run')}, {len(unfinished)} not finished; {plural(about['sessions'], 'session')}"
        )
        click.echo(f"runs are kept: {RETENTION_RULE}")
    if unfinished:
        click.echo("\n".join(json_lines(unfinished) if as_json else ["", *text_lines(unfinished)]))


def _describe(project: Project, unfinished: list[RunSummary]) -> dict[str, Any]:
    store, found = FileStore(project), distrust(project)
    return {
        "directory": display_path(project.store_directory, project.root),
        "trusted": found is None,
        "reason": None if found is None else found[0],
        "why": None if found is None else found[1],
        "runs": len(store.root_runs()),
        "unfinished": len(unfinished),
        "sessions": len(store.sessions.names()),
    }
