"""Runs in real time: live, or with the model or the tools from a cassette. Recorded runs open their world here too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.cli.interrupt import InterruptHandler
from agentrun.cli.journal_file import CopiedJournals, streams_journal
from agentrun.cli.plan import RunPlan
from agentrun.cli.recorded_case import make_fault_injection, make_player, warn_unused_faults
from agentrun.cli.run_output import RunOutput
from agentrun.cli.stdout_guard import guard_stdout
from agentrun.compiler.package_file import PackageFile
from agentrun.core.evolve import fold
from agentrun.core.package import find_tool, tool_effect
from agentrun.engine.answers import package_of_run
from agentrun.engine.approvals import HOW_TO_ANSWER, NoApprover, unanswered_targets
from agentrun.engine.memory import Journals, MemoryJournals
from agentrun.engine.ports import Approver
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun, run_in_world
from agentrun.engine.run_store import lock_session, open_run_store
from agentrun.engine.sessions import Session
from agentrun.engine.world import World, wrap
from agentrun.engine.worlds.live import live_world, mixed_world
from agentrun.errors import AgentrunError
from agentrun.report.run_story import open_calls
from agentrun.spec.project import Project
from agentrun.spec.safe_text import join_words
from agentrun.spec.source_files import display_path
from agentrun.store.files import FileStore
from agentrun.store.owner import distrust, is_claimed, is_private
from agentrun.store.run_summary import RESUMABLE_STATUSES

if TYPE_CHECKING:
    from agentrun.cassette.player import Player
    from agentrun.engine.settings import Settings

MAX_CHECKED_RUNS = 10
"""Interrupted runs of an agent in which a new run looks for open calls."""
NO_APPROVER = "there is no terminal and no --approve"


def run_live(plan: RunPlan, request: Request, approver: Approver | None, output: RunOutput) -> FinishedRun:
    player = None if plan.mode == "live" else make_player(plan, request)
    faults, interrupts = make_fault_injection(plan), InterruptHandler(output, plan.grace)
    wrappers = () if faults is None else faults.wrappers
    announce = interrupts.announce(partial(begin_output, plan, request, output))

    async def run(store: FileStore | None, session: Session | None) -> FinishedRun:
        async with open_real_world(
            plan, request, cast(str, request.run), approver, output, store, player=player
        ) as world:
            interrupts.set_world(world)
            return await run_in_world(wrap(world, *wrappers), request, session, announce)

    with guard_stdout(output.show_printed), open_store(plan, output) as store:
        done = interrupts.run(run(store, _open_session(store, plan, request)))
    warn_unused_faults(faults, output)
    if plan.mode != "live-model":
        warn_unanswered(done, output)
    return done if player is None else replace(done, tier=player.tier)


@asynccontextmanager
async def open_real_world(
    plan: RunPlan,
    request: Request,
    run: str,
    approver: Approver | None,
    output: RunOutput,
    store: FileStore | None,
    *,
    player: Player | None = None,
) -> AsyncIterator[World]:
    """Open the world of a run in real time. `player`: plays the model or the tools, as the plan says. `store`: None if
    the run is not stored."""
    package, project = cast(PackageFile, request.package).agent, plan.spec.project
    assert plan.settings is not None
    options = world_options(output, plan.settings, approver, run, store)
    options["suspends"] = plan.suspends
    with _open_journals(plan, run, store) as journals:
        options |= {"journals": journals, "stand_ins": plan.stand_ins or UNSET}
        if player is None:
            opened = live_world(package, project, run, **options)
        else:
            axis: Any = plan.mode.removeprefix("live-")
            opened = mixed_world(package, project, run, player, axis, **options)
        async with opened as world:
            yield world


def world_options(
    output: RunOutput, settings: Settings, approver: Approver | None, run: str, store: FileStore | None
) -> dict[str, Any]:
    """The options of the live world of a command."""
    shown = {"printed": output.show_printed, "write": output.write, "listen": output.listen}
    stored = {} if store is None else {"blobs": store.blobs(run), "inbox": store.inbox(run)}
    return {**shown, "settings": settings, "approver": approver or NoApprover(), **stored}


def _open_journals(plan: RunPlan, run: str, store: FileStore | None) -> AbstractContextManager[Journals]:
    journals: Journals = MemoryJournals() if store is None else store
    if plan.journal is None or not streams_journal(plan):
        return nullcontext(journals)
    return closing(CopiedJournals(journals, run, plan.journal.resolve()))


@contextmanager
def open_store(plan: RunPlan, output: RunOutput) -> Iterator[FileStore | None]:
    """The store of the project, or None if runs are not stored. Raises `storage.failed` if it cannot be written."""
    project = plan.spec.project
    if not project.stores_runs:
        yield None
        return
    assert plan.settings is not None
    with open_run_store(project, plan.settings.sync, output.say) as store:
        yield store


async def begin_output(plan: RunPlan, request: Request, output: RunOutput) -> None:
    """Print the first lines, and what is wrong with the store or with an earlier run."""
    await output.begin()
    project = plan.spec.project
    if project.stores_runs:
        with suppress(AgentrunError, ImportError):
            if is_private(project) and is_claimed(project):
                _warn_open_calls(project, cast(PackageFile, request.package).agent.name, output)
            elif (found := distrust(project)) is not None:
                where, why = display_path(project.store_directory, project.root), found[1]
                output.say(f"the store {where} is not trusted: {why}; this run cannot be resumed", "warn")
                output.say("  → agentrun store trust")


def _warn_open_calls(project: Project, agent: str, output: RunOutput) -> None:
    """Name the calls of the last run of an agent that was interrupted in one: a new run may make the same calls."""
    from agentrun.store.index import RunFilter, RunIndex  # late: some installations of Python lack sqlite3

    wanted = RunFilter(agent=(agent,), status=RESUMABLE_STATUSES, limit=MAX_CHECKED_RUNS)
    with FileStore(project) as store:
        for run in (summary.run for summary in RunIndex(project).select(wanted)):
            family = [run, *(each for each in store.runs() if each.startswith(f"{run}."))]
            with suppress(AgentrunError):
                calls = [call for each in family for call in _calls_with_unknown_outcome(store, each)]
                if calls and not store.is_of_other_project(run):
                    unknown = f"it is not known whether {join_words(calls)} took effect"
                    output.say(f"{run} was interrupted: {unknown}", "warn")
                    output.say(f"  → agentrun resume {run}")
                    return


def _calls_with_unknown_outcome(store: FileStore, run: str) -> list[str]:
    state = fold(store.records(run))
    if state.stopped is not None or not open_calls(state):
        return []
    tools = {call.tool: find_tool(package_of_run(store, run), call.tool) for call in state.calls}
    once = {name for name, tool in tools.items() if tool is not None and tool_effect(tool, name) == "at_most_once"}
    return open_calls(state, once)


def _open_session(store: FileStore | None, plan: RunPlan, request: Request) -> Session | None:
    if request.session is None:
        return None
    if store is None:
        raise click.UsageError("a session needs a store, but AGENTRUN_STORE is none")
    return lock_session(store, request, plan.session_start)


def warn_unanswered(done: FinishedRun, output: RunOutput) -> None:
    names = unanswered_targets(done.journal, *done.children.values())
    if names and not done.ending.exit_code:  # a run that failed says so itself
        output.say(f"{missing_approver(names)}; {HOW_TO_ANSWER}", "warn")


def missing_approver(names: Sequence[str]) -> str:
    """`refund needs approval, but there is no terminal and no --approve`."""
    return f"{join_words(names)} {'needs' if len(names) == 1 else 'need'} approval, but {NO_APPROVER}"
