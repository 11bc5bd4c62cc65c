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
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.cassette.file import cassette_exists, load_cassette
from agentrun.cassette.match import MatchTier
from agentrun.compiler.cases import cassette_owner
from agentrun.compiler.prompts import complete_params
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.engine.approvals import ApproverChain, NoApprover, PresetApprover
from agentrun.engine.ports import Approver
from agentrun.engine.request import Request, new_run_id
from agentrun.engine.run import FinishedRun
from agentrun.engine.world import World, wrap
from agentrun.errors import AgentrunError, CassetteError, RequestError
from agentrun.spec.problems import quote_text
from agentrun.spec.safe_text import plural, short_text
from agentrun.spec.source_files import display_path
from agentrun.store.cassettes import accept_staged, staged_path
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.fault_injection import FaultInjection
from agentrun.testing.suite.replay import (
    CaseRunner,
    CaseRuns,
    CompiledAgent,
    CompiledAgents,
    NewCassette,
    case_messages,
    make_case_player,
    replay_case,
)
from agentrun.testing.suite.verdict import CaseVerdict, Complaint

if TYPE_CHECKING:
    from agentrun.engine.recording import CassetteRecording, RecordingResult
    from agentrun.engine.worlds.mixed import LiveAxis


def _run_in_event_loop(work: Coroutine[Any, Any, Any]) -> Any:
    import asyncio  # late: a replay needs no event loop

    return asyncio.run(work)


class LiveCallbacks(Struct, frozen=True, kw_only=True):
    """What surrounds runs that are real."""

    approver: Callable[[Package], Approver | None] = lambda package: None
    """Who answers approvals that the case itself does not."""
    on_recording: Callable[[LocatedCase, str], None] = lambda found, text: None
    """Told in a line what was recorded, or why not."""
    on_spent: Callable[[LocatedCase, RecordingResult], None] = lambda found, recorded: None
    """Told of each recording that was paid for, also of one that is not saved."""
    on_printed: Callable[[str, str], None] = lambda tool, text: None
    """Told what a Python tool printed."""
    on_sink_line: Callable[[str], None] = lambda line: None
    """Given what a sink prints."""
    on_started: Callable[[World], None] = lambda world: None
    """Given the world of each run as soon as there is one: whoever may want to cancel it."""
    run: Callable[[Coroutine[Any, Any, Any]], Any] = _run_in_event_loop


NO_CALLBACKS = LiveCallbacks()


def replay_runner(require: MatchTier = "normalised") -> CaseRunner:
    """From the recording, where requests must fit at least so well."""

    def carry_out(found: LocatedCase, prepared: CompiledAgent) -> CaseRuns:
        try:
            return replay_case(found, prepared, make_case_player(found, prepared, require=require))
        except AgentrunError as error:
            return CaseRuns((), error)

    return carry_out


def recording_runner(how: str, live: LiveCallbacks = NO_CALLBACKS) -> CaseRunner:
    """Record, then replay. `how`: new (what the tape lacks), all, or from:N (what comes before it is kept)."""

    def carry_out(found: LocatedCase, prepared: CompiledAgent) -> CaseRuns:
        maker = cassette_owner(found.case, found.file)
        if maker != found.case.name:
            live.on_recording(found, f"not recorded: it plays the recording of {maker}")
            return replay_case(found, prepared)
        try:
            recorded = live.run(_record(found, prepared, how, live))
        except AgentrunError as error:
            return CaseRuns((), recording_error=error)
        live.on_spent(found, recorded)
        if not recorded.is_saved:
            return CaseRuns(recorded.runs, recording_error=_not_saved_error(recorded))
        return _replay_staged(found, prepared, recorded, live)

    return carry_out


