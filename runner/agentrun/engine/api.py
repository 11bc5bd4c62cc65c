"""The runtime as three small functions, for Python users.

    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.")                  # the real model
    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.", model=model)
    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.", output=Ticket)   # outcome.output: a Ticket
    outcome = agentrun.resume("run-1", journals=journals, model=model)
    agentrun.audit(journals.records("run-1"), package)

In an event loop of one's own: `await Runtime.in_memory(...).start(Request(...)).wait()`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack, overload

import msgspec

from agentrun.compiler.compile import compile, load
from agentrun.compiler.package_file import PackageFile, seal_package
from agentrun.core.audit import find_divergence as first_divergence
from agentrun.core.facts import Record, fact_kind
from agentrun.core.outcome import Ending, Outcome, Parked, Suspended
from agentrun.core.package import Package
from agentrun.core.package_tools import McpTool
from agentrun.engine.approvals import ApprovalCallback
from agentrun.engine.begin import find_package
from agentrun.engine.clock import StepClock
from agentrun.engine.handle import RunHandle
from agentrun.engine.memory import Journals, MemoryJournals, stored_package
from agentrun.engine.ports import Approver, Clock, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.engine.typed_output import OutputType, TypedOutcome
from agentrun.engine.unreachable_ports import SINK_KINDS, TOOL_KINDS
from agentrun.engine.world import iterate_packages
from agentrun.errors import AuditError, HostError
from agentrun.journal.storage import read_journal_file
from agentrun.spec.problems import did_you_mean, quote_text

_T = TypeVar("_T")

PackageSource: TypeAlias = PackageFile | Package | str | Path
"""A package, or a file: of a package when its name ends with .json, else of a spec."""


class RunOptions(TypedDict, total=False):
    """Who does what a run asks for."""

    model: Provider | Mapping[str, Provider]
    """One for all providers, or one for each by name. Absent: the real ones, with keys from the environment."""
    env_file: Path
    """A file with further variables of the environment, for the real models, tools and sinks."""
    project: Path
    """The project in which the functions, commands and files of a package are found. Absent: the one of the spec; of a
    package, the one of the current folder."""
    tools: Mapping[str, Executor]
    """By the name of the tool, or by its kind. For others the spec's own are run, in real time."""
    hooks: Mapping[str, HookFunction]
    """By the hook's id. Others are those of the spec, as above."""
    sinks: Mapping[str, SinkPort]
    """By the name of the sink, or by its kind. Others are those of the spec, as above."""
    approver: Approver | ApprovalCallback
    """Whom questions are put to: an object, or a function `question -> "approved"` (or `"denied"`, a bool, …). Without
    one the run is suspended."""
    clock: Clock
    """A `StepClock` takes no real time, and makes ids that are the same every time."""


@overload
def run(
    package: PackageSource,
    message: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    output: dict[str, Any] | None = None,
    journals: Journals | None = None,
    **world: Unpack[RunOptions],
) -> Ending: ...


@overload
def run(
    package: PackageSource,
    message: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    output: type[_T],
    journals: Journals | None = None,
    **world: Unpack[RunOptions],
) -> TypedOutcome[_T] | Suspended | Parked: ...


def run(
    package: PackageSource,
    message: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    output: Any = None,
    journals: Journals | None = None,
    **world: Unpack[RunOptions],
) -> Ending:
    """Run an agent. Further keywords are those of `RunOptions`: `model=`, `tools=`, `approver=` and others.

    `output`: what the answer has to be, as a JSON Schema or as a type. A model of pydantic, or whatever else pydantic
    can describe, gives an outcome whose `output` is a value of it. `journals`: where the run is written to.
    """
    refuse_unknown_keywords(world, RunOptions.__annotations__)
    contract = None if output is None or isinstance(output, dict) else OutputType(output)
    schema = output if contract is None else contract.schema
    file = load_package_source(package)
    request = Request(agent=file.agent.name, package=file, message=message, params=dict(params or {}), output=schema)
    agent = find_package({}, request).agent
    ended = _run_to_end(
        agent, journals or MemoryJournals(), world, _project_path(package, world), lambda r: r.start(request)
    )
    return ended if contract is None or not isinstance(ended, Outcome) else contract.convert_outcome(ended)


def resume(
    run: str,
    *,
    journals: Journals,
    package: PackageSource | None = None,
    finished_ok: bool = False,
    **world: Unpack[RunOptions],
) -> Ending:
    """Go on with a run: with the package that is stored with it, or with another one.

    A run that is over raises `run.invalid_state`; with `finished_ok` its outcome is returned.
    """
    refuse_unknown_keywords(world, RunOptions.__annotations__)
    file = stored_package(journals, run) if package is None else load_package_source(package)
    project = _project_path(file if package is None else package, world)
    return _run_to_end(
        file.agent, journals, world, project, lambda r: r.resume(run, with_package=file, finished_ok=finished_ok)
    )


def audit(journal: Iterable[Record] | str | Path, package: PackageSource) -> None:
    """Raises `audit.diverged` at the first decision that would not be made today. `journal`: records, or a file."""
    records = read_journal_file(Path(journal)) if isinstance(journal, str | Path) else journal
    found = first_divergence(load_package_source(package).agent, records)
    if found is None:
        return
    today = found.instead[0] if found.instead else None
    name = "nothing" if today is None else fact_kind(today)
    raise AuditError(
        "audit.diverged",
        f"record {found.seq} is {fact_kind(found.was)}; today it would be {name}",
        fields={"seq": found.seq, "was": msgspec.to_builtins(found.was), "is": msgspec.to_builtins(today)},
    )


