"""The runtime: the ports of a host, and the runs that it started.

    runtime = Runtime.in_memory(providers={"openai": model}, executors={"search": search})
    handle = runtime.start(Request(agent="triage", package=package, message="The printer is on fire."))
    outcome = await handle.wait()

Rule 1  A runtime can be created without any port. A missing port is an error when a run needs it.
Rule 2  A name is registered only once.
Rule 3  The live worlds of a runtime share one HTTP client for each project. Close the runtime, or use `async with`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.compiler.package_file import PackageFile
from agentrun.core.decide import decide
from agentrun.core.effects import Wait, route_name
from agentrun.core.evolve import fold
from agentrun.core.facts import ApprovalAnswer, CancelRequested, Fact, Record, RunStopped
from agentrun.core.messages import Content
from agentrun.core.outcome import Outcome, Question, outcome_of, parked_outcome, suspended_outcome
from agentrun.core.package import Package
from agentrun.core.state import State, pending_effects
from agentrun.core.transitions import is_acceptable
from agentrun.engine.answers import (
    CallSettlement,
    make_answer,
    make_settlement,
    open_questions,
    package_of_run,
    refuse_answer,
    refuse_settlement,
)
from agentrun.engine.approvals import ApprovalCallback, to_approver
from agentrun.engine.argument_checks import check_author, check_grace, check_run_id, check_type
from agentrun.engine.begin import (
    PackagePolicy,
    PackageResolver,
    StartPolicy,
    begin,
    check_resume,
    check_start,
    find_package,
    keep_package,
    name_run_in_errors,
)
from agentrun.engine.clock import StepClock
from agentrun.engine.crew import MAX_PARALLEL_EFFECTS, CompletionOrder
from agentrun.engine.crew_registry import CrewRegistry
from agentrun.engine.driver import RunLog, open_run_log
from agentrun.engine.event_bus import EventBus, Subscription
from agentrun.engine.events import ALL_EVENTS, Cursor, Scope, run_scope
from agentrun.engine.follower import follow_journals
from agentrun.engine.handle import PARK_GRACE_MS, RunHandle
from agentrun.engine.http_clients import HttpClients
from agentrun.engine.memory import Journals, MemoryBlobs, MemoryJournals, stored_package
from agentrun.engine.ports import Approver, Blobs, Clock, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.request import Request, RunStatus, Snapshot, new_run_id, wrong_state_error
from agentrun.engine.sessions import Session, Sessions
from agentrun.engine.world import World, Wrapper, world_of_run
from agentrun.engine.worlds import hosted_world
from agentrun.errors import HostError, RequestError, run_not_found_error
from agentrun.redactor import Redactor
from agentrun.spec.project import Project
from agentrun.store.run_ids import root_run

if TYPE_CHECKING:
    from agentrun.store.files import FileStore
    from agentrun.store.inbox import OutsideFact

_T = TypeVar("_T")


class Runtime:
    """Starts and resumes runs with its ports, registries and packages.

    `width`: the maximum of parallel effects of a run. `order`: on a step clock, which of several ready effects goes
    first. `resolver`: finds the package of a request that names none, or one that is not in `packages`.
    `default_package`: for a request that names none, if the resolver finds none. `ids`: creates run ids. `wrappers`:
    wrap the ports, for example with a cassette. `programs`: the file of each command that tools may start. `redactor`:
    knows the secret values that must not appear in facts.
    """

    def __init__(
        self,
        *,
        journals: Journals | None = None,
        events: EventBus | None = None,
        content: Blobs | None = None,
        policy: StartPolicy | None = None,
        providers: Mapping[str, Provider] | Iterable[tuple[str, Provider]] = (),
        executors: Mapping[str, Executor] | Iterable[tuple[str, Executor]] = (),
        hooks: Mapping[str, HookFunction] | Iterable[tuple[str, HookFunction]] = (),
        sinks: Mapping[str, SinkPort] | Iterable[tuple[str, SinkPort]] = (),
        packages: Iterable[PackageFile] = (),
        default_package: PackageFile | None = None,
        resolver: PackageResolver | None = None,
        clock: Clock | None = None,
        approver: Approver | ApprovalCallback | None = None,
        width: int = MAX_PARALLEL_EFFECTS,
        order: CompletionOrder = lambda ready: 0,
        ids: Callable[[], str] = new_run_id,
        wrappers: tuple[Wrapper, ...] = (),
        programs: Mapping[str, str] | None = None,
        redactor: Redactor = Redactor(()),  # noqa: B008  # it does not change
    ) -> None:
        self.journals = journals
        self.content = content
        self.providers: Registry[Provider] = Registry("provider", providers)
        self.executors: Registry[Executor] = Registry("executor", executors)
        self.hooks: Registry[HookFunction] = Registry("hook", hooks)
        self.sinks: Registry[SinkPort] = Registry("sink", sinks)
        self.packages = {package.fingerprint: package for package in packages}
        self._default_package = default_package
        self._resolver = resolver
        self._store: FileStore | None = journals if hasattr(journals, "sessions") else None  # type: ignore[assignment]
        self.sessions = Sessions(self._store)
        self.clock = clock or _system_clock()
        self._events = events
        self._approver = to_approver(approver, self.clock)
        self._width = width
        self._order = order
        self._ids = ids
        self._wrappers = wrappers
        self._programs = programs or {}
        self._redactor = redactor
        self._runs: dict[str, RunHandle] = {}
        self._policy = policy
        self._clients = HttpClients()

    @classmethod
    def in_memory(cls, **arguments: Any) -> Self:
        """A runtime with in-memory defaults for journals, events, content and policy."""
        ports = {"journals": MemoryJournals, "events": EventBus, "content": MemoryBlobs, "policy": PackagePolicy}
        return cls(**{name: make() for name, make in ports.items() if arguments.get(name) is None}, **arguments)

    # --- live worlds ---------------------------------------------------------------------------------------------

    def live_world(
        self, package: Package, project: Project, run: str = "", **options: Any
    ) -> AbstractAsyncContextManager[World]:
        """A live world with the HTTP client of this runtime. `options`: those of a live world."""
        from agentrun.engine.worlds.live import live_world  # late: the import takes a second

        return live_world(package, project, run, clients=self._clients, **options)

    def add_ports(self, world: World) -> None:
        """Use the ports of a world where this runtime has none."""
        for registry in (self.providers, self.executors, self.hooks, self.sinks):
            registry.add_missing(getattr(world, f"{registry.kind}s"))
        self._programs = {**world.programs, **self._programs}
        self._redactor = world.redactor

    async def close(self) -> None:
        """Close the connections of the live worlds. Other processes may then continue the suspended runs of a store."""
        for handle in self._runs.values():
            handle.stop_listening()
            if self._store is not None and handle.pause is not None:
                self._store.leave(handle.run)
        await self._clients.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- starting ------------------------------------------------------------------------------------------------

    def start(self, request: Request) -> RunHandle:
        """Start a run. If it cannot start, this raises and nothing is stored."""
        run = request.run or self._ids()
        check_run_id(run)
        with name_run_in_errors(run):
            _, policy = self._ports(run)
            package = self.effective_package(request)
            request = replace(request, package=package)
            world = self._world(run)
            try:
                session = self._session(request, run)
                started = check_start(world, package.agent, request, session, policy=policy)
                log = begin(world, started, package)
            except BaseException:
                self.sessions.leave(request.session)
                raise
        session.add(started)
        return self.register(package, log, world, session)

    def effective_package(self, request: Request) -> PackageFile:
        """The package that a run of this request would use, with the output schema of the request. Raises
        `package.*`."""
        return find_package(self.packages, request, self._resolver, self._default_package)

    def _session(self, request: Request, run: str) -> Session:
        try:
            session = self.sessions.find(request.session)
            if session.runs:
                self._refuse_busy(session)
        except RequestError as error:
            error.fields["input_id"] = f"{run}.1"
            raise
        return session

    def _refuse_busy(self, session: Session) -> None:
        handle = self._runs.get(session.runs[-1])
        if handle is not None and handle.is_active:
            fields = {"session": session.name, "run": handle.run}
            raise RequestError("session.busy", f"another run of the session {session.name} is active", fields=fields)

    def _ports(self, run: str) -> tuple[Journals, StartPolicy]:
        """The ports that every run needs. Raises `host.missing` for the first that is missing."""
        ports = {"journal": self.journals, "events": self._events, "content": self.content, "policy": self._policy}
        for name, port in ports.items():
            if port is None:
                message = f"the runtime has no {name} port"
                raise HostError("host.missing", message, fields={"name": name, "run": run})
        assert self.journals is not None
        assert self._policy is not None
        return self.journals, self._policy

    def resume(self, run: str, *, with_package: PackageFile | None = None, finished_ok: bool = False) -> RunHandle:
        """Continue a run that is suspended or whose process ended, with its own package or with another one.

        Raises `run.invalid_state` if the run is finished; with `finished_ok` its handle has the outcome.
        """
        check_type("with_package", with_package, (PackageFile, NoneType), "a PackageFile")
        with name_run_in_errors(run):
            return self._resume(run, with_package, finished_ok)

    def _resume(self, run: str, with_package: PackageFile | None, finished_ok: bool) -> RunHandle:
        journals, _ = self._ports(run)
        records = tuple(self.records(run))
        state = fold(records)
        handle = self._runs.get(run)
        if state.stopped is not None:
            if not finished_ok:
                raise wrong_state_error(run, "unfinished", state.stopped.status)
            return handle or self._finished_handle(journals, run)
        if handle is not None and handle.is_worked_on:
            raise wrong_state_error(run, "suspended", "processing")
        if handle is not None:
            handle.stop_listening()
        package = with_package or stored_package(journals, run)
        world = self._world(run)
        check_resume(world, package, state)
        keep_package(world, package)
        log = open_run_log(world)
        log.take_over(package.fingerprint)
        return self.register(package, log, world, handle.session if handle else Session())

    def _finished_handle(self, journals: Journals, run: str) -> RunHandle:
        world = self._world(run)
        return RunHandle(stored_package(journals, run), open_run_log(world), world, Session(), self._events_of(run))

    def _events_of(self, run: str) -> Callable[[Cursor | None], Subscription]:
        return lambda cursor: self.subscribe(run_scope(run), cursor)

    def register(self, package: PackageFile, log: RunLog, world: World, session: Session) -> RunHandle:
        """Work on a run that is in its journal. `world`: publishes to the events of this runtime."""
        assert self._events is not None
        handle = RunHandle(package, log, world, session, self._events_of(world.run), self._events.wake)
        self._runs[handle.run] = handle
        handle.begin()
        return handle

    # --- reading -------------------------------------------------------------------------------------------------

    @property
    def run_count(self) -> int:
        """The number of runs that were started or resumed here."""
        return len(self._runs)

    def records(self, run: str) -> Iterable[Record]:
        """The journal of a run. Raises `run.not_found`."""
        check_run_id(run)
        if self.journals is None:
            raise run_not_found_error(run)
        return self.journals.records(run)

    def questions(self, run: str) -> tuple[Question, ...]:
        """The approvals that a run, or a sub-agent, waits for. Raises `run.not_found`."""
        journals, _ = self._ports(run)
        return open_questions(journals, run)

    def snapshot(self, run: str) -> Snapshot:
        """The current state of a run, from its journal. Raises `run.not_found`."""
        state = fold(self.records(run))
        assert self.journals is not None
        package, started = package_of_run(self.journals, run), state.started
        route = package.model.routes[state.requests.route]
        handle = self._runs.get(run)
        status: RunStatus = state.stopped.status if state.stopped else handle.status if handle else "suspended"
        return Snapshot(
            run=run,
            agent=started.agent,
            status=status,
            session=None if started.session is UNSET else started.session,
            source="cassette" if started.replayed else "host" if started.parent is None else "parent",
            package=package.name,
            fingerprint=state.package,
            route=route_name(route),
            model=route.name,
            cancel_requested=state.cancelled is not None,
            seq=state.seq,
            turns=state.turns,
            tokens=state.meter.tokens,
            cost=state.meter.cost,
            tool_calls=state.meter.tool_calls,
            outcome=outcome_of(state) if state.stopped else None,
        )

    def subscribe(self, scope: Scope = ALL_EVENTS, cursor: Cursor | None = None) -> Subscription:
        """Events from now on, or from a cursor of the same scope: those of the journals, and then those that come.
        Raises `run.not_found`, `cursor.scope`."""
        if self._events is None or self.journals is None:
            name = "events" if self._events is None else "journal"
            raise HostError("host.missing", f"the runtime has no {name} port", fields={"name": name})
        return self._events.subscribe(scope, follow_journals(self.journals), cursor, self._find_pause)

    def _find_pause(self, run: str) -> Outcome | None:
        if run in self._runs:
            return self._runs[run].pause
        root = self._runs.get(root_run(run))
        if root.is_active if root is not None else self._store is not None and self._store.is_locked(run):
            return None
        state = self._state(run)
        if state.stopped is not None:
            return None
        assert self.journals is not None
        step = decide(package_of_run(self.journals, run), state)
        if isinstance(step, Wait) and not pending_effects(state):
            return suspended_outcome(state, step.questions, step.waits_for)
        return parked_outcome(state)

    def terminal_record(self, run: str) -> Record | None:
        """The record that ended a run, or None if the run is not finished. Raises `run.not_found`."""
        *_, last = self.records(run)
        return last if isinstance(last.fact, RunStopped) else None

    # --- input from outside --------------------------------------------------------------------------------------

    def cancel(self, run: str, by: str = "caller") -> None:
        """Cancel a run. A finished run does not change."""
        check_author(by)
        if run in self._runs:
            self._runs[run].cancel(by)
        elif is_acceptable(self._state(run), CancelRequested(by)):
            self._post(run, CancelRequested(by))

    def park(self, grace: int = PARK_GRACE_MS) -> None:
        """Park all active runs: no new effects are started, and running effects may end within `grace` milliseconds.
        The runs can be resumed."""
        check_grace(grace)
        for handle in self._runs.values():
            handle.park(grace)

    def answer(self, run: str, question: Question, answer: ApprovalAnswer, by: str) -> None:
        """Answer an approval question of a run or of its sub-agents. The first answer counts. Raises
        `run.invalid_state` if the question is closed, stale or altered."""
        fact = make_answer(question, answer, by)
        refuse_answer(question, fact, self._state(run), self._posted(run), partial(self._facts, run))
        self._post(run, fact)

    def settle(self, run: str, call: str, how: CallSettlement, by: str, parts: tuple[Content, ...] = ()) -> None:
        """Decide about a call with an unknown outcome, in a run or in its sub-agents. Raises `run.invalid_state` if the
        outcome is known."""
        fact = make_settlement(call, how, by, parts)
        refuse_settlement(fact, self._state(run), self._posted(run))
        self._post(run, fact)

    def _state(self, run: str) -> State:
        return self._runs[run].state if run in self._runs else fold(self.records(run))

    def _facts(self, run: str) -> Iterator[Fact]:
        return (record.fact for record in self.records(run))

    def _posted(self, run: str) -> tuple[Fact, ...]:
        return tuple(fact for handle in self._runs.values() for fact in handle.posted(run))

    def _post(self, run: str, fact: OutsideFact) -> None:
        if run in self._runs:
            self._runs[run].post(fact)
        elif any(handle.post_to_child(run, fact) for handle in self._runs.values()):
            return
        elif self._store is not None and root_run(run) not in self._runs:
            from agentrun.engine.inbox import send_fact  # late: only a store needs it

            if send_fact(self._store, run, fact, self._redactor):
                self._store.leave(run)
        else:
            self._ports(run)
            open_run_log(self._world(run)).commit(fact)

    def _world(self, run: str) -> World:
        assert self._events is not None
        store = None if isinstance(self.clock, StepClock) else self._store
        world = hosted_world(
            self._wrappers,
            clock=self.clock,
            journals=self.journals,
            listen=self._events.publish,
            blobs=self.content,
            crews=CrewRegistry(self.clock, self._width, self._order),
            providers=self.providers,
            executors=self.executors,
            hooks=self.hooks,
            sinks=self.sinks,
            approver=self._approver,
            programs=self._programs,
            redactor=self._redactor,
            inbox=None if store is None else store.inbox(run),
        )
        return world_of_run(world, run)


def _system_clock() -> Clock:
    from agentrun.engine.event_loop import SystemClock  # late: a step clock needs no event loop

    return SystemClock()


class Registry(Mapping[str, _T], Generic[_T]):
    """Ports of one kind by name."""

    def __init__(self, kind: str, entries: Mapping[str, _T] | Iterable[tuple[str, _T]] = ()) -> None:
        self.kind = kind
        self._entries: dict[str, _T] = {}
        for name, entry in entries.items() if isinstance(entries, Mapping) else entries:
            self.add(name, entry)

    def add(self, name: str, entry: _T) -> None:
        """Raises ValueError if the name is empty or taken."""
        if not name.strip():
            raise ValueError(f"a {self.kind} needs a name; it is {name!r}")
        if name in self._entries:
            raise ValueError(f"a {self.kind} with the name {name!r} already exists")
        self._entries[name] = entry

    def add_missing(self, entries: Mapping[str, _T]) -> None:
        """Add the entries whose names are not taken."""
        self._entries = {**entries, **self._entries}

    def __getitem__(self, name: str) -> _T:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