def _replay_staged(
    found: LocatedCase, prepared: CompiledAgent, recorded: RecordingResult, live: LiveCallbacks
) -> CaseRuns:
    """Replay a new recording, which is not in place yet."""
    project, path = prepared.spec.project, prepared.cassette_path(found)
    staged = load_cassette(staged_path(project, path), project.cassette_limit)
    new = NewCassette(
        project=project,
        path=path,
        summary=_recording_summary(recorded, path, prepared),
        say=lambda text: live.on_recording(found, text),
    )
    return replace(replay_case(found, prepared, make_case_player(found, prepared, staged)), new_cassette=new)


def partly_live_runner(
    axis: LiveAxis, live: LiveCallbacks = NO_CALLBACKS, require: MatchTier = "normalised"
) -> CaseRunner:
    """The tools, or the model, for real; the rest from the recording. No time is played: it passes."""

    def carry_out(found: LocatedCase, prepared: CompiledAgent) -> CaseRuns:
        try:
            played: CaseRuns = live.run(_run_partly_live(found, prepared, axis, live, require))
        except AgentrunError as error:
            return CaseRuns((), error)
        return played

    return carry_out


async def _run_partly_live(
    found: LocatedCase, prepared: CompiledAgent, axis: LiveAxis, live: LiveCallbacks, require: MatchTier
) -> CaseRuns:
    from agentrun.engine.run import run_in_world  # late: it takes a second
    from agentrun.engine.worlds.mixed import mixed_world  # late: with it

    player = make_case_player(found, prepared, require=require, whole=True)
    if axis == "tools":
        found = replace(found, case=found.case.without_approvals)
    laid = FaultInjection(found.case, player)
    package, project = prepared.file.agent, prepared.spec.project
    approver = _approver(found, prepared, live)
    runs: list[FinishedRun] = []
    for request in _requests(found, prepared):
        run = new_run_id()
        given = {"printed": live.on_printed, "write": live.on_sink_line}
        async with mixed_world(package, project, run, player, axis, approver, **given) as world:
            live.on_started(world)
            before = [each.journal for each in runs]
            done = await run_in_world(wrap(world, *laid.wrappers), replace(request, run=run), before)
        runs.append(replace(done, tier=player.tier))
        if done.ending.exit_code:
            break
    return CaseRuns(tuple(runs), untriggered_faults=laid.untriggered_faults(), is_live=True)


async def _record(found: LocatedCase, prepared: CompiledAgent, how: str, live: LiveCallbacks) -> RecordingResult:
    from agentrun.engine.recording import record_runs  # late: it takes a second
    from agentrun.engine.worlds.live import live_world  # late: with it

    recording = _recording(found, prepared, how)
    approver = _approver(found, prepared, live)

    @asynccontextmanager
    async def open_world(run: str) -> AsyncIterator[World]:
        package, project = prepared.file.agent, prepared.spec.project
        async with live_world(
            package, project, run, approver=approver, printed=live.on_printed, write=live.on_sink_line
        ) as world:
            live.on_started(world)
            yield world

    requests, wrappers = list(_requests(found, prepared)), FaultInjection(found.case).wrappers
    return await record_runs(recording, open_world, prepared.file, requests, approver, wrappers=wrappers)


def _requests(found: LocatedCase, prepared: CompiledAgent) -> Iterator[Request]:
    """The runs of a case."""
    file = prepared.file
    for message in case_messages(found.case):
        yield Request(agent=file.agent.name, package=file, message=message, params=found.case.params)


def _approver(found: LocatedCase, prepared: CompiledAgent, live: LiveCallbacks) -> Approver:
    case, given = found.case, live.approver(prepared.file.agent)
    approvers: list[Approver] = [PresetApprover(case.approvals, f"case {case.name}")] if case.approvals else []
    return ApproverChain(*approvers, given or NoApprover())


