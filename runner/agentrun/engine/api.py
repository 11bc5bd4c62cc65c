"""Run agents from Python: `run` and `arun`, `resume` and `aresume`, and `audit`.

    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.")                  # the real model
    outcome = await agentrun.arun("specs/triage.yaml", "The printer is on fire.", model=model)
    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.", output=Ticket)   # outcome.output: a Ticket
    outcome = agentrun.resume("run-1", journals=journals, model=model)
    agentrun.audit(outcome.journal, package)

Rule 1  The functions with an `a` do the work. The others are an event loop around them, so they mean the same.
Rule 2  An error before the first record of a run is raised. After it there is an outcome, whatever happens.
Rule 3  Without a step clock a run takes real time, and tools, hooks and sinks that the caller does not replace run for
        real. A run on a step clock and a replay need no event loop.
Rule 4  Only what the other parts need is imported. If the caller replaces the model and everything else, no
        environment variable is read.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack, overload

import msgspec
from msgspec.structs import replace

from agentrun.compiler.compile import compile_or_raise, load
from agentrun.compiler.package_file import PackageFile, seal_package
from agentrun.core.audit import find_divergence
from agentrun.core.facts import Record, fact_kind
from agentrun.core.messages import Message
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.engine.approvals import ApprovalCallback
from agentrun.engine.argument_checks import check_choice, check_run_id, check_type
from agentrun.engine.begin import find_package, name_run_in_errors
from agentrun.engine.clock import StepClock
from agentrun.engine.host_ports import (
    HostPorts,
    PortOptions,
    check_methods,
    check_port_options,
    make_ports,
    open_host_world,
    refuse_unknown_keywords,
)
from agentrun.engine.memory import Journals, MemoryJournals, stored_package
from agentrun.engine.ports import Approver
from agentrun.engine.request import Attachment, Request, new_run_id, wrong_state_error
from agentrun.engine.request_input import read_attachments, read_history
from agentrun.engine.run import drive_or_cancel, start_in_world, take_over_in_world
from agentrun.engine.world import Listener
from agentrun.errors import AuditError
from agentrun.journal.family import call_of
from agentrun.journal.storage import read_journal_file
from agentrun.spec.project import find_project

if TYPE_CHECKING:
    from agentrun.compiler.spec_reader import Spec
    from agentrun.engine.http_clients import HttpClients
    from agentrun.engine.output_types import OutputType
    from agentrun.store.files import FileStore
    from agentrun.store.sessions import SessionStart

_T = TypeVar("_T")

PackageSource: TypeAlias = PackageFile | Package | str | PathLike[str]
"""A package, or a path: of a package file if it ends with `.json`, otherwise of a spec."""
ApiMode: TypeAlias = Literal["live", "record", "replay", "auto"]
API_MODES = ("live", "record", "replay", "auto")


class RunArguments(PortOptions, total=False):
    """The keyword arguments of `run`, `arun`, `stream` and `astream`, besides `output`."""

    params: Mapping[str, Any] | None
    """The values of the spec's params."""
    profile: str | None
    """The profile to compile the spec with."""
    session: str | None
    """The session that the run continues. It is in the store of the project."""
    session_start: SessionStart
    """Whether the session must exist: `continue` (the default), `new`, or `create` for either."""
    any_agent: bool
    """Whether the agent may continue a session in which only other agents have runs."""
    history: Sequence[Message | Mapping[str, Any]] | None
    """An earlier conversation: messages, or dicts in OpenAI's chat form. If it ends with the user, `message` may be
    left out."""
    run_id: str | None
    """The id of the run. Absent: a new one."""
    attachments: Sequence[str | PathLike[str] | Attachment] | None
    """Images and files of the message: paths, or `Attachment.from_bytes(…)`."""
    store: bool | str | PathLike[str] | None
    """Where the run is stored: True for the store of the project, or the folder of another one. Absent: in memory,
    unless the run has a session."""
    journals: Journals | None
    """Where the journal is written, for tests and other stores."""
    mode: ApiMode | None
    """`live` (the default), `record`, `replay`, or `auto`: replay if there is a cassette, otherwise live."""
    cassette: str | PathLike[str] | None
    """The cassette to replay or to record. Without a `mode` it is replayed."""
    case: str | None
    """The case to replay or to record. Absent: the case with this message, params and profile."""


