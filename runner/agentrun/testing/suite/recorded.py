"""Cases that are run for real: to record them, or with the model or the tools live. Each gives what `evaluate` takes.

Rule 1  A case that is recorded is judged by the replay of its new recording, which takes the place of its cassette
        only if the case passes.
Rule 2  A case that was to be recorded and is not is not judged: only why is told.
Rule 3  A recording that several cases play is made by the case that has its name, else by the first of its file that
        plays it. The others replay it.
Rule 4  Stubs and faults of a case are in force; what they give never gets onto a tape.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.cassette.file import cassette_exists, load
from agentrun.cassette.match import Tier
from agentrun.compiler.cases import maker_of
from agentrun.compiler.prompts import complete_params
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.engine.approvals import FirstOf, Given, Nobody
from agentrun.engine.ports import Approver
from agentrun.engine.request import Request, new_run_id
from agentrun.engine.run import FinishedRun
from agentrun.engine.world import World, wrap
from agentrun.errors import AgentrunError, CassetteError, RequestError
from agentrun.spec.files import shown_path
from agentrun.spec.problems import quoted
from agentrun.spec.text import plural, short
from agentrun.store.staged import staged_path
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.overlay.laid_over import LaidOver
from agentrun.testing.suite.played import NewCassette, Played, messages, play, player_of
from agentrun.testing.suite.prepared import Prepared

if TYPE_CHECKING:
    from agentrun.engine.recording import CassetteRecording, Recorded
    from agentrun.engine.worlds.mixed import Axis

Play: TypeAlias = Callable[[Found, Prepared], Played]


def _in_a_loop(work: Coroutine[Any, Any, Any]) -> Any:
    import asyncio  # late: a replay needs no event loop

    return asyncio.run(work)


class Live(Struct, frozen=True, kw_only=True):
    """What surrounds runs that are real."""

    approver: Callable[[Package], Approver | None] = lambda package: None
    """Who answers approvals that the case itself does not."""
    said: Callable[[Found, str], None] = lambda found, text: None
    """Told in a line what was recorded, or why not."""
    spent: Callable[[Found, Recorded], None] = lambda found, recorded: None
    """Told of each recording that was paid for, also of one that is not saved."""
    printed: Callable[[str, str], None] = lambda tool, text: None
    """Told what a Python tool printed."""
    write: Callable[[str], None] = lambda line: None
    """Given what a sink prints."""
    hold: Callable[[World], None] = lambda world: None
    """Given the world of each run as soon as there is one: whoever may want to cancel it."""
    run: Callable[[Coroutine[Any, Any, Any]], Any] = _in_a_loop


ALONE = Live()


def replaying(require: Tier = "normalised") -> Play:
    """From the recording, where requests must fit at least so well."""

    def carry_out(found: Found, prepared: Prepared) -> Played:
        try:
            return play(found, prepared, player_of(found, prepared, require=require))
        except AgentrunError as error:
            return Played((), error)

    return carry_out


def recording(how: str, live: Live = ALONE) -> Play:
    """Record, then replay. `how`: new (what the tape lacks), all, or from:N (what comes before it is kept)."""

    def carry_out(found: Found, prepared: Prepared) -> Played:
        maker = maker_of(found.case, found.file)
        if maker != found.case.name:
            live.said(found, f"not recorded: it plays the recording of {maker}")
            return play(found, prepared)
        try:
            recorded = live.run(_recorded(found, prepared, how, live))
        except AgentrunError as error:
            return Played((), unrecorded=error)
        live.spent(found, recorded)
        if not recorded.is_saved:
            return Played(recorded.runs, unrecorded=_why_not(recorded))
        return _replay_staged(found, prepared, recorded, live)

    return carry_out


def _replay_staged(found: Found, prepared: Prepared, recorded: Recorded, live: Live) -> Played:
    """Replay a new recording, which is not in place yet."""
    project, path = prepared.spec.project, prepared.cassette(found)
    staged = load(staged_path(project, path), project.cassette_limit)
    new = NewCassette(
        project=project,
        path=path,
        summary=_what(recorded, path, prepared),
        say=lambda text: live.said(found, text),
    )
    return replace(play(found, prepared, player_of(found, prepared, staged)), new_cassette=new)


def one_axis_live(axis: Axis, live: Live = ALONE, require: Tier = "normalised") -> Play:
    """The tools, or the model, for real; the rest from the recording. No time is played: it passes."""

    def carry_out(found: Found, prepared: Prepared) -> Played:
        try:
            played: Played = live.run(_half(found, prepared, axis, live, require))
        except AgentrunError as error:
            return Played((), error)
        return played

    return carry_out


async def _half(found: Found, prepared: Prepared, axis: Axis, live: Live, require: Tier) -> Played:
    from agentrun.engine.run import run_in  # late: it takes a second
    from agentrun.engine.worlds.mixed import mixed_world  # late: with it

    player = player_of(found, prepared, require=require, whole=True)
    if axis == "tools":
        found = replace(found, case=found.case.without_approvals)
    laid = LaidOver(found.case, player)
    package, project = prepared.file.agent, prepared.spec.project
    approver = _approver(found, prepared, live)
    runs: list[FinishedRun] = []
    for request in _requests(found, prepared):
        run = new_run_id()
        given = {"printed": live.printed, "write": live.write}
        async with mixed_world(package, project, run, player, axis, approver, **given) as world:
            live.hold(world)
            before = [each.journal for each in runs]
            done = await run_in(wrap(world, *laid.wrappers), replace(request, run=run), before)
        runs.append(replace(done, tier=player.tier))
        if done.ended.exit_code:
            break
    return Played(tuple(runs), unmet=laid.unmet(), is_live=True)


async def _recorded(found: Found, prepared: Prepared, how: str, live: Live) -> Recorded:
    from agentrun.engine.recording import record_runs  # late: it takes a second
    from agentrun.engine.worlds.live import live_world  # late: with it

    recording = _recording(found, prepared, how)
    approver = _approver(found, prepared, live)

    @asynccontextmanager
    async def open_world(run: str) -> AsyncIterator[World]:
        package, project = prepared.file.agent, prepared.spec.project
        async with live_world(
            package, project, run, approver=approver, printed=live.printed, write=live.write
        ) as world:
            live.hold(world)
            yield world

    requests, wrappers = list(_requests(found, prepared)), LaidOver(found.case).wrappers
    return await record_runs(recording, open_world, prepared.file, requests, approver, wrappers=wrappers)


def _requests(found: Found, prepared: Prepared) -> Iterator[Request]:
    """The runs of a case."""
    file = prepared.file
    for message in messages(found.case):
        yield Request(agent=file.agent.name, package=file, message=message, params=found.case.params)


def _approver(found: Found, prepared: Prepared, live: Live) -> Approver:
    case, given = found.case, live.approver(prepared.file.agent)
    approvers: list[Approver] = [Given(case.approvals, f"case {case.name}")] if case.approvals else []
    return FirstOf(*approvers, given or Nobody())


def _recording(found: Found, prepared: Prepared, how: str) -> CassetteRecording:
    from agentrun.engine.recording import CassetteRecording  # late: it takes a second

    case, project, path = found.case, prepared.spec.project, prepared.cassette(found)
    until = int(how.removeprefix("from:")) - 1 if how.startswith("from:") else None
    kept = player_of(found, prepared) if cassette_exists(path) and (how == "new" or until) else None
    if until and (kept is None or until > len(kept.cassette.interactions)):
        there = (
            f"the recording has {plural(len(kept.cassette.interactions), 'interaction')}" if kept else "there is none"
        )
        raise RequestError("input.rejected", f"nothing to keep before {how}: {there}", fields={"reason": "record"})
    return CassetteRecording(
        project,
        path,
        {
            "spec": found.spec.relative_to(project.root).as_posix(),
            "case": case.name,
            **({} if case.profile is UNSET else {"profile": case.profile}),
            "params": complete_params(prepared.file.agent, case.params),
        },
        kept=kept,
        until=until,
        is_new=not path.exists(),
        is_staged=True,
    )


def _why_not(recorded: Recorded) -> AgentrunError:
    """Why nothing was written."""
    run = recorded.run
    if run.unsaved is not None:
        return run.unsaved
    fault = run.ended.fault if isinstance(run.ended, Outcome) else None
    more = f" ({fault.message})" if fault is not None else ""
    hint = None if fault is None else fault.hint
    return CassetteError("cassette.miss", f"{recorded.refused}{more}", hint=hint)


def _what(recorded: Recorded, path: Path, prepared: Prepared) -> str:
    kept = f", {recorded.kept} of them kept" if recorded.kept else ""
    nobody = f"; there was nobody to ask about {', '.join(map(quoted, recorded.unasked))}" if recorded.unasked else ""
    failed = recorded.failed_calls
    calls = f"; {plural(len(failed), 'tool call')} failed: {', '.join(map(short, failed))}" if failed else ""
    shown = shown_path(path, prepared.spec.project.root)
    count = plural(recorded.interactions, "interaction")
    return f"recorded: {shown} ({count}{kept}), spent {recorded.spent}{nobody}{calls}"
