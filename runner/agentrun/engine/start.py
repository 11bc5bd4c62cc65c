"""How a run starts, in a fixed order. Nothing is registered or journaled before all of it has passed.

1  the ports: journal, events, content, policy
2  the package: found, merged with the request's output contract, valid, of the agent that was asked for, unchanged
3  a provider for each route; every hook, executor and sink that the package names
   (here the request is admitted: its session is free, its input is not empty, too long or a duplicate)
4  the policy on starting: only `allow` passes
5  the id is new: the package is stored and `run_started` is written. Accepted means journaled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canon import fingerprint
from agentrun.compiler.fingerprint import PackageFile, sealed
from agentrun.core.facts import Earlier, RunStarted
from agentrun.core.messages import Assistant, words
from agentrun.core.package import Package
from agentrun.core.policy import Verdict
from agentrun.core.sound import refuse_unsound
from agentrun.engine.admission import admit, refuse_unruly, run_started, start_ruling
from agentrun.engine.bus import Bus
from agentrun.engine.driver import Log
from agentrun.engine.memory import Journals
from agentrun.engine.ports import Blobs
from agentrun.engine.request import Request, rejected
from agentrun.engine.sessions import Session, Sessions, earlier
from agentrun.engine.world import World, missing, open_log, world_of_run
from agentrun.errors import AgentrunError, HostError, PackageError, RequestError


class StartPolicy(Protocol):
    """Says whether a run may start."""

    def ruling(self, package: Package, started: RunStarted) -> Verdict: ...


class PackagePolicy:
    """What the package's own rules for the stage `run_start` say."""

    def ruling(self, package: Package, started: RunStarted) -> Verdict:
        return start_ruling(package, started)


class Ports(Struct, frozen=True):
    """What every run needs, in the order in which it is looked for."""

    journal: Journals
    events: Bus
    content: Blobs
    policy: StartPolicy


class Host(Struct, frozen=True, kw_only=True):
    """What a runtime was given, as far as a start looks at it."""

    ports: Mapping[str, Any]
    """The ports by name; None: it has none."""
    packages: Mapping[str, PackageFile]
    """By fingerprint."""
    sessions: Sessions
    world: Callable[[Ports], World]
    is_over: Callable[[str], bool]
    """Whether a run is."""


class Accepted(Struct, frozen=True):
    """A run that is in its journal."""

    package: PackageFile
    log: Log
    world: World
    session: Session


def start(host: Host, request: Request, run: str) -> Accepted:
    """Start a run, or raise and leave nothing."""
    ports = find_ports(host, run)
    package = find_package(host.packages, request)
    world = host.world(ports)
    refuse_missing(world, package.agent, run)
    session, started = _admitted(host, ports, request, package, run, world)
    refuse_unruly(ports.policy.ruling(package.agent, started), started)
    return _registered(ports, world, session, started, package)


# --- 1 --------------------------------------------------------------------------------------------------------


def find_ports(host: Host, run: str) -> Ports:
    for name in Ports.__struct_fields__:
        if host.ports[name] is None:
            message = f"the runtime has no port for {name}"
            raise HostError("host.missing", message, fields={"name": name, "run": run})
    return Ports(**host.ports)


# --- 2 --------------------------------------------------------------------------------------------------------


def find_package(packages: Mapping[str, PackageFile], request: Request) -> PackageFile:
    """The package that a request would run with."""
    file = _resolved(packages, request.package)
    package = file.agent if request.output is None else _merged(file.agent, request.output)
    refuse_unsound(package)
    if package.name != request.agent:
        fields = {"pointer": "/name", "expected": request.agent, "actual": package.name}
        raise PackageError("package.invalid", f"the package is of the agent {package.name!r}", fields=fields)
    refuse_changed(file)
    return file if package is file.agent else sealed(package)