def load_package_source(package: PackageSource) -> PackageFile:
    match package:
        case PackageFile():
            return package
        case Package():
            return seal_package(package)
        case _:
            return load(package) if Path(package).suffix == ".json" else compile(package)


def providers_by_name(package: Package, model: Provider | Mapping[str, Provider] | None) -> dict[str, Provider]:
    """The models by provider; one stands for all that a package and its sub-agents name."""
    if model is None or isinstance(model, Mapping):
        return dict(model or {})
    return dict.fromkeys(sorted(_provider_names(package)), model)


def _provider_names(package: Package) -> set[str]:
    own = {route.provider for route in package.model.routes}
    return own.union(*(_provider_names(agent) for agent in package.agents.values()))


def _project_path(package: PackageSource, world: RunOptions) -> Path:
    """A path in the project of a run."""
    if "project" in world:
        return world["project"] / "package.json"
    is_spec = isinstance(package, str | Path) and Path(package).suffix != ".json"
    return Path(package) if is_spec else Path("package.json")  # type: ignore[arg-type]  # a spec is a path


def _run_to_end(
    package: Package, journals: Journals, world: RunOptions, project: Path, begin: Callable[[Runtime], RunHandle]
) -> Ending:
    """What comes of a run, in whatever time its clock has."""
    refuse_unknown_ports(package, world)
    clock = world.get("clock")
    if isinstance(clock, StepClock):
        numbers = count(1)
        runtime = Runtime.in_memory(
            **_runtime_arguments(package, journals, world), clock=clock, ids=lambda: f"run-{next(numbers)}"
        )
        return clock.run(begin(runtime).wait())
    import asyncio  # late: a clock moved by hand needs no event loop

    from agentrun.engine.live_api import run_in_event_loop  # late: as above

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        given = {**_runtime_arguments(package, journals, world), "clock": clock, "live": "model" not in world}
        return asyncio.run(run_in_event_loop(package, given, project, world.get("env_file"), begin))
    raise RuntimeError("in an event loop: await Runtime.in_memory(...).start(Request(...)).wait()")


def _runtime_arguments(package: Package, journals: Journals, world: RunOptions) -> dict[str, Any]:
    """What a runtime is made of that the caller gives."""
    return {
        "journals": journals,
        "providers": providers_by_name(package, world.get("model")),
        "executors": dict(world.get("tools", {})),
        "hooks": dict(world.get("hooks", {})),
        "sinks": dict(world.get("sinks", {})),
        "approver": world.get("approver"),
    }


# --- what a caller from Python gives must be meant for something ----------------------------------------------


def refuse_unknown_keywords(options: Collection[str], known: Collection[str]) -> None:
    """Raises TypeError, as Python does, for a keyword that there is not."""
    for word in options:
        if word not in known:
            hint = did_you_mean(word, known)
            raise TypeError(f"there is no keyword {word!r}" + (f": {hint}" if hint else ""))


def refuse_unknown_ports(package: Package, options: Mapping[str, Any]) -> None:
    """Raises `host.missing` for a tool, hook or sink that neither the package nor a sub-agent has, or that is none."""
    packages = tuple(iterate_packages(package))
    known = {
        "tools": {*TOOL_KINDS, *(name for each in packages for name in _tool_names(each))},
        "hooks": {hook.id for each in packages for hook in each.hooks},
        "sinks": {*SINK_KINDS, *(name for each in packages for name in each.sinks)},
    }
    for key, names in known.items():
        if not isinstance(options.get(key, {}), Mapping):
            message = f"`{key}` is given by name: a mapping, not a value of {type(options[key]).__name__}"
            raise HostError("host.missing", message, fields={"name": key, "what": key})
        for name in options.get(key, ()):
            if name not in names:
                what = key.removesuffix("s")
                hint = did_you_mean(name, names) or f"give only what the spec names under `{key}`"
                message = f"the agent has no {what} {quote_text(name)}"
                raise HostError("host.missing", message, hint=hint, fields={"name": name, "what": what})
    _refuse_without_method(options)


def _refuse_without_method(options: Mapping[str, Any]) -> None:
    """Raises `host.missing` for what cannot do what it is given for: a plain function as a tool, say."""
    needed = {
        "model": ("ask", "effect, delta -> Reply | Fault"),
        "tools": ("run", "call -> Returned"),
        "sinks": ("deliver", "delivery -> Fault | None"),
    }
    for key, (method, form) in needed.items():
        parts = options.get(key, {})
        for name, part in (parts if isinstance(parts, Mapping) else {"": parts}).items():
            if not callable(getattr(part, method, None)):
                what = key.removesuffix("s")
                called = f"{what} {quote_text(name)}" if name else what
                message = f"what is given as the {called} has no method `{method}`: {form}"
                raise HostError("host.missing", message, fields={"name": name, "what": what})


def _tool_names(package: Package) -> Iterator[str]:
    for name, tool in package.tools.items():
        yield name
        if isinstance(tool, McpTool):
            yield from (f"{name}.{inner}" for inner in tool.pinned)
