"""Run cases live: to record them, or with the model or the tools live.

Rule 1  A recorded case is judged by a replay of its new cassette. The new cassette replaces the old one only if the
        case passes; otherwise it is kept until someone accepts it with `agentrun cassette accept`.
Rule 2  A case that cannot be recorded is not judged. Only the reason is reported.
Rule 3  A cassette that several cases play is recorded by its owner (`cassette_owner`). The others replay it.
Rule 4  A journal that differs from the accepted one is not a failure of a recording. It is shown, and accepted with
        `--update`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.cassette.file import cassette_exists, load_cassette
from agentrun.cassette.match_tiers import MatchTier
from agentrun.compiler.cases import cassette_owner
from agentrun.core.package import Package
from agentrun.engine.approvals import NoApprover, PresetApprover
from agentrun.engine.http_clients import HttpClients
from agentrun.engine.ports import Approver
from agentrun.engine.request import new_run_id
from agentrun.engine.run import FinishedRun
from agentrun.engine.world import World, wrap
from agentrun.errors import AgentrunError, CassetteError, RequestError
from agentrun.spec.problems import quote_text
from agentrun.spec.safe_text import plural, short_text
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.cases import Case
from agentrun.store.files import FileStore
from agentrun.store.staged_cassettes import accept_staged, staged_path
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.fault_injection import FaultInjection
from agentrun.testing.suite.replay import (
    CaseRunner,
    CaseRuns,
    CompiledAgent,
    CompiledAgents,
    NewCassette,
    case_requests,
    make_case_player,
    replay_case,
)
from agentrun.testing.suite.verdict import SNAPSHOT_ASSERTIONS, CaseFailure, CaseVerdict

if TYPE_CHECKING:
    from agentrun.engine.recording import CassetteRecording, RecordingResult
    from agentrun.engine.settings import Settings
    from agentrun.engine.worlds.live import LiveAxis


def _run_in_event_loop(work: Coroutine[Any, Any, Any]) -> Any:
    from agentrun.engine.event_loop import run_event_loop  # late: replays need no event loop

    return run_event_loop(work)


class LiveCallbacks(Struct, frozen=True, kw_only=True):
    approver: Callable[[Package, Case], Approver | None] = lambda package, case: _case_approver(case)
    """Returns who answers the approvals of a case. None: no one."""
    on_recording: Callable[[LocatedCase, str], None] = lambda located, text: None
    """Gets one line that describes the recording, or why there is none."""
    on_spent: Callable[[LocatedCase, RecordingResult], None] = lambda located, recorded: None
    """Gets each recording that cost money, even if it is not saved."""
    on_printed: Callable[[str, str], None] = lambda tool, text: None
    on_sink_line: Callable[[str], None] = lambda line: None
    on_settings: Callable[[Package, Settings], None] = lambda package, settings: None
    on_started: Callable[[World], None] = lambda world: None
    """Gets the world of each run when it starts, for example to cancel it."""
    run: Callable[[Coroutine[Any, Any, Any]], Any] = _run_in_event_loop


def recording_runner(how: str, live: LiveCallbacks) -> CaseRunner:
    """Record cases, then replay them. `how`: new (missing interactions), all, or from:N (keep those before N)."""

    def run_case(located: LocatedCase, agent: CompiledAgent) -> CaseRuns:
        owner = cassette_owner(located.case, located.file)
        if owner != located.case.name:
            live.on_recording(located, f"not recorded: it reuses the cassette of case {owner}")
            return replay_case(located, agent)
        try:
            recorded = live.run(_record(located, agent, how, live))
        except AgentrunError as error:
            return CaseRuns((), recording_error=error)
        live.on_spent(located, recorded)
        if not recorded.is_saved:
            return CaseRuns(recorded.runs, recording_error=_not_saved_error(recorded))
        project, path = agent.spec.project, agent.cassette_path(located)
        staged = load_cassette(staged_path(project, path), project.cassette_limit)
        summary = _recording_summary(recorded, path, agent)
        new = NewCassette(project=project, path=path, summary=summary, say=partial(live.on_recording, located))
        return replace(replay_case(located, agent, make_case_player(located, agent, staged)), new_cassette=new)

    return run_case


def partly_live_runner(axis: LiveAxis, live: LiveCallbacks, require: MatchTier) -> CaseRunner:
    """Run the tools or the model live, and replay the rest. Time is real time."""

    def run_case(located: LocatedCase, agent: CompiledAgent) -> CaseRuns:
        try:
            case_runs: CaseRuns = live.run(_run_partly_live(located, agent, axis, live, require))
        except AgentrunError as error:
            return CaseRuns((), error)
        return case_runs

    return run_case


async def _run_partly_live(
    located: LocatedCase, agent: CompiledAgent, axis: LiveAxis, live: LiveCallbacks, require: MatchTier
) -> CaseRuns:
    from agentrun.engine.run import conversation, run_in_world  # late: the import takes a second
    from agentrun.engine.worlds.live import mixed_world  # late: the import takes a second

    player = make_case_player(located, agent, require=require, whole=True)
    if axis == "tools":
        located = replace(located, case=located.case.without_approvals)
    injection = FaultInjection(located.case, player)
    package, project = agent.file.agent, agent.spec.project
    approver = live.approver(package, located.case) or NoApprover()
    runs: list[FinishedRun] = []
    async with HttpClients() as clients:
        for request in case_requests(located.case, agent):
            run, settings = new_run_id(), _read_settings(agent, live)
            options = {"printed": live.on_printed, "write": live.on_sink_line, "settings": settings, "clients": clients}
            async with mixed_world(package, project, run, player, axis, approver, **options) as world:
                live.on_started(world)
                wrapped, request = wrap(world, *injection.wrappers), replace(request, run=run)
                finished = await run_in_world(wrapped, request, conversation(runs))
            runs.append(replace(finished, tier=player.tier))
            if finished.ending.exit_code:
                break
    return CaseRuns(
        tuple(runs),
        untriggered_faults=injection.untriggered_faults(),
        is_live=True,
        metadata=player.cassette.metadata,
    )


async def _record(located: LocatedCase, agent: CompiledAgent, how: str, live: LiveCallbacks) -> RecordingResult:
    from agentrun.engine.recording import record_runs  # late: the import takes a second
    from agentrun.engine.worlds.live import live_world  # late: the import takes a second

    recording, clients = _recording(located, agent, how), HttpClients()
    case, package, project = located.case, agent.file.agent, agent.spec.project
    approver = live.approver(package, case) or NoApprover()
    store = FileStore(project, sync=_read_settings(agent, live).sync) if project.stores_runs else None
    is_partial = bool(case.stubs or case.faults) or case.turns is not UNSET
    stand_ins: Any = "case" if is_partial else "cassette" if recording.old_player is not None else UNSET

    @asynccontextmanager
    async def open_world(run: str) -> AsyncIterator[World]:
        settings = _read_settings(agent, live)
        async with live_world(
            package,
            project,
            run,
            journals=store,
            blobs=None if store is None else store.blobs(run),
            inbox=None if store is None else store.inbox(run),
            stand_ins=stand_ins,
            approver=approver,
            printed=live.on_printed,
            write=live.on_sink_line,
            settings=settings,
            clients=clients,
        ) as world:
            live.on_started(world)
            yield world

    requests, wrappers = list(case_requests(case, agent)), FaultInjection(case).wrappers
    with nullcontext() if store is None else store:
        async with clients:
            return await record_runs(
                recording, open_world, agent.file, requests, approver, store=store, wrappers=wrappers
            )


def _read_settings(agent: CompiledAgent, live: LiveCallbacks) -> Settings:
    from agentrun.engine.live_providers import live_settings  # late: the import takes a second

    settings = live_settings(agent.file.agent, agent.spec.project.root)
    live.on_settings(agent.file.agent, settings)
    return settings


def _case_approver(case: Case) -> Approver | None:
    return PresetApprover(case.approvals, f"case {case.name}") if case.approvals else None


def _recording(located: LocatedCase, agent: CompiledAgent, how: str) -> CassetteRecording:
    from agentrun.engine.recording import CassetteRecording  # late: the import takes a second

    case, project, path = located.case, agent.spec.project, agent.cassette_path(located)
    until = int(how.removeprefix("from:")) - 1 if how.startswith("from:") else None
    old_player = make_case_player(located, agent) if cassette_exists(path) and (how == "new" or until) else None
    count = len(old_player.cassette.interactions) if old_player else 0
    if until and until > count:
        reason = f"the cassette has {plural(count, 'interaction')}" if old_player else "there is no cassette"
        raise RequestError("input.rejected", f"cannot record {how}: {reason}", fields={"reason": "record"})
    is_new = not path.exists()
    return CassetteRecording(
        project, path, located.spec, case, how=how, old_player=old_player, is_new=is_new, is_staged=True
    )


def _not_saved_error(recorded: RecordingResult) -> AgentrunError:
    run = recorded.run
    if run.save_error is not None:
        return run.save_error
    fault = run.ending.fault
    more = f" ({fault.message})" if fault is not None else ""
    hint = None if fault is None else fault.hint
    return CassetteError("cassette.miss", f"{recorded.refusal}{more}", hint=hint)


def _recording_summary(recorded: RecordingResult, path: Path, agent: CompiledAgent) -> str:
    reused = f", {recorded.reused} of them kept" if recorded.reused else ""
    names = ", ".join(map(quote_text, recorded.unanswered))
    unanswered = f"; approval was needed for {names}, but there was no approver" if names else ""
    failed = recorded.failed_calls
    calls = f"; {plural(len(failed), 'tool call')} failed: {', '.join(map(short_text, failed))}" if failed else ""
    count = plural(recorded.interactions, "interaction")
    file = display_path(path, agent.spec.project.root)
    return f"recorded: {file} ({count}{reused}), spent {recorded.spent}{unanswered}{calls}"


def settle_new_cassette(located: LocatedCase, verdict: CaseVerdict, new: NewCassette) -> CaseVerdict:
    """Put a new cassette in place, or keep it staged if the case failed. Raises `storage.failed`."""
    failures = [each for each in verdict.failures if each.assertion not in (*SNAPSHOT_ASSERTIONS, "xfail")]
    if failures and verdict.is_bad:
        return _keep_staged(located, verdict, failures, new)
    accept_staged(new.project, new.path)
    notes = tuple(each for each in verdict.failures if each.assertion in SNAPSHOT_ASSERTIONS)
    if not notes or verdict.status != "failed":
        new.say(new.summary)
        return verdict
    new.say(f"{new.summary}; its journal differs from the accepted one")
    return replace(verdict, status="passed", failures=(), notes=notes, steps="")


def accept_new_cassette(located: LocatedCase) -> str:
    """Put the staged cassette of a case in place and return its path for messages.

    Raises `input.rejected` if there is none, and the errors of the spec or the staged cassette.
    """
    agent = CompiledAgents().for_case(located)
    project, cassette = agent.spec.project, agent.cassette_path(located)
    staged = staged_path(project, cassette)
    if not staged.is_file():
        message = f"there is no new cassette of {located.id} to accept"
        hint = f"record one: agentrun test {located.id} --record new"
        raise RequestError("input.rejected", message, hint=hint, fields={"reason": "case"})
    load_cassette(staged, project.cassette_limit)
    accept_staged(project, cassette)
    return display_path(cassette, project.root)


def _keep_staged(
    located: LocatedCase, verdict: CaseVerdict, failures: list[CaseFailure], new: NewCassette
) -> CaseVerdict:
    staged = display_path(staged_path(new.project, new.path), new.project.root)
    failed = ", ".join(dict.fromkeys(each.assertion for each in failures))
    file = display_path(new.path, new.project.root)
    new.say(f"the new cassette is in {staged} because {failed} failed; {file} did not change")
    note = CaseFailure(
        assertion="record",
        message=f"its cassette did not change; the new one is in {staged}",
        hint=f"to use the new one: agentrun cassette accept {quote(located.id)}",
    )
    return replace(verdict, failures=(*verdict.failures, note))
