"""`agentrun events [RUN]`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agentrun.cli.completion import complete_runs
from agentrun.cli.console import (
    OutputPipe,
    json_line,
    json_option,
    print_stderr,
    safe_text,
    wants_color,
)
from agentrun.cli.run_files import find_run, load_packages, package_paths, show_run_error, working_project
from agentrun.errors import SUSPENDED_EXIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentrun.core.facts import Record
    from agentrun.core.package import Package
    from agentrun.engine.events import Event, Scope
    from agentrun.engine.follower import JournalFollower
    from agentrun.report.run_renderer import RunRenderer
    from agentrun.store.files import FileStore

NOW = "now"


@click.command("events")
@click.argument("run", required=False, shell_complete=complete_runs)
@click.option("--agent", metavar="NAME", help="Only the events of this agent, also where it is a sub-agent.")
@click.option("--follow", is_flag=True, help="Wait for more events, until the run is finished.")
@click.option("--since", metavar="CURSOR", help=f"Only the events after this one; `{NOW}`: only those that come.")
@json_option
def command(run: str | None, agent: str | None, follow: bool, since: str | None, as_json: bool) -> int:
    """Print the events of a run and its sub-agents, or of all runs: what their journals record.

    --follow prints what other processes record, as they do it. It ends when the run is finished. If the run waits for
    something, or its process is gone, it says so and ends with exit code 8. Without RUN it ends with Ctrl-C. To follow
    a run changes nothing in it.

    \b
    --json prints one object per record:
      {"run", "call", "record", "cursor"}
    "call" is left out if a record is not about one call. A cursor is a position in the journals: --since continues
    after it, in any process, with nothing lost and nothing twice. It is for the same RUN or --agent, or for all runs.
    Runs that were removed, or are damaged, are
      {"run", "gap": {"since", "error"}, "cursor"}
    and a run that is followed and left is
      {"run", "status", "waits_for", "cursor"}

    \b
    Examples:
      agentrun events 5f0c --follow
      agentrun events --follow --since now
      agentrun events --agent support --json | jq -r .cursor | tail -n 1 > cursor
      agentrun events --agent support --json --since "$(cat cursor)"
    """
    from agentrun.engine.events import ALL_EVENTS, Cursor, agent_scope, family_scope
    from agentrun.engine.follower import JournalFollower
    from agentrun.store.files import FileStore
    from agentrun.store.owner import refuse_untrusted

    if run is not None and agent is not None:
        raise click.UsageError("RUN and --agent cannot be combined: a run has one agent")
    project = working_project()
    refuse_untrusted(project)
    store = FileStore(project)
    scope = ALL_EVENTS if agent is None else agent_scope(agent)
    if run is not None:
        scope = family_scope(find_run(store, run))
    cursor = Cursor(scope.name) if since is None else None if since == NOW else Cursor.parse(since)
    follower = JournalFollower(store, scope, cursor)
    output = _EventOutput(store, scope, as_json=as_json)
    return _follow(store, follower, output) if follow else output.show_all(follower)


def _follow(store: FileStore, follower: JournalFollower, output: _EventOutput) -> int:
    run, pipe = follower.scope.run, OutputPipe()
    with store.watch() as watch:
        is_idle = False
        while pipe.has_reader:
            shown = output.count
            output.show_all(follower)
            if run is not None and output.is_finished:
                return 0
            if watch.follow(follower.open_runs):
                continue
            if shown != output.count:
                is_idle = False
            elif run is not None and not store.is_locked(run):
                if is_idle:  # the journal was read after the owner was gone
                    return output.show_left(run, follower)
                is_idle = True
                continue
            watch.wait()
    return 0


class _EventOutput:
    def __init__(self, store: FileStore, scope: Scope, *, as_json: bool) -> None:
        from agentrun.report.screen import PlainScreen

        self.count = 0
        self.is_finished = False
        """Whether the terminal record of the only run was shown."""
        self._store = store
        self._scope = scope
        self._as_json = as_json
        self._screen = PlainScreen(sys.stdout, color=wants_color(sys.stdout))
        self._renderers: dict[str, RunRenderer] = {}
        self._last_run = scope.run
        self._exit_code = 0

    def show_all(self, follower: JournalFollower) -> int:
        """Print what is new. Return the exit code: not 0 if a journal is damaged."""
        for event in follower.read():
            self.count += 1
            self._show(event)
        return self._exit_code

    def show_left(self, run: str, follower: JournalFollower) -> int:
        """Print that no process works on a run. Return the exit code."""
        from agentrun.store.run_summary import summarize

        contents = self._store.contents(run)
        summary = summarize(run, contents.data, contents.records, contents.read_blob)
        assert summary is not None, "the follower has read a record"
        if self._as_json:
            left = {"run": run, "status": summary.status, "waits_for": summary.waits_for}
            click.echo(json_line({**left, "cursor": str(follower.cursor)}))
        else:
            for line in self._describe_left(run, is_waiting=summary.status == "waiting"):
                print_stderr(safe_text(line))
        return SUSPENDED_EXIT

    def _describe_left(self, run: str, *, is_waiting: bool) -> Iterator[str]:
        from msgspec import UNSET

        from agentrun.core.facts import RunStarted
        from agentrun.engine.run import child_journals
        from agentrun.report.suspension import resume_command, suspension_lines
        from agentrun.store.run_ids import root_run

        journals = {run: self._store.records(run), **dict(child_journals(self._store, run))}
        started = journals[run][0].fact
        is_live = isinstance(started, RunStarted) and started.stand_ins is UNSET
        if is_waiting:
            yield from suspension_lines(run, journals, is_resumable=is_live)
        else:
            yield "the run is not finished, and no process works on it"
            if is_live:
                yield f"  → {resume_command(root_run(run))}"

    def _show(self, event: Event) -> None:
        from msgspec.structs import replace

        from agentrun.core.facts import Record
        from agentrun.credentials import hidden_secrets
        from agentrun.journal.family import call_of

        if event.is_terminal and event.run == self._scope.run:
            self.is_finished = True
        if not isinstance(event.what, Record):
            self._show_gap(event)
            return
        assert event.run is not None
        record = replace(event.what, fact=hidden_secrets.redactor.redact_struct(event.what.fact))
        if self._as_json:
            call = call_of(record.fact)
            names = {"run": event.run, "call": call} if call else {"run": event.run}
            click.echo(json_line({**names, "record": _plain_record(record), "cursor": str(event.cursor)}))
        else:
            self._show_record(event.run, event.agent or "", record)

    def _show_gap(self, event: Event) -> None:
        from agentrun.engine.events import Gap

        assert isinstance(event.what, Gap)
        error = event.what.error
        assert error is not None, "a follower is not slow"
        if error.code != "run.not_found":
            self._exit_code = self._exit_code or error.exit_code
        if self._as_json:
            gap = {"since": str(event.what.since), "error": error.as_json()}
            click.echo(json_line({"run": event.run, "gap": gap, "cursor": str(event.cursor)}))
        else:
            print_stderr(safe_text(f"events of {event.run} are missing:"))
            show_run_error(event.run, error, as_json=False)

    def _show_record(self, run: str, agent: str, record: Record) -> None:
        from agentrun.report.formatting import make_line
        from agentrun.report.run_story import render_outcome
        from agentrun.spec.problems import escape_invisible
        from agentrun.store.run_ids import root_run

        renderer = self._renderers.get(run) or self._start_renderer(run, record)
        if self._scope.run is None and root_run(run) != self._last_run:
            self._last_run = root_run(run)
            self._screen.line(make_line(f"{escape_invisible(agent)} · {run}", "dim"))
        for line in renderer.render(record):
            self._screen.line(line)
        if renderer.state.stopped is not None:
            del self._renderers[run]
            for line in render_outcome(renderer.state) if run == root_run(run) or run == self._scope.run else ():
                self._screen.line(line)

    def _start_renderer(self, run: str, record: Record) -> RunRenderer:
        """The renderer of a run, as it is before a record."""
        from agentrun.core.facts import RunStarted
        from agentrun.report.run_renderer import RunRenderer

        renderer: RunRenderer | None = None
        for each in self._store.tail(run).read():
            if isinstance(each.fact, RunStarted):
                renderer = RunRenderer(self._packages(run).get(each.fact.package))
            if each.seq >= record.seq:
                break
            assert renderer is not None, "a journal begins with run_started"
            renderer.render(each)
        assert renderer is not None, "the record is in the journal"
        self._renderers[run] = renderer
        return renderer

    def _packages(self, run: str) -> dict[str, Package]:
        from agentrun.store.run_ids import root_run

        return load_packages(package_paths(self._store.run_directory(root_run(run))), ())


def _plain_record(record: Record) -> dict[str, Any]:
    import msgspec

    from agentrun.core.facts import UnknownFact

    plain: dict[str, Any] = msgspec.to_builtins(record)
    fact: Any = record.fact
    return {**plain, "fact": {"type": fact.kind, **fact.data}} if isinstance(fact, UnknownFact) else plain
