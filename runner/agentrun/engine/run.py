"""Run one request to its end: request → world → begin → drive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.cassette.match_tiers import MatchTier
from agentrun.cassette.player import Player, unused_error
from agentrun.cassette.redaction import RunRedaction
from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import CancelRequested, ChildStarted, Record, RunStarted
from agentrun.core.fault import fault_of
from agentrun.core.outcome import Outcome, interrupted_outcome, outcome_of
from agentrun.core.trajectory import RunTrail
from agentrun.engine.begin import (
    admit,
    begin,
    check_resume,
    check_start,
    find_package,
    jitter_seed,
    keep_package,
    name_run_in_errors,
)
from agentrun.engine.clock import StepClock
from agentrun.engine.driver import RunLog, drive_with_children, open_run_log
from agentrun.engine.memory import Journals
from agentrun.engine.ports import Approver
from agentrun.engine.request import Attachment, Request
from agentrun.engine.sessions import Session, restore_session
from agentrun.engine.world import Listener, World, Wrapper
from agentrun.engine.worlds.replay import replay_world
from agentrun.errors import AgentrunError, CassetteError
from agentrun.journal.canonical import canonical, plain_facts


class FinishedRun(Struct, frozen=True):
    ending: Outcome
    journal: tuple[Record, ...]
    children: dict[str, tuple[Record, ...]]
    redaction: RunRedaction
    tier: MatchTier | None = None
    """The least exact match of a request with the cassette. Null: nothing was replayed."""
    unused_error: CassetteError | None = None
    """Interactions of the cassette were not requested. If the run failed, that is a consequence of the failure."""
    save_error: AgentrunError | None = None

    @property
    def error(self) -> AgentrunError | None:
        """The error of a run that itself succeeded."""
        return None if self.ending.exit_code else self.save_error or self.unused_error

    @property
    def outcome(self) -> Outcome:
        assert self.ending.is_finished, "the run is not finished"
        return self.ending

    @property
    def exit_code(self) -> int:
        return self.ending.exit_code or (self.error.exit_code if self.error else 0)

    def canonical(self) -> str:
        return canonical(self.journal, self.children, self._clean)

    def canonical_facts(self) -> Iterator[dict[str, Any]]:
        """The canonical form as plain data."""
        return plain_facts(self.journal, self.children, self._clean)

    @property
    def _clean(self) -> Callable[[str], str] | None:
        return self.redaction.text if self.redaction.is_active else None


Announce: TypeAlias = Callable[[], Awaitable[None]]
"""Called when only the import of the project's code can still refuse the run, and before it exists. It may raise to
refuse the run itself."""


async def announce_nothing() -> None:
    return


async def run_in_world(
    world: World,
    request: Request,
    session: Session | None = None,
    announce: Announce = announce_nothing,
) -> FinishedRun:
    """`session`: the earlier runs of the same session or conversation. Raises the errors of `find_package`,
    `check_start` and `World.prepare` before the run exists. Later failures are in the outcome."""
    with name_run_in_errors(world.run):
        package = find_package({}, request)
    return await _run_package(world, package, request, session, announce)


async def _run_package(
    world: World, package: PackageFile, request: Request, session: Session | None, announce: Announce
) -> FinishedRun:
    log = await start_in_world(world, package, request, session, announce)
    return finished_run(world, package, await _drive(world, package, log))


async def start_in_world(
    world: World,
    package: PackageFile,
    request: Request,
    session: Session | None = None,
    announce: Announce = announce_nothing,
) -> RunLog:
    """Write the first record of a run. The errors are those of `run_in_world`."""
    request = replace(request, package=package)
    with name_run_in_errors(world.run):
        started = check_start(world, package.agent, request, session)
        await announce()
        await world.prepare()
        return begin(world, started, package)


async def resume_in_world(world: World, package: PackageFile, announce: Announce = announce_nothing) -> FinishedRun:
    """Continue a run of another process. Raises the errors of `check_resume` and `World.prepare`, `run.not_found`,
    `session.busy` and `journal.*` before anything is done. A run that is finished has its outcome."""
    log = await take_over_in_world(world, package, announce)
    ending = await _drive(world, package, log) if log.state.stopped is None else outcome_of(log.state)
    return finished_run(world, package, ending)


async def take_over_in_world(world: World, package: PackageFile, announce: Announce = announce_nothing) -> RunLog:
    """Become the owner of a run, unless it is finished. The errors are those of `resume_in_world`."""
    with name_run_in_errors(world.run):
        log = open_run_log(world)
        if log.state.stopped is None:
            check_resume(world, package, log.state)
            await announce()
            await world.prepare()
            keep_package(world, package)
            log.take_over(package.fingerprint)
        return log


async def drive_or_cancel(world: World, package: PackageFile, log: RunLog) -> Outcome:
    """Drive a run that exists: whatever happens, there is an outcome. If the task of the caller is cancelled, the run
    is cancelled, and its journal says so."""
    try:
        if isinstance(world.clock, StepClock):
            outcome = await _drive(world, package, log)
        else:
            outcome = await _drive_in_task(world, package, log)
    except AgentrunError as error:  # the journal failed, so that the fault is not in it
        outcome = interrupted_outcome(log.state, fault_of(error))
    return outcome.with_trail(RunTrail(world.run, world.journals.records))


async def _drive_in_task(world: World, package: PackageFile, log: RunLog) -> Outcome:
    import asyncio  # late: a step clock needs no event loop

    task = asyncio.get_running_loop().create_task(_drive(world, package, log), name=world.run)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:  # end the run while its journal can still be written
        world.crews.post(world.run, CancelRequested("host"))
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
        raise


async def _drive(world: World, package: PackageFile, log: RunLog) -> Outcome:
    if world.inbox is None:
        return await drive_with_children(world, package.agent, log)
    from agentrun.engine.inbox import drive_and_take_messages  # late: only a stored run needs it

    return await drive_and_take_messages(world, world.inbox, package, log)


def finished_run(world: World, package: PackageFile, ending: Outcome) -> FinishedRun:
    return FinishedRun(
        ending=ending,
        journal=tuple(world.journals.records(world.run)),
        children=dict(child_journals(world.journals, world.run)),
        redaction=RunRedaction(package.agent.replay.redact, world.redactor),
    )


def conversation(runs: Iterable[FinishedRun]) -> Session:
    """The runs of a conversation that has no name."""
    return restore_session(None, {journal_run_id(each.journal): each.journal for each in runs})


def replay_run(
    request: Request,
    player: Player,
    *,
    approver: Approver | None = None,
    listen: Listener = lambda run, news: None,
    after: Sequence[FinishedRun] = (),
    start: int | None = None,
    step: int | None = None,
    wrappers: tuple[Wrapper, ...] = (),
    announce: Announce = announce_nothing,
) -> FinishedRun:
    """Raises the errors of `run_in_world`. `approver`: its answers replace the recorded ones.
    `after`: earlier runs of the conversation, with the same player. `start`: of the clock, in milliseconds since 1970;
    None: as recorded. `step`: the milliseconds of each exchange; None: as recorded. `wrappers`: wrap the cassette."""
    with name_run_in_errors(_replay_run_id(request, request.params, request.message, player, after)):
        file = find_package({}, request)
        package = file.agent
        admitted = admit(package, request.message, request.params)
    clock = StepClock(player.cassette.recorded_at if start is None else start)
    clock.move_to(after[-1].journal[-1].at if after else clock.start)
    request = replace(request, package=file, seed=jitter_seed(package, admitted))
    request = replace(request, run=_replay_run_id(request, admitted.params, admitted.message, player, after))
    world = replay_world(
        package, request.run or "", player, clock, step=step, approver=approver, wrappers=wrappers, listen=listen
    )
    done = clock.run(_run_package(world, file, request, conversation(after), announce))
    unused = player.unused()
    return replace(
        done,
        redaction=player.redaction,
        tier=player.tier,
        unused_error=unused_error(unused, player.cassette.interactions) if unused else None,
    )


def _replay_run_id(
    request: Request, params: dict[str, Any], message: str | None, player: Player, after: Sequence[FinishedRun]
) -> str:
    """The run id: the same for the same package, input, cassette and earlier runs."""
    package = request.package.fingerprint if isinstance(request.package, PackageFile) else request.package
    blobs = [(each.part if isinstance(each, Attachment) else each).blob for each in request.attachments]
    names = [*blobs, *(journal_run_id(each.journal) for each in after)]
    parts = [package, params, message, player.cassette.hash, *names]
    return f"replay-{text_hash(sorted_json(parts))[7:31]}"


def child_journals(journals: Journals, run: str) -> Iterator[tuple[str, tuple[Record, ...]]]:
    started = (record.fact.run for record in journals.records(run) if isinstance(record.fact, ChildStarted))
    for child in dict.fromkeys(started):
        if child in journals:
            yield child, tuple(journals.records(child))
            yield from child_journals(journals, child)


def journal_run_id(journal: Sequence[Record]) -> str:
    started = journal[0].fact
    assert isinstance(started, RunStarted), "a journal begins with run_started"
    return started.run