def _recording(found: LocatedCase, prepared: CompiledAgent, how: str) -> CassetteRecording:
    from agentrun.engine.recording import CassetteRecording  # late: it takes a second

    case, project, path = found.case, prepared.spec.project, prepared.cassette_path(found)
    until = int(how.removeprefix("from:")) - 1 if how.startswith("from:") else None
    kept = make_case_player(found, prepared) if cassette_exists(path) and (how == "new" or until) else None
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
        old_player=kept,
        until=until,
        is_new=not path.exists(),
        is_staged=True,
    )


def _not_saved_error(recorded: RecordingResult) -> AgentrunError:
    """Why nothing was written."""
    run = recorded.run
    if run.save_error is not None:
        return run.save_error
    fault = run.ending.fault if isinstance(run.ending, Outcome) else None
    more = f" ({fault.message})" if fault is not None else ""
    hint = None if fault is None else fault.hint
    return CassetteError("cassette.miss", f"{recorded.refusal}{more}", hint=hint)


def _recording_summary(recorded: RecordingResult, path: Path, prepared: CompiledAgent) -> str:
    kept = f", {recorded.reused} of them kept" if recorded.reused else ""
    nobody = (
        f"; there was nobody to ask about {', '.join(map(quote_text, recorded.unanswered))}"
        if recorded.unanswered
        else ""
    )
    failed = recorded.failed_calls
    calls = f"; {plural(len(failed), 'tool call')} failed: {', '.join(map(short_text, failed))}" if failed else ""
    shown = display_path(path, prepared.spec.project.root)
    count = plural(recorded.interactions, "interaction")
    return f"recorded: {shown} ({count}{kept}), spent {recorded.spent}{nobody}{calls}"


# --- what becomes of a new recording once its case was judged -------------------------------------------------


SNAPSHOT_ASSERTIONS = ("journal-snapshot", "not-journal-snapshot")


def settle_new_cassette(found: LocatedCase, verdict: CaseVerdict, new: NewCassette) -> CaseVerdict:
    """Put a new recording in place, or keep it beside. Raises `storage.failed`."""
    wrong = [each for each in verdict.complaints if each.claim not in (*SNAPSHOT_ASSERTIONS, "xfail")]
    if wrong and verdict.is_bad:
        return _keep_staged(found, verdict, wrong, new)
    accept_staged(new.project, new.path)
    notes = tuple(each for each in verdict.complaints if each.claim in SNAPSHOT_ASSERTIONS)
    if not notes or verdict.status != "failed":
        new.say(new.summary)
        return verdict
    new.say(f"{new.summary}; its journal is not the accepted one")
    return replace(verdict, status="passed", complaints=(), notes=notes, story="")


def accept_new_cassette(found: LocatedCase) -> str:
    """Put the staged cassette of a case in place and return the path of the cassette, as messages show it.

    Raises `input.rejected` if there is none, and what is wrong with the spec or the staged cassette.
    """
    prepared = CompiledAgents().for_case(found)
    project, cassette = prepared.spec.project, prepared.cassette_path(found)
    staged = staged_path(project, cassette)
    if not staged.is_file():
        message = f"there is no new recording of {found.id}"
        hint = f"record one: agentrun test {found.id} --record new"
        raise RequestError("input.rejected", message, hint=hint, fields={"reason": "case"})
    load_cassette(staged, project.cassette_limit)
    accept_staged(project, cassette)
    return display_path(cassette, project.root)


def _keep_staged(found: LocatedCase, verdict: CaseVerdict, wrong: list[Complaint], new: NewCassette) -> CaseVerdict:
    kept = display_path(staged_path(new.project, new.path), new.project.root)
    failed = ", ".join(dict.fromkeys(each.claim for each in wrong))
    new.say(f"kept in {kept}, because of {failed}; {display_path(new.path, new.project.root)} is as it was")
    note = Complaint(
        claim="record",
        message=f"its cassette is as it was; the new recording is kept in {kept}",
        hint=f"to use it all the same: agentrun cassette accept {quote(found.id)}",
    )
    return replace(verdict, complaints=(*verdict.complaints, note))