@overload
def run(
    package: PackageSource,
    message: str | None = None,
    *,
    output: dict[str, Any] | None = None,
    **arguments: Unpack[RunArguments],
) -> Outcome: ...


@overload
def run(
    package: PackageSource,
    message: str | None = None,
    *,
    output: type[_T],
    **arguments: Unpack[RunArguments],
) -> Outcome[_T]: ...


def run(
    package: PackageSource, message: str | None = None, *, output: Any = None, **arguments: Unpack[RunArguments]
) -> Outcome[Any]:
    """Run an agent and return its outcome. Inside an event loop use `await agentrun.arun(…)`.

    `output`: the type of the answer, as a JSON Schema or a Python type. With a pydantic model, or any type that
    pydantic supports, the `output` of the outcome is a value of that type. The other keywords are those of
    `RunArguments`: `params=`, `session=`, `model=`, `tools=` and more.
    """
    return prepare_run(package, message, output, arguments).run()


@overload
async def arun(
    package: PackageSource,
    message: str | None = None,
    *,
    output: dict[str, Any] | None = None,
    **arguments: Unpack[RunArguments],
) -> Outcome: ...


@overload
async def arun(
    package: PackageSource,
    message: str | None = None,
    *,
    output: type[_T],
    **arguments: Unpack[RunArguments],
) -> Outcome[_T]: ...


async def arun(
    package: PackageSource, message: str | None = None, *, output: Any = None, **arguments: Unpack[RunArguments]
) -> Outcome[Any]:
    """Run an agent in the running event loop and return its outcome. The arguments are those of `run`. If the task is
    cancelled, the run is cancelled, and its journal says so."""
    return await prepare_run(package, message, output, arguments).arun()


def replay(
    spec: str | PathLike[str],
    case: str = "default",
    *,
    profile: str | None = None,
    approver: Approver | ApprovalCallback | None = None,
) -> Outcome:
    """Replay a recorded case. Nothing is sent and no tool runs, so this needs no event loop, and works inside one.

    `approver`: its answers replace the recorded ones. Raises `cassette.miss` if the case is not recorded.
    """
    check_type("spec", spec, (str, PathLike), "the path of a spec")
    arguments: RunArguments = {"mode": "replay", "case": case, "profile": profile}
    if approver is not None:
        arguments["approver"] = approver
    return prepare_run(spec, None, None, arguments).run()


def resume(
    run: str,
    *,
    journals: Journals,
    package: PackageSource | None = None,
    finished_ok: bool = False,
    **options: Unpack[PortOptions],
) -> Outcome:
    """Continue a run with the package that is stored with it, or with another one. If the run is finished, raise
    `run.invalid_state`, or with `finished_ok` return its outcome. Inside an event loop use `aresume`."""
    work = _resume(run, journals, package, finished_ok, options)
    clock = options.get("clock")
    return clock.run(work) if isinstance(clock, StepClock) else run_in_new_loop(work, "aresume")


async def aresume(
    run: str,
    *,
    journals: Journals,
    package: PackageSource | None = None,
    finished_ok: bool = False,
    **options: Unpack[PortOptions],
) -> Outcome:
    """Continue a run in the running event loop. The arguments are those of `resume`."""
    work = _resume(run, journals, package, finished_ok, options)
    clock = options.get("clock")
    return clock.run(work) if isinstance(clock, StepClock) else await work


