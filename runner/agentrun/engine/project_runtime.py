"""The runs of a project in its store: what the commands do, in one Python program.

    async with agentrun.open("shop") as runtime:
        handle = await runtime.start("shop/specs/support.yaml", "Where is order 1042?", session="ada")
        outcome = await handle.wait()
        for waiting in runtime.approvals():
            runtime.answer(waiting.run, waiting.question, "approved", by="Ada")
        for summary in runtime.runs(due=True):
            await runtime.resume(summary.run)

Rule 1  Every run is in the store of the project, and can be continued by another process or a command, and the other
        way round.
Rule 2  When the runtime closes, active runs are parked: they can be resumed.
Rule 3  All runs of the runtime share one connection pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec import UNSET

from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import ApprovalAnswer
from agentrun.core.fault import fault_of
from agentrun.core.outcome import Outcome, Question, interrupted_outcome
from agentrun.engine.api import PackageSource, PreparedRun, RunArguments, load_package_source, prepare_run
from agentrun.engine.argument_checks import check_author, check_run_id, check_type
from agentrun.engine.begin import find_package, name_run_in_errors
from agentrun.engine.due import is_due
from agentrun.engine.event_bus import EventBus, Subscription
from agentrun.engine.events import ALL_EVENTS, Cursor, family_scope
from agentrun.engine.handle import PARK_GRACE_MS, RunHandle
from agentrun.engine.host_ports import (
    PortOptions,
    check_port_options,
    make_ports,
    open_host_world,
    refuse_unknown_keywords,
)
from agentrun.engine.http_clients import HttpClients
from agentrun.engine.memory import stored_package
from agentrun.engine.request import Snapshot, wrong_state_error
from agentrun.engine.run import start_in_world, take_over_in_world
from agentrun.engine.run_store import lock_session, open_run_store
from agentrun.engine.runtime import Runtime
from agentrun.engine.sessions import Session
from agentrun.engine.settings import load_settings
from agentrun.engine.waiting_questions import WaitingQuestion, list_waiting_questions
from agentrun.errors import AgentrunError, RequestError
from agentrun.spec.project import find_project
from agentrun.store.files import FileStore
from agentrun.store.index import RunFilter, RunIndex
from agentrun.store.owner import refuse_untrusted
from agentrun.store.run_ids import root_run
from agentrun.store.run_summary import RESUMABLE_STATUSES, RunSummary, StoredStatus

if TYPE_CHECKING:
    from agentrun.engine.world import World


class ProjectRuntime:
    """Starts, continues, lists and answers the runs of a project. Use it with `async with`."""

    def __init__(self, project: str | PathLike[str] = ".", /, **options: Unpack[PortOptions]) -> None:
        """`project`: its folder. `options`: the model, tools, hooks, sinks, approver and `env_file` of all runs; a run
        can replace them."""
        check_type("project", project, (str, PathLike), "a path")
        refuse_unknown_keywords(options, PortOptions.__annotations__)
        check_port_options(options)
        self.project = find_project(Path(project) / "package.json")
        if not self.project.stores_runs:
            raise ValueError("a runtime needs a store, but AGENTRUN_STORE is none")
        self._options: PortOptions = {**options, "project": self.project.root}
        self._opened = AsyncExitStack()
        self._worlds: dict[str, AsyncExitStack] = {}
        self._handles: dict[str, RunHandle] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._store: FileStore
        self._runtime: Runtime
        self._clients: HttpClients

    async def __aenter__(self) -> Self:
        refuse_untrusted(self.project)
        self._store = self._opened.enter_context(open_run_store(self.project, load_settings().sync))
        self._clients = await self._opened.enter_async_context(HttpClients())
        self._events = EventBus()
        self._runtime = await self._opened.enter_async_context(
            Runtime.in_memory(journals=self._store, events=self._events)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._runtime.park(PARK_GRACE_MS)
        for handle in self._handles.values():
            if handle.is_active:
                with suppress(Exception):  # the store has it
                    await handle.wait()
        for watcher in tuple(self._watchers):
            await asyncio.wait((watcher,))
        await self._runtime.close()
        for stack in self._worlds.values():
            await stack.aclose()
        await self._opened.aclose()

    # --- starting --------------------------------------------------------------------------------------------------

    async def start(
        self,
        package: PackageSource,
        message: str | None = None,
        *,
        output: Any = None,
        **arguments: Unpack[RunArguments],
    ) -> RunHandle:
        """Start a run and return its handle. The arguments are those of `run`, without those for stores and cassettes.
        If it cannot start, this raises and nothing is stored."""
        return await self._start(self._prepare(package, message, output, arguments))

    async def run(
        self,
        package: PackageSource,
        message: str | None = None,
        *,
        output: Any = None,
        **arguments: Unpack[RunArguments],
    ) -> Outcome:
        """Run an agent and return its outcome. The arguments are those of `start`. If the task is cancelled, the run
        is cancelled, and its journal says so."""
        prepared = self._prepare(package, message, output, arguments)
        handle = await self._start(prepared)
        try:
            return prepared.convert(await handle.wait())
        except AgentrunError as error:  # the journal failed, so that the fault is not in it
            return interrupted_outcome(handle.state, fault_of(error))
        except asyncio.CancelledError:
            handle.cancel("host")
            with suppress(Exception):
                await handle.wait()
            raise

    def _prepare(
        self, package: PackageSource, message: str | None, output: Any, arguments: RunArguments
    ) -> PreparedRun:
        for name in ("store", "journals", "mode", "cassette", "case", "clock", "project"):
            if name in arguments:
                raise ValueError(f"`{name}` is not an argument here: the runs of a runtime are live, in its store")
        given: RunArguments = {**self._options, **arguments}
        return prepare_run(package, message, output, given)

    async def _start(self, prepared: PreparedRun) -> RunHandle:
        request, arguments = prepared.request, prepared.arguments
        with name_run_in_errors(prepared.run_id):
            self._refuse_busy(request.session)
            package = find_package({}, request)
            ports = make_ports(package.agent, arguments)
            session = lock_session(self._store, request, arguments.get("session_start", "continue")) or Session()
            try:
                world = await self._open_world(package, prepared.run_id, ports, arguments)
                log = await start_in_world(world, package, request, session)
            except BaseException:
                await self._close_world(prepared.run_id)
                if request.session is not None:
                    self._store.sessions.unlock_idle(request.session)
                raise
        session.add(log.state.started)
        return self._watch(self._runtime.register(package, log, world, session))

    def _refuse_busy(self, session: str | None) -> None:
        for handle in self._handles.values():
            if session is not None and handle.session.name == session and handle.is_active:
                fields = {"session": session, "run": handle.run}
                raise RequestError("session.busy", f"another run of the session {session} is active", fields=fields)

    async def _open_world(self, package: PackageFile, run: str, ports: Any, options: PortOptions) -> World:
        stack = self._worlds[run] = AsyncExitStack()
        return await stack.enter_async_context(
            open_host_world(
                package.agent,
                ports,
                run,
                journals=self._store,
                place=self.project.root / "package.json",
                env_file=options.get("env_file"),
                blobs=self._store.blobs(run),
                inbox=self._store.inbox(run),
                listen=self._events.publish,
                clients=self._clients,
            )
        )

    async def _close_world(self, run: str) -> None:
        if (stack := self._worlds.pop(run, None)) is not None:
            await stack.aclose()

    def _watch(self, handle: RunHandle) -> RunHandle:
        """Close the world of a run when the run is finished."""
        self._handles[handle.run] = handle

        async def close_world() -> None:
            with suppress(Exception):  # the caller gets it from `wait`
                if (await handle.wait()).is_finished:
                    await self._close_world(handle.run)
                    self._handles.pop(handle.run, None)

        task = asyncio.get_running_loop().create_task(close_world())
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)
        return handle

    async def resume(
        self, run: str, *, package: PackageSource | None = None, **options: Unpack[PortOptions]
    ) -> RunHandle:
        """Continue a run that was interrupted or parked, or that waits, with its own package or with another one.
        `options`: as for `open`. Raises `run.invalid_state` if it is finished, and `session.busy` if another process
        works on it."""
        check_run_id(run)
        refuse_unknown_keywords(options, PortOptions.__annotations__)
        check_port_options(options)
        given: PortOptions = {**self._options, **options}
        with name_run_in_errors(run):
            file = stored_package(self._store, run) if package is None else load_package_source(package)
            self._refuse_finished(run)
            self._store.refuse_other_project(run)
            if (before := self._handles.get(run)) is not None:
                before.stop_listening()
                await self._close_world(run)
            try:
                world = await self._open_world(file, run, make_ports(file.agent, given), given)
                log = await take_over_in_world(world, file)
            except BaseException:
                await self._close_world(run)
                raise
        name = log.state.started.session
        return self._watch(self._runtime.register(file, log, world, Session(None if name is UNSET else name)))

    def _refuse_finished(self, run: str) -> None:
        snapshot = self._runtime.snapshot(run)
        if snapshot.outcome is not None:
            raise wrong_state_error(run, "unfinished", snapshot.status)
        handle = self._handles.get(run)
        if handle is not None and handle.is_active:
            raise wrong_state_error(run, "suspended", "processing")

    # --- reading ---------------------------------------------------------------------------------------------------

    def runs(
        self,
        *,
        agent: str | None = None,
        status: StoredStatus | Sequence[StoredStatus] = (),
        session: str | None = None,
        due: bool = False,
        limit: int | None = None,
    ) -> list[RunSummary]:
        """The runs of the store, the latest first. `due`: those that `resume` would continue now, without an answer or
        a decision of a person."""
        statuses = (status,) if isinstance(status, str) else tuple(status)
        wanted = RunFilter(
            agent=() if agent is None else (agent,),
            status=RESUMABLE_STATUSES if due else statuses,
            session=() if session is None else (session,),
            limit=None if due else limit,
        )
        found = RunIndex(self.project).select(wanted)
        if due:
            now = self._runtime.clock.now()
            found = [run for run in found if is_due(self._store, run.run, now)]
        return found[:limit]

    def approvals(self) -> list[WaitingQuestion]:
        """The approvals that runs wait for, the oldest first."""
        return list_waiting_questions(self._store)

    def sessions(self) -> list[str]:
        """The names of the sessions of the store."""
        return self._store.sessions.names()

    def snapshot(self, run: str) -> Snapshot:
        """The current state of a run, from its journal. Raises `run.not_found`."""
        return self._runtime.snapshot(run)

    def events(self, run: str | None = None, cursor: Cursor | None = None) -> Subscription:
        """The events of a run with its sub-agents, from its first record, or of all runs from now on; or those after a
        cursor. They include runs of other processes."""
        if run is None:
            return self._runtime.subscribe(ALL_EVENTS, cursor)
        scope = family_scope(run)
        return self._runtime.subscribe(scope, cursor or Cursor(scope.name))

    # --- input from outside ----------------------------------------------------------------------------------------

    def answer(self, run: str, question: Question, answer: ApprovalAnswer, by: str) -> None:
        """Answer an approval question of a run, whichever process works on it. The first answer counts. If nothing
        works on the run, it is due from now on. Raises `run.invalid_state`."""
        self._runtime.answer(run, question, answer, by)

    async def cancel(self, run: str, by: str = "caller") -> None:
        """Cancel a run, whichever process works on it. If nothing does, it is ended here. A finished run does not
        change."""
        check_author(by)
        is_ours = root_run(run) in self._handles
        self._runtime.cancel(run, by)
        snapshot = self._runtime.snapshot(run)
        if not is_ours and snapshot.outcome is None and not self._store.is_locked(run):
            handle = await self.resume(run)
            await handle.wait()


def open(project: str | PathLike[str] = ".", /, **options: Unpack[PortOptions]) -> ProjectRuntime:
    """A durable runtime over the store of a project: `async with agentrun.open(project) as runtime:`."""
    return ProjectRuntime(project, **options)
