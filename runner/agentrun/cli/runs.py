"""`agentrun runs`: the commands that list and remove stored runs."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

import click
import msgspec

from agentrun.cli.completion import complete_runs, complete_sessions
from agentrun.cli.console import (
    escape_json,
    json_line,
    json_option,
    print_stderr,
    table_lines,
)
from agentrun.cli.options import ListGroup, force_option, now_option, parse_duration
from agentrun.cli.run_files import find_run, read_summary, working_project
from agentrun.credentials import hidden_secrets
from agentrun.engine.due import is_due
from agentrun.engine.request import wrong_state_error
from agentrun.report.formatting import format_count, format_dollars, format_time
from agentrun.spec.problems import escape_invisible
from agentrun.spec.project import Project
from agentrun.spec.safe_text import plural
from agentrun.store.files import FileStore
from agentrun.store.index import RunFilter, RunIndex
from agentrun.store.run_ids import root_run
from agentrun.store.run_summary import (
    RESUMABLE_STATUSES,
    UNFINISHED_STATUSES,
    RunSummary,
    StoredStatus,
    WaitKind,
    WaitReason,
)

DEFAULT_LIMIT = 50
_WAITS: dict[WaitKind, str] = {
    "approval": "waits for an approval of {}",
    "settlement": "waits for a decision about {}",
    "deferral": "{} is deferred",
    "sub-agent": "{} waits",
}


@click.group("runs", cls=ListGroup)
def command() -> None:
    """List and remove stored runs.

    \b
    Examples:
      agentrun runs                                       list the latest runs
      agentrun runs --status waiting --status failed      list those that need attention
      agentrun runs rm 5f0c                               remove a run
    """


@command.command("ls", short_help="List runs with their status and what they spent.")
@click.option("--agent", metavar="NAME", multiple=True, help="Only runs of this agent.")
@click.option("--status", type=click.Choice(get_args(StoredStatus)), multiple=True, help="Only runs with this status.")
@click.option("--code", metavar="CODE", multiple=True, help="Only runs that ended with this code, such as budget.cost.")
@click.option(
    "--session",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_sessions,
    help="Only runs that were started in this session.",
)
@click.option("--since", metavar="TIME", help="Only runs that started at this time or later: 2h, 7d, 2026-01-31.")
@click.option("--until", metavar="TIME", help="Only runs that started before this time.")
@click.option("--due", is_flag=True, help="Only runs that `agentrun resume --due` would continue now.")
@click.option("--sub-agents", is_flag=True, help="Also list the runs of sub-agents.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"List at most N runs, 0 for all. The default is {DEFAULT_LIMIT}, with --json all.",
)
@now_option
@json_option
def list_runs_command(
    agent: tuple[str, ...],
    status: tuple[StoredStatus, ...],
    code: tuple[str, ...],
    session: tuple[str, ...],
    since: str | None,
    until: str | None,
    due: bool,
    sub_agents: bool,
    limit: int | None,
    now: int,
    as_json: bool,
) -> int:
    """List runs, the latest first. Options of one kind can be repeated.

    \b
    running       a process works on it
    waiting       a person has to answer or decide
    interrupted   it is not finished, and nothing works on it
    completed     it has an answer
    failed        it ended without one
    cancelled     someone cancelled it
    damaged       its journal cannot be read

    With --due: only runs that could continue now, without an answer or a decision of a person. These are interrupted
    and parked runs, runs whose question is answered, and runs that a rule deferred until a time that has come. A run
    with a call whose outcome is not known is not among them.

    \b
    Examples:
      agentrun runs --agent support --since 24h
      agentrun runs --status failed --code budget.cost
      agentrun runs --due
      agentrun runs --json | jq 'select(.spent.cost > 1000000).run'
    """
    if due and (status or sub_agents):
        raise click.UsageError("--due cannot be combined with --status or --sub-agents")
    most = DEFAULT_LIMIT if limit is None and not as_json else limit or None
    wanted = RunFilter(
        agent=agent,
        status=RESUMABLE_STATUSES if due else status,
        code=code,
        session=session,
        since=_parse_time("--since", since, now),
        until=_parse_time("--until", until, now),
        limit=None if most is None or due else most + 1,
        sub_agents=sub_agents,
    )
    project = working_project()
    found = RunIndex(project).select(wanted)
    if due:
        found = [run for run in found if is_due(FileStore(project), run.run, now)]
    shown = found[:most]
    if shown:
        click.echo("\n".join(json_lines(shown) if as_json else text_lines(shown)))
    if not as_json and len(found) > len(shown):
        print_stderr(f"only the latest {plural(len(shown), 'run')}; --limit 0 lists all")
    if not as_json and not found:
        print_stderr("no runs found")
    return 0


@command.command("rm", short_help="Remove runs from the store.")
@click.argument("names", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_runs)
@force_option
@json_option
def remove_runs_command(names: tuple[str, ...], force: bool, as_json: bool) -> int:
    """Remove runs from the store, with their sub-agents. They cannot be restored.

    RUN is the id of a run, or the beginning of it. A run of a session is removed together with its session, with
    `agentrun sessions rm`. Nothing is removed if one of the runs cannot be removed.

    \b
    Examples:
      agentrun runs rm 5f0c 81aa
    """
    project = working_project()
    with FileStore(project) as store:
        wanted = [_removable_run(store, name) for name in dict.fromkeys(find_run(store, name) for name in names)]
        if not force:
            refuse_unfinished(wanted)
        for run in wanted:
            store.remove(run.run, force=force)
    if as_json:
        for run in wanted:
            click.echo(json_line({"run": run.run, "removed": True}))
    else:
        print_stderr(f"{plural(len(wanted), 'run')} removed")
    return 0


def index_by_id(project: Project) -> dict[str, RunSummary]:
    return {run.run: run for run in RunIndex(project).select(RunFilter(sub_agents=True))}


def refuse_unfinished(runs: Iterable[RunSummary]) -> None:
    """Raises `run.invalid_state` if one of the runs that are to be removed is not finished."""
    for run in runs:
        if run.status in UNFINISHED_STATUSES:
            error = wrong_state_error(run.run, "finished", run.status)
            error.hint = "to remove it anyway, add --force; nothing was removed"
            raise error


def _removable_run(store: FileStore, name: str) -> RunSummary:
    """The summary of a run that is not part of anything else, from its files. Raises click.UsageError if it is."""
    run = read_summary(store, name)
    if run.parent is not None:
        raise click.UsageError(f"{name} is the run of a sub-agent; remove the run that started it: {root_run(name)}")
    lists = store.sessions.lists()
    sessions = [session for session, entries in lists.items() if any(entry.run == name for entry in entries)]
    if sessions or run.session is not None:
        words = " ".join(shlex.quote(escape_invisible(session)) for session in sessions or [run.session or ""])
        raise click.UsageError(
            f"{name} belongs to a session, which is removed as a whole: agentrun sessions rm {words}"
        )
    return run


def _parse_time(option: str, text: str | None, now: int) -> int | None:
    """Milliseconds since 1970, from a time or from a duration before now. A time without a zone is local."""
    if text is None:
        return None
    if (duration := parse_duration(text)) is not None:
        return now - duration
    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        message = f"{text!r} is neither a time such as 2026-01-31T12:00 nor a duration such as 2h, 7d or 4w"
        raise click.BadParameter(message, param_hint=f"'{option}'") from None


def json_lines(runs: Sequence[RunSummary]) -> Iterator[str]:
    texts = "\n".join(text for run in runs for text in _texts(run))
    if hidden_secrets.redactor.redact_text(texts) != texts:
        return (json_line(_json_object(run)) for run in runs)
    return (escape_json(msgspec.json.encode(_json_object(run)).decode()) for run in runs)


def _texts(run: RunSummary) -> Iterator[str]:
    """Everything that a user or a journal named."""
    yield from filter(None, (run.run, run.agent, run.code, run.session, run.parent))
    for wait in run.waits_for:
        yield from (wait.subject, wait.tool or "")


def _json_object(run: RunSummary) -> dict[str, Any]:
    return {
        "run": run.run,
        "agent": run.agent,
        "status": run.status,
        "code": run.code,
        "session": run.session,
        "started": iso_time(run.started),
        "ended": None if run.ended is None else iso_time(run.ended),
        "spent": {"cost": run.cost, "tokens": run.tokens},
        "turns": run.turns,
        "parent": run.parent,
        "waits_for": [_json_wait(wait) for wait in run.waits_for],
        "seq": run.seq,
    }


def _json_wait(wait: WaitReason) -> dict[str, Any]:
    until = None if wait.until is None else iso_time(wait.until)
    return {"kind": wait.kind, "subject": wait.subject, "tool": wait.tool, "until": until}


def iso_time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def text_lines(runs: Sequence[RunSummary]) -> list[str]:
    text = "\n".join(table_lines([_cells(run) for run in runs]))
    return hidden_secrets.redactor.redact_text(text).split("\n")


def _cells(run: RunSummary) -> list[str]:
    notes = [run.code or "", *map(describe_wait, run.waits_for)]
    if run.session is not None:
        notes.append(f"session {run.session}")
    return [
        run.run,
        escape_invisible(run.agent),
        run.status,
        time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started / 1000)),
        format_dollars(run.cost) if run.cost else "",
        f"{format_count(run.tokens)} tokens",
        plural(run.turns, "turn"),
        escape_invisible(", ".join(filter(None, notes))),
    ]


def describe_wait(wait: WaitReason) -> str:
    subject = wait.subject if wait.tool is None else f"{wait.tool} ({wait.subject})"
    return _WAITS[wait.kind].format(subject) + ("" if wait.until is None else f" until {format_time(wait.until)}")