async def _resume(
    run: str, journals: Journals, package: PackageSource | None, finished_ok: bool, options: PortOptions
) -> Outcome:
    refuse_unknown_keywords(options, PortOptions.__annotations__)
    check_port_options(options)
    check_run_id(run)
    check_methods("journals", journals, JOURNAL_METHODS)
    file = stored_package(journals, run) if package is None else load_package_source(package)
    ports = make_ports(file.agent, options)
    place = place_in_project(file if package is None else package, options)
    opened: dict[str, Any] = {"journals": journals, "place": place, "env_file": options.get("env_file")}
    async with open_host_world(file.agent, ports, run, **opened, **stored_parts(journals, run)) as world:
        log = await take_over_in_world(world, file)
        if log.state.stopped is not None and not finished_ok:
            raise wrong_state_error(run, "unfinished", log.state.stopped.status)
        return await drive_or_cancel(world, file, log)


def audit(journal: Iterable[Record] | str | PathLike[str], package: PackageSource) -> None:
    """Raise `audit.diverged` at the first decision of a journal that this release would not make."""
    check_type("journal", journal, (str, PathLike, Iterable), "a path or the records of a journal")
    records = read_journal_file(Path(journal)) if isinstance(journal, str | PathLike) else journal
    refuse_divergence(records, load_package_source(package).agent)


# --- preparing ------------------------------------------------------------------------------------------------------

JOURNAL_METHODS = ("open", "keep", "package", "records")


def load_package_source(package: PackageSource) -> PackageFile:
    return _load(package, None)[1]


def _load(package: PackageSource, profile: str | None) -> tuple[Spec | None, PackageFile]:
    check_type("package", package, (PackageFile, Package, str, PathLike), "a package, or the path of a spec or package")
    is_spec = not isinstance(package, PackageFile | Package) and Path(package).suffix != ".json"
    if profile is not None and not is_spec:
        raise ValueError("`profile` needs the path of a spec: a package is already compiled")
    match package:
        case PackageFile():
            return None, package
        case Package():
            return None, seal_package(package)
        case _ if is_spec:
            return compile_or_raise(Path(package), profile)
        case _:
            return None, load(Path(package))


def place_in_project(package: PackageSource, options: PortOptions) -> Path:
    """A path in the project of a run."""
    if "project" in options:
        return Path(options["project"]) / "package.json"
    is_spec = not isinstance(package, PackageFile | Package) and Path(package).suffix != ".json"
    return Path(package) if is_spec else Path("package.json")  # type: ignore[arg-type]  # a spec is a path


def stored_parts(journals: Journals, run: str) -> dict[str, Any]:
    """The blobs and the inbox of a run, if its journal is in a store."""
    store: Any = journals
    return {"blobs": store.blobs(run), "inbox": store.inbox(run)} if hasattr(journals, "inbox") else {}


class PreparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that can start. Its arguments are valid."""

    run_id: str
    spec: Spec | None
    """None: the agent is a package."""
    file: PackageFile
    request: Request
    place: Path
    """A path in the project."""
    mode: ApiMode
    arguments: RunArguments
    output_type: OutputType[Any] | None

    @property
    def needs_loop(self) -> bool:
        return self.mode != "replay" and not isinstance(self.arguments.get("clock"), StepClock)

    def run(self, listen: Listener = lambda run, news: None) -> Outcome:
        if self.needs_loop:
            return run_in_new_loop(self.arun(listen), "arun")
        return self._run_without_loop(listen)

    async def arun(self, listen: Listener = lambda run, news: None, clients: HttpClients | None = None) -> Outcome:
        if not self.needs_loop:
            return self._run_without_loop(listen)
        if self.mode == "record":
            from agentrun.engine.recorded_runs import record_prepared  # late: only for a recording

            return self.convert(await record_prepared(self, listen))
        return await self._run_live(listen, clients)

    def _run_without_loop(self, listen: Listener) -> Outcome:
        if self.mode == "replay":
            from agentrun.engine.recorded_runs import replay_prepared  # late: only for a replay

            return self.convert(replay_prepared(self, listen))
        clock = self.arguments["clock"]
        assert isinstance(clock, StepClock)
        return clock.run(self._run_live(listen, None))

    async def _run_live(self, listen: Listener, clients: HttpClients | None) -> Outcome:
        with name_run_in_errors(self.run_id):
            package = find_package({}, self.request)
            ports = make_ports(package.agent, self.arguments)
            with self.open_store() as store:
                return self.convert(await self._run_in_store(package, ports, store, listen, clients))

    async def _run_in_store(
        self,
        package: PackageFile,
        ports: HostPorts,
        store: FileStore | None,
        listen: Listener,
        clients: HttpClients | None,
    ) -> Outcome:
        session = None
        journals: Any = self.arguments.get("journals") or store
        if journals is None:
            journals = MemoryJournals()
        elif self.request.session is not None:
            from agentrun.engine.run_store import lock_session  # late: only with a store

            session = lock_session(journals, self.request, self.arguments.get("session_start", "continue"))
        options: dict[str, Any] = {"journals": journals, "place": self.place, **stored_parts(journals, self.run_id)}
        options |= {"env_file": self.arguments.get("env_file"), "listen": listen, "clients": clients}
        opened = open_host_world(package.agent, ports, self.run_id, **options)
        async with opened as world:
            log = await start_in_world(world, package, self.request, session)
            return await drive_or_cancel(world, package, log)

    def open_store(self) -> AbstractContextManager[FileStore | None]:
        """The store of the run, or None if it is in memory."""
        wanted = self.arguments.get("store")
        if wanted is False or (wanted is None and self.request.session is None) or "journals" in self.arguments:
            return nullcontext(None)
        from agentrun.engine.run_store import open_run_store  # late: only with a store
        from agentrun.engine.settings import load_settings  # late: as above

        project = find_project(self.place)
        if wanted is not None and not isinstance(wanted, bool):
            project = replace(project, store=str(Path(wanted).resolve()), stores_runs=True)
        if not project.stores_runs:
            raise ValueError("`store` and `session` need a store, but AGENTRUN_STORE is none")
        return open_run_store(project, load_settings().sync)

    def convert(self, outcome: Outcome) -> Outcome:
        return outcome if self.output_type is None else self.output_type.convert_outcome(outcome)


def prepare_run(package: PackageSource, message: str | None, output: Any, arguments: RunArguments) -> PreparedRun:
    """Check the arguments, and compile the spec. Raises TypeError and ValueError with the name of the argument."""
    _check_arguments(arguments)
    spec, file = _load(package, arguments.get("profile"))
    output_type: OutputType[Any] | None = None
    if output is not None and not isinstance(output, dict):
        from agentrun.engine.output_types import OutputType  # late: only if there is one

        output_type = OutputType(output)
    history = read_history(arguments.get("history") or ())
    on_step_clock = isinstance(arguments.get("clock"), StepClock)
    run_id = arguments.get("run_id") or ("run-1" if on_step_clock else new_run_id())
    request = Request(
        agent=file.agent.name,
        package=file,
        message=message,
        goes_on=message is None and bool(history) and history[-1].__struct_config__.tag != "assistant",
        params=dict(arguments.get("params") or {}),
        output=output if output_type is None else output_type.schema,
        run=run_id,
        session=arguments.get("session"),
        any_agent=arguments.get("any_agent", False),
        history=history,
        attachments=read_attachments(arguments.get("attachments") or ()),
    )
    prepared = PreparedRun(
        run_id=run_id,
        spec=spec,
        file=file,
        request=request,
        place=place_in_project(package, arguments),
        mode=arguments.get("mode") or ("replay" if "cassette" in arguments else "live"),
        arguments=arguments,
        output_type=output_type,
    )
    if prepared.mode == "auto":
        from agentrun.engine.recorded_runs import resolve_auto  # late: only for a cassette

        return resolve_auto(prepared)
    return prepared


def _check_arguments(arguments: RunArguments) -> None:
    refuse_unknown_keywords(arguments, RunArguments.__annotations__)
    for name in [name for name, value in arguments.items() if value is None]:
        del arguments[name]  # type: ignore[misc]  # None: as if it were absent
    check_port_options(arguments)
    check_type("params", arguments.get("params"), (Mapping, NoneType), "a mapping of names to values")
    for name in ("profile", "case"):
        check_type(name, arguments.get(name, ""), str, "a string")
    check_type("cassette", arguments.get("cassette", ""), (str, PathLike), "a path")
    check_type("store", arguments.get("store", ""), (bool, str, PathLike), "True, False or a path")
    check_methods("journals", arguments.get("journals"), JOURNAL_METHODS)
    check_choice("mode", arguments.get("mode", "live"), API_MODES)
    check_choice("session_start", arguments.get("session_start", "continue"), ("continue", "new", "create"))
    if "run_id" in arguments:
        check_run_id(arguments["run_id"], "run_id")
    _refuse_combinations(arguments)


def _refuse_combinations(arguments: RunArguments) -> None:
    def refuse(name: str, other: str, why: str) -> None:
        raise ValueError(f"`{name}` cannot be combined with {other}: {why}")

    mode = arguments.get("mode", "replay" if "cassette" in arguments else "live")
    if "store" in arguments and "journals" in arguments:
        refuse("store", "`journals`", "a run has one place")
    if "session" in arguments and not hasattr(arguments.get("journals"), "sessions") and "journals" in arguments:
        refuse("session", "these `journals`", "a session is in a store")
    if arguments.get("store") is False and "session" in arguments:
        refuse("session", "`store=False`", "a session is in a store")
    if mode == "live":
        for name in ("cassette", "case"):
            if name in arguments:
                refuse(name, "mode='live'", "a live run uses no cassette")
    if mode != "live" and "session" in arguments:
        refuse("session", f"mode={mode!r}", "session runs are always live")
    if mode == "replay":
        for name in ("model", "tools", "hooks", "sinks", "clock", "store", "journals", "run_id"):
            if name in arguments:
                refuse(name, "mode='replay'", "everything in a replay comes from the cassette")
    if mode == "record":
        for name in ("model", "store", "journals"):
            if name in arguments:
                refuse(name, "mode='record'", "the requests of a real model are recorded, in memory")
    if mode in ("record", "auto") and isinstance(arguments.get("clock"), StepClock):
        refuse("clock", f"mode={mode!r}", "a recording takes real time")


def run_in_new_loop(work: Coroutine[Any, Any, _T], instead: str) -> _T:
    """`instead`: the function to use in a running event loop."""
    import asyncio  # late: a step clock needs no event loop

    from agentrun.engine.event_loop import run_event_loop  # late: as above

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_event_loop(work)
    work.close()
    name = instead.removeprefix("a")
    raise RuntimeError(f"agentrun.{name}() cannot be called inside an event loop; use agentrun.{instead}(…) there")


# --- audit ----------------------------------------------------------------------------------------------------------


def refuse_divergence(records: Iterable[Record], package: Package, others: Mapping[str, Package] | None = None) -> None:
    """`others`: the packages that the run was resumed with, by fingerprint."""
    divergence = find_divergence(package, records, others)
    if divergence is None:
        return
    recorded, now = divergence.was, divergence.instead[0] if divergence.instead else None
    name = "nothing" if now is None else fact_kind(now)
    message = f"record {divergence.seq} is {fact_kind(recorded)}, but this release would write {name}"
    if now is not None and fact_kind(now) == fact_kind(recorded):
        message = f"record {divergence.seq}, {fact_kind(recorded)}, has other values than this release would write"
    fields = {"seq": divergence.seq, "was": msgspec.to_builtins(recorded), "is": msgspec.to_builtins(now)}
    raise AuditError("audit.diverged", message, fields={**fields, "call": call_of(recorded)})
