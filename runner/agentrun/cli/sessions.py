"""`agentrun sessions`: the commands that list, show, fork and remove sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from agentrun.cli.completion import complete_runs, complete_sessions
from agentrun.cli.console import json_line, json_option, print_stderr, table_lines
from agentrun.cli.options import ListGroup, check_session_name, force_option
from agentrun.cli.run_files import find_run, read_summary, show_run_error, working_project
from agentrun.cli.runs import describe_wait, index_by_id, iso_time, refuse_unfinished
from agentrun.core.messages import Assistant, Message, ToolResult, User, text_of
from agentrun.credentials import hidden_secrets
from agentrun.engine.sessions import added_messages, unfinished_error
from agentrun.errors import RequestError, StorageError
from agentrun.report.formatting import format_count, format_dollars, preview_text
from agentrun.spec.problems import escape_invisible
from agentrun.spec.safe_text import join_words, plural
from agentrun.store.files import FileStore
from agentrun.store.owner import refuse_untrusted
from agentrun.store.run_summary import RunSummary
from agentrun.store.sessions import check_runs, not_found_error

if TYPE_CHECKING:
    from agentrun.store.session_lists import SessionEntry

session_argument = click.argument("session", shell_complete=complete_sessions)


@click.group("sessions", cls=ListGroup)
def command() -> None:
    """List, show, fork and remove sessions: conversations over several runs.

    \b
    Examples:
      agentrun sessions                               list the sessions
      agentrun sessions show ada                      show what was said, and in which run
      agentrun sessions fork ada --at 5f0c ada-2      go on from an earlier run, in another session
      agentrun sessions rm ada                        remove a session with its runs
    """


@command.command("ls", short_help="List sessions with their runs and what they spent.")
@json_option
def list_sessions_command(as_json: bool) -> int:
    """List sessions, the latest first. The status is that of the last run; agentrun runs --help explains it.

    \b
    Examples:
      agentrun sessions
      agentrun sessions --json | jq 'select(.status == "waiting").session'
    """
    project = working_project()
    store, runs = FileStore(project), index_by_id(project)
    sessions = [StoredSession(name, store, runs) for name in store.sessions.names()]
    sessions.sort(key=lambda each: (each.last.started, each.name), reverse=True)
    if as_json:
        for session in sessions:
            click.echo(json_line(session.as_json()))
    elif sessions:
        text = "\n".join(table_lines([session.cells() for session in sessions]))
        click.echo(hidden_secrets.redactor.redact_text(text))
    else:
        print_stderr("no sessions found")
    return 0


@command.command("show", short_help="Show the runs of a session, and what each added to the conversation.")
@session_argument
@json_option
def show_session_command(session: str, as_json: bool) -> int:
    """Show the runs of SESSION in their order, each with the messages that it added to the conversation.

    A later run gets these messages as far as `session:` in its spec allows. If the journal of a run is damaged, the
    other runs are shown, and the exit code is 7.

    \b
    --json prints one object per run:
      {"session", "run", "agent", "status", "code", "started", "ended", "from", "removed", "messages"}
    "from" is the session that the run was started in.

    \b
    Examples:
      agentrun sessions show ada
      agentrun sessions show ada --json | jq -r '.messages[] | select(.role == "user").parts[0].text'
    """
    project = working_project()
    store = FileStore(project)
    found = StoredSession(_existing(store, session), store, index_by_id(project))
    if not as_json:
        click.echo(hidden_secrets.redactor.redact_text(found.title))
    code = 0
    for entry in found.entries:
        messages: list[Message] = []
        error = None
        if not entry.removed:
            try:
                messages = added_messages(store.records(entry.run))
            except RequestError:  # its process ended before the first record
                continue
            except StorageError as damage:
                error, code = damage, damage.exit_code
        if as_json:
            click.echo(json_line(found.run_json(entry, messages)))
        else:
            lines = (found.run_line(entry), *(f"  {line}" for each in messages for line in _message_lines(each)))
            click.echo(hidden_secrets.redactor.redact_text("\n".join(lines)))
        if error is not None:
            show_run_error(entry.run, error, as_json=as_json)
    return code


@command.command("fork", short_help="Begin a session with the history of another one.")
@session_argument
@click.argument("new", callback=check_session_name)
@click.option(
    "--at",
    metavar="RUN",
    shell_complete=complete_runs,
    help="The last run of SESSION that the new session has. The default is the last run.",
)
@json_option
def fork_session_command(session: str, new: str, at: str | None, as_json: bool) -> int:
    """Begin the session NEW with the runs of SESSION, up to a run that is finished.

    Nothing is copied or run: both sessions have these runs, and go on separately. A run is kept as long as one of its
    sessions. Approvals for the session are not taken over.

    \b
    Examples:
      agentrun sessions fork ada ada-2
      agentrun sessions fork ada --at 5f0c ada-2
    """
    project = working_project()
    with FileStore(project) as store:
        entries = store.sessions.runs(_existing(store, session))
        names = [entry.run for entry in entries if not entry.removed and entry.run in store]
        run = _run_of(store, session, names, at)
        refuse_untrusted(project)
        history = check_runs(store, session, entries[: [entry.run for entry in entries].index(run) + 1])
        if not history[-1].is_finished:
            raise unfinished_error(session, store.records(run))
        store.sessions.fork(session, run, new)
    if as_json:
        click.echo(json_line({"session": new, "forked": {"session": session, "run": run}, "runs": len(history)}))
    else:
        print_stderr(
            f"{new} continues after {run} of {session}, with {plural(len(history), 'run')}; use --session {new}"
        )
    return 0


@command.command("rm", short_help="Remove sessions with their runs.")
@click.argument("sessions", metavar="SESSION...", nargs=-1, required=True, shell_complete=complete_sessions)
@force_option
@json_option
def remove_sessions_command(sessions: tuple[str, ...], force: bool, as_json: bool) -> int:
    """Remove sessions with their runs. They cannot be restored.

    Runs that a fork has in common with a session are kept until the fork is removed too. Nothing is removed if one of
    the runs cannot be removed.

    \b
    Examples:
      agentrun sessions rm ada ada-2
    """
    project = working_project()
    with FileStore(project) as store:
        names = [_existing(store, session) for session in dict.fromkeys(sessions)]
        if not force:
            runs = (run for name in names for run in store.sessions.all_runs(name) if run in store)
            refuse_unfinished(read_summary(store, run) for run in runs)
        removed = {name: store.remove_session(name, force=force) for name in names}
    if as_json:
        for name, gone in removed.items():
            click.echo(json_line({"session": name, "removed": gone}))
    else:
        count = sum(map(len, removed.values()))
        print_stderr(f"{plural(len(removed), 'session')} removed, with {plural(count, 'run')}")
    return 0


def _existing(store: FileStore, session: str) -> str:
    if session not in store.sessions:
        raise not_found_error(store, session, "agentrun sessions lists the sessions")
    return session


def _run_of(store: FileStore, session: str, runs: Sequence[str], word: str | None) -> str:
    """The run of a session that a word names. Raises `run.not_found`, click.UsageError."""
    if word is None and runs:
        return runs[-1]
    run = "" if word is None else find_run(store, word)
    if run not in runs:
        message = f"the session {session} has no run {run}".rstrip()
        hint = f"agentrun sessions show {session} lists its runs"
        raise RequestError("run.not_found", message, hint=hint, fields={"run": run, "session": session})
    return run


class StoredSession:
    """A session, with the summaries of its runs."""

    def __init__(self, name: str, store: FileStore, runs: Mapping[str, RunSummary]) -> None:
        self.entries = store.sessions.runs(name)
        self._runs = runs
        self._summaries = [runs[entry.run] for entry in self.entries if entry.run in runs and not entry.removed]
        own = (run for run in self._summaries if store.sessions.directory(run.session or "").name == name)
        self.name = next((run.session for run in own if run.session), name)

    @property
    def last(self) -> RunSummary:
        return self._summaries[-1] if self._summaries else RunSummary("", "", "completed", 0, 0)

    @property
    def _forked_at(self) -> RunSummary | None:
        """The last run that was started in another session."""
        others = [run for run in self._summaries if run.session != self.name]
        return others[-1] if others else None

    @property
    def _agents(self) -> list[str]:
        return list(dict.fromkeys(run.agent for run in self._summaries))

    @property
    def _cost(self) -> int:
        return sum(run.cost for run in self._summaries)

    @property
    def _tokens(self) -> int:
        return sum(run.tokens for run in self._summaries)

    def as_json(self) -> dict[str, Any]:
        fork, last = self._forked_at, self.last
        return {
            "session": self.name,
            "agents": self._agents,
            "runs": len(self._summaries),
            "last": last.run,
            "status": last.status,
            "code": last.code,
            "started": iso_time(self._summaries[0].started if self._summaries else 0),
            "ended": None if last.ended is None else iso_time(last.ended),
            "spent": {"cost": self._cost, "tokens": self._tokens},
            "waits_for": msgspec.to_builtins(last.waits_for),
            "forked": None if fork is None else {"session": fork.session, "run": fork.run},
        }

    def cells(self) -> list[str]:
        return [
            escape_invisible(self.name),
            escape_invisible(join_words(self._agents)),
            plural(len(self._summaries), "run"),
            self.last.status,
            _local_time(self.last),
            format_dollars(self._cost) if self._cost else "",
            f"{format_count(self._tokens)} tokens",
            escape_invisible(", ".join((*filter(None, [self.last.code]), *self._waits(), *self._origin()))),
        ]

    def _waits(self) -> Iterator[str]:
        return map(describe_wait, self.last.waits_for)

    def _origin(self) -> Iterator[str]:
        if (fork := self._forked_at) is not None:
            yield f"forked from {fork.session} at {fork.run}"

    @property
    def title(self) -> str:
        agents = f" of {join_words(self._agents)}" if self._agents else ""
        texts = (
            f"{plural(len(self._summaries), 'run')}{agents}",
            f"{format_count(self._tokens)} tokens",
            *self._origin(),
        )
        return escape_invisible(f"session {self.name}: {', '.join(texts)}")

    def run_line(self, entry: SessionEntry) -> str:
        run = self._runs.get(entry.run)
        if entry.removed or run is None:
            return f"{entry.run}  {'removed' if entry.removed else 'damaged'}"
        notes = [*filter(None, [run.code]), *map(describe_wait, run.waits_for)]
        if run.session is not None and run.session != self.name:
            notes.append(f"session {run.session}")
        return escape_invisible(
            "  ".join((run.run, run.agent, run.status, _local_time(run), ", ".join(notes)))
        ).rstrip()

    def run_json(self, entry: SessionEntry, messages: Sequence[Message]) -> dict[str, Any]:
        run = self._runs.get(entry.run) or RunSummary(entry.run, "", "damaged", 0, 0)
        return {
            "session": self.name,
            "run": entry.run,
            "agent": run.agent,
            "status": None if entry.removed else run.status,
            "code": run.code,
            "started": None if entry.removed else iso_time(run.started),
            "ended": None if run.ended is None else iso_time(run.ended),
            "from": run.session,
            "removed": entry.removed,
            "messages": msgspec.to_builtins(messages),
        }


def _local_time(run: RunSummary) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started / 1000))


def _message_lines(message: Message) -> Iterator[str]:
    match message:
        case User():
            yield f"user: {preview_text(text_of(message.parts))}"
        case ToolResult():
            yield f"result of {escape_invisible(message.call)}: {preview_text(text_of(message.parts))}"
        case Assistant():
            if message.text or not message.calls:
                yield f"assistant: {preview_text(message.text)}"
            for call in message.calls:
                yield f"call {escape_invisible(f'{call.id}: {call.tool}')} {preview_text(call.arguments)}"
