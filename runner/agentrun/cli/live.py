"""Runs in real time: live, or with the model or the tools from a cassette. Recorded runs open their world here too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from agentrun.cli.interrupt import InterruptHandler
from agentrun.cli.journal_file import FileJournals, streams_journal
from agentrun.cli.plan import RunPlan
from agentrun.cli.recorded_case import make_fault_injection, make_player, warn_unused_faults
from agentrun.cli.run_output import RunOutput
from agentrun.cli.stdout_guard import guard_stdout
from agentrun.compiler.package_file import PackageFile
from agentrun.engine.approvals import HOW_TO_ANSWER, NoApprover, unanswered_targets
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import Approver
from agentrun.engine.request import Request, new_run_id
from agentrun.engine.run import FinishedRun, run_in_world
from agentrun.engine.world import World, wrap
from agentrun.engine.worlds.live import live_world
from agentrun.engine.worlds.mixed import mixed_world
from agentrun.spec.safe_text import join_words
from agentrun.store.sessions import StoredSession, open_session

if TYPE_CHECKING:
    from agentrun.cassette.player import Player

NO_APPROVER = "there is no terminal and no --approve"


def run_live(plan: RunPlan, request: Request, approver: Approver | None, output: RunOutput) -> FinishedRun:
    player = None if plan.mode == "live" else make_player(plan, request)
    faults, interrupts = make_fault_injection(plan), InterruptHandler(output)
    wrappers = () if faults is None else faults.wrappers

    async def run(session: StoredSession | None) -> FinishedRun:
        name = new_run_id()
        async with open_real_world(plan, request, name, approver, output, player=player, session=session) as world:
            interrupts.set_world(world)
            before = () if session is None else session.runs
            return await run_in_world(wrap(world, *wrappers), replace(request, run=name), before, output.begin)

    with guard_stdout(output.show_printed), _open_session(plan, request) as session:
        done = interrupts.run(run(session))
    warn_unused_faults(faults, output)
    names = unanswered_targets(done.journal, *done.children.values())
    if names and plan.mode != "live-model" and not done.ending.exit_code:  # a run that failed says so itself
        output.say(f"{missing_approver(names)}; {HOW_TO_ANSWER}", "warn")
    return done if player is None else replace(done, tier=player.tier)


@asynccontextmanager
async def open_real_world(
    plan: RunPlan,
    request: Request,
    run: str,
    approver: Approver | None,
    output: RunOutput,
    *,
    player: Player | None = None,
    session: StoredSession | None = None,
) -> AsyncIterator[World]:
    """Open the world of a run in real time. `player`: plays the model or the tools, as the plan says."""
    package, project = cast(PackageFile, request.package).agent, plan.spec.project
    options: dict[str, Any] = {"printed": output.show_printed, "write": output.write, "listen": output.listen}
    options["settings"] = plan.settings
    with _open_journals(plan, request, run, session) as journals:
        options |= {"journals": journals, "approver": approver or NoApprover()}
        if player is None:
            opened = live_world(package, project, run, **options)
        else:
            axis: Any = plan.mode.removeprefix("live-")
            opened = mixed_world(package, project, run, player, axis, **options)
        async with opened as world:
            yield world


def _open_journals(
    plan: RunPlan, request: Request, run: str, session: StoredSession | None
) -> AbstractContextManager[MemoryJournals]:
    if session is not None:
        return closing(FileJournals(run, session.next, plan.spec.project.data_tree))
    if plan.journal is None or not streams_journal(plan, request):
        return nullcontext(MemoryJournals())
    return closing(FileJournals(run, plan.journal.resolve(), None))


def _open_session(plan: RunPlan, request: Request) -> AbstractContextManager[StoredSession | None]:
    return nullcontext() if request.session is None else open_session(plan.spec.project, request.session)


def missing_approver(names: Sequence[str]) -> str:
    """`refund needs approval, but there is no terminal and no --approve`."""
    return f"{join_words(names)} {'needs' if len(names) == 1 else 'need'} approval, but {NO_APPROVER}"
