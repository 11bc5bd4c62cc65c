"""Runs in real time: live, or with the model or the tools from a cassette. A recording opens its world here too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from agentrun.cli.interrupt import Interrupts
from agentrun.cli.journal_file import clear_journal, writes_journal_as_it_goes
from agentrun.cli.own_output import keep_output
from agentrun.cli.plan import Plan
from agentrun.cli.recorded import faults_of, player_of, say_unmet
from agentrun.cli.show import clean
from agentrun.cli.teller import Teller
from agentrun.compiler.package_file import PackageFile
from agentrun.engine.approvals import TO_ANSWER, Nobody, unasked
from agentrun.engine.kept import KeptJournals
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import Approver
from agentrun.engine.request import Request, new_run_id
from agentrun.engine.run import FinishedRun, run_in
from agentrun.engine.world import World, wrap
from agentrun.engine.worlds.live import live_world
from agentrun.engine.worlds.mixed import mixed_world
from agentrun.store.sessions import StoredSession, open_session

if TYPE_CHECKING:
    from agentrun.cassette.player import Player


def run_live(plan: Plan, request: Request, approver: Approver | None, teller: Teller) -> FinishedRun:
    """Run in real time."""
    player = None if plan.mode == "live" else player_of(plan, request)
    faults, interrupts = faults_of(plan), Interrupts(teller)
    wrappers = () if faults is None else faults.wrappers

    async def run(session: StoredSession | None) -> FinishedRun:
        name = new_run_id()
        async with real_world(plan, request, name, approver, teller, player=player, session=session) as world:
            interrupts.hold(world)
            before = () if session is None else session.runs
            return await run_in(wrap(world, *wrappers), replace(request, run=name), before)

    with own_output(teller), _session(plan, request) as session:
        done = interrupts.run(run(session))
    say_unmet(faults, teller)
    if plan.mode != "live-model":
        _say_unasked(done, teller)
    return done if player is None else replace(done, tier=player.tier)


@asynccontextmanager
async def real_world(
    plan: Plan,
    request: Request,
    run: str,
    approver: Approver | None,
    teller: Teller,
    *,
    player: Player | None = None,
    session: StoredSession | None = None,
) -> AsyncIterator[World]:
    """The world of a run in real time. `player`: plays the model or the tools, as the plan says."""
    package, project = cast(PackageFile, request.package).agent, plan.spec.project
    given: dict[str, Any] = {"printed": teller.printed, "write": teller.write, "listen": teller.listen}
    with _journals(plan, request, run, session) as journals:
        given |= {"journals": journals, "approver": approver or Nobody()}
        if player is None:
            opened = live_world(package, project, run, **given)
        else:
            axis: Any = plan.mode.removeprefix("live-")
            opened = mixed_world(package, project, run, player, axis, **given)
        async with opened as world:
            yield world


@contextmanager
def _journals(plan: Plan, request: Request, run: str, session: StoredSession | None) -> Iterator[MemoryJournals]:
    """Where the journals of a run are written to, as it goes."""
    path: Path | None = None
    if session is not None:
        path = session.next
    elif plan.journal is not None and writes_journal_as_it_goes(plan, request):
        path = plan.journal.resolve()
        clear_journal(path)
    if path is None:
        yield MemoryJournals()
        return
    journals = KeptJournals(run, path, None if session is None else plan.spec.project.data_tree)
    try:
        yield journals
    finally:
        journals.close()


@contextmanager
def _session(plan: Plan, request: Request) -> Iterator[StoredSession | None]:
    if request.session is None:
        yield None
        return
    with open_session(plan.spec.project, request.session) as session:
        yield session


@contextmanager
def own_output(teller: Teller) -> Iterator[None]:
    """Standard output for the answer alone, whatever tools write to it."""
    end = keep_output(lambda program, text: teller.printed(program, clean(text)))
    try:
        yield
    finally:
        end()


def _say_unasked(done: FinishedRun, teller: Teller) -> None:
    """A run that went on without an answer does not say how to give one; one that ended over it does."""
    if not done.ended.exit_code and (names := unasked(done.journal, *done.children.values())):
        teller.say(f"there was nobody to ask about {', '.join(names)}: {TO_ANSWER}", "warn")