def _resolved(packages: Mapping[str, PackageFile], wanted: PackageFile | str) -> PackageFile:
    if isinstance(wanted, PackageFile):
        return wanted
    if wanted not in packages:
        message = f"the runtime has no package {wanted}"
        raise PackageError("package.invalid", message, fields={"place": wanted})
    return packages[wanted]


def _merged(package: Package, schema: dict[str, Any]) -> Package:
    """The package with another contract. One that it has already is replaced by a schema of the same id only."""
    present = package.output.schema
    if present is not None and present != schema and (_id(present) is None or _id(present) != _id(schema)):
        message = "the package has an output contract, and the request's is not a version of it"
        fields = {"pointer": "/output/schema", "expected": _id(present), "actual": _id(schema)}
        raise PackageError("package.invalid", message, hint="give both schemas one `title`", fields=fields)
    return replace(package, output=replace(package.output, schema=schema))


def _id(schema: dict[str, Any]) -> Any:
    """A schema's id. Schemas are compiled without `$id`, so the title stands for it."""
    return schema.get("$id", schema.get("title"))


def refuse_changed(file: PackageFile) -> None:
    """Refuse a package that is not what its fingerprint says."""
    found = fingerprint(file.agent)
    if found != file.fingerprint:
        raise PackageError(
            "package.fingerprint_mismatch",
            "the package is not what its fingerprint says",
            fields={"pinned": file.fingerprint, "found": found},
        )


# --- 3 --------------------------------------------------------------------------------------------------------


def refuse_missing(world: World, package: Package, run: str) -> None:
    if lack := missing(world, package):
        lack.fields["run"] = run
        raise lack


def _admitted(
    host: Host, ports: Ports, request: Request, file: PackageFile, run: str, world: World
) -> tuple[Session, RunStarted]:
    input_id = f"{run}.1"
    try:
        session = host.sessions.find(request.session, host.is_over)
        before = earlier(session.runs, file.agent.session, ports.journal.records)
        before = replace(before, messages=(*before.messages, *request.history))
        admitted = admit(file.agent, request.message, request.params, goes_on=request.goes_on)
        if admitted.message is None:
            _refuse_answered(before)
        else:
            refuse_duplicate(file.agent, session, admitted.message, input_id)
        return session, run_started(
            file.agent,
            admitted,
            run=run,
            fingerprint=file.fingerprint,
            replayed=world.replayed,
            attachments=request.attachments,
            earlier=before,
            seed=request.seed,
            programs=world.programs,
        )
    except AgentrunError as error:
        error.fields.setdefault("input_id", input_id)
        raise
    except Exception as error:
        fields = {"input_id": input_id, "reason": type(error).__name__, "run": run}
        message = f"{type(error).__name__} while the input was looked at"
        raise RequestError("input.admission_failed", message, fields=fields) from error


def _refuse_answered(before: Earlier) -> None:
    """Refuse to go on with a conversation in which nothing waits for an answer."""
    last = before.messages[-1] if before.messages else None
    if last is None or isinstance(last, Assistant):
        message = "there is no input, and nothing in the conversation waits for an answer"
        fields = {"expected": "user or tool", "actual": "empty" if last is None else "assistant"}
        raise RequestError("run.invalid_continuation", message, fields=fields)


def refuse_duplicate(package: Package, session: Session, text: str, input_id: str) -> None:
    if package.admission.dedupe and session.has_seen(text):
        raise rejected("duplicate", "the same message was sent in this session before", input_id)


# --- 5 --------------------------------------------------------------------------------------------------------


def _registered(ports: Ports, world: World, session: Session, started: RunStarted, package: PackageFile) -> Accepted:
    if started.run in ports.journal:
        message = f"there is a run {started.run} already; it was not touched"
        raise RequestError("run.duplicate", message, fields={"run": started.run})
    ports.journal.keep(started.run, package)
    log = open_log(world_of_run(world, started.run))
    log.commit(started)
    session.runs.append(started.run)
    if started.input is not None:
        session.saw(words(started.input.parts))
    return Accepted(package, log, world, session)
