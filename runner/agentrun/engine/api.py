"""Three functions to use agentrun from Python: `run`, `resume` and `audit`.

    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.")                  # the real model
    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.", model=model)
    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.", output=Ticket)   # outcome.output: a Ticket
    outcome = agentrun.resume("run-1", journals=journals, model=model)
    agentrun.audit(journals.records("run-1"), package)

Inside an event loop use `await Runtime.in_memory(...).start(Request(...)).wait()`.

Rule 1  Without a step clock a run takes real time, and tools, hooks and sinks that the caller does not replace run for
        real. For a part that the caller replaces, nothing is imported and no variable or command is required.
Rule 2  Only what the other parts need is imported. If the caller replaces the model and everything else, no
        environment variable is read.
Rule 3  An answer can be a value of a Python type: a pydantic model, or any type that pydantic supports. Its JSON Schema
        is the output schema of the run: providers with structured output get it, and the answer is checked against it
        and repaired. Validators that are not part of the schema run at the end: if one fails, the outcome is a failed
        one, with the code `output.invalid`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar, Unpack, overload

import msgspec
from msgspec.structs import replace

from agentrun.canonical_json import pretty_json, sorted_json
from agentrun.compiler.compile import compile, load
from agentrun.compiler.json_schemas import check_schema, resolve_references
from agentrun.compiler.package_file import PackageFile, seal_package
from agentrun.core.audit import find_divergence
from agentrun.core.facts import Record, fact_kind
from agentrun.core.fault import Fault
from agentrun.core.outcome import Outcome
from agentrun.core.package import SINK_KINDS, Package
from agentrun.core.package_tools import TOOL_KINDS, AgentTool, McpTool
from agentrun.engine.approvals import ApprovalCallback
from agentrun.engine.argument_checks import check_run_id, check_type
from agentrun.engine.begin import find_package, name_run_in_errors
from agentrun.engine.clock import StepClock
from agentrun.engine.handle import RunHandle
from agentrun.engine.memory import Journals, MemoryJournals, stored_package
from agentrun.engine.ports import Approver, Clock, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.request import Request, new_run_id
from agentrun.engine.runtime import Runtime
from agentrun.engine.world import iterate_packages, iterate_routes, kind_tag
from agentrun.errors import AuditError, HostError, PackageError
from agentrun.journal.family import call_of
from agentrun.journal.storage import read_journal_file
from agentrun.spec.problems import DocumentError, Source, did_you_mean, quote_text
from agentrun.spec.project import find_project
from agentrun.spec.yaml_parser import parse_yaml_document

_T = TypeVar("_T")

PackageSource: TypeAlias = PackageFile | Package | str | Path
"""A package, or a path: of a package file if it ends with `.json`, otherwise of a spec."""

MAX_OUTPUT_TYPE_ERRORS = 10


class RunOptions(TypedDict, total=False):
    """The keyword arguments of `run` and `resume`."""

    model: Provider | Mapping[str, Provider]
    """One model for all providers, or one for each provider by name. Absent: the real models, with keys from the
    environment."""
    env_file: str | Path
    """A file with more environment variables for the real models, tools and sinks."""
    project: str | Path
    """The project with the functions, commands and files of the package. Absent: the project of the spec; for a
    package, the project of the current folder."""
    tools: Mapping[str, Executor]
    """Executors by tool name or tool kind. Other tools run for real, as the spec declares them."""
    hooks: Mapping[str, HookFunction]
    """Hooks by id. Other hooks run for real."""
    sinks: Mapping[str, SinkPort]
    """Sinks by name or kind. Other sinks run for real."""
    approver: Approver | ApprovalCallback
    """Answers approval questions: an object, or a function `question -> "approved"` (or `"denied"`, a bool, …). Without
    it the run is suspended at a question."""
    clock: Clock
    """With a `StepClock` a run takes no real time and run ids are the same every time."""


@overload
def run(
    package: PackageSource,
    message: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    output: dict[str, Any] | None = None,
    journals: Journals | None = None,
    **world: Unpack[RunOptions],
) -> Outcome: ...


@overload
def run(
    package: PackageSource,
    message: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    output: type[_T],
    journals: Journals | None = None,
    **world: Unpack[RunOptions],
) -> Outcome[_T]: ...


def run(
    package: PackageSource,
    message: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    output: Any = None,
    journals: Journals | None = None,
    **world: Unpack[RunOptions],
) -> Outcome:
    """Run an agent. The other keywords are those of `RunOptions`: `model=`, `tools=`, `approver=` and more.

    `output`: the type of the answer, as a JSON Schema or a Python type. With a pydantic model, or any type that
    pydantic supports, the `output` of the outcome is a value of that type. `journals`: where the journal is stored.
    """
    _check_options(world)
    check_type("params", params, (Mapping, NoneType), "a mapping of names to values")
    contract = None if output is None or isinstance(output, dict) else OutputType(output)
    schema = output if contract is None else contract.schema
    file, journals = load_package_source(package), MemoryJournals() if journals is None else journals
    _check_journals(journals)
    run = "run-1" if isinstance(world.get("clock"), StepClock) else new_run_id()
    request = Request(
        agent=file.agent.name, package=file, message=message, params=dict(params or {}), output=schema, run=run
    )
    with name_run_in_errors(run):
        agent = find_package({}, request).agent
        ending = _run_to_end(agent, journals, world, _project_path(package, world), lambda r: r.start(request))
    return ending if contract is None else contract.convert_outcome(ending)


def resume(
    run: str,
    *,
    journals: Journals,
    package: PackageSource | None = None,
    finished_ok: bool = False,
    **world: Unpack[RunOptions],
) -> Outcome:
    """Continue a run with the package that is stored with it, or with another one. If the run is finished, raise
    `run.invalid_state`, or with `finished_ok` return its outcome."""
    _check_options(world)
    check_run_id(run)
    _check_journals(journals)
    file = stored_package(journals, run) if package is None else load_package_source(package)
    project = _project_path(file if package is None else package, world)
    return _run_to_end(
        file.agent, journals, world, project, lambda r: r.resume(run, with_package=file, finished_ok=finished_ok)
    )


def audit(journal: Iterable[Record] | str | Path, package: PackageSource) -> None:
    """Raise `audit.diverged` at the first decision of a journal that this release would not make."""
    check_type("journal", journal, (str, PathLike, Iterable), "a path or the records of a journal")
    records = read_journal_file(Path(journal)) if isinstance(journal, str | PathLike) else journal
    refuse_divergence(records, load_package_source(package).agent)


def load_package_source(package: PackageSource) -> PackageFile:
    check_type("package", package, (PackageFile, Package, str, PathLike), "a package, or the path of a spec or package")
    match package:
        case PackageFile():
            return package
        case Package():
            return seal_package(package)
        case _:
            return load(package) if Path(package).suffix == ".json" else compile(package)


def providers_by_name(package: Package, model: Provider | Mapping[str, Provider] | None) -> dict[str, Provider]:
    if model is None or isinstance(model, Mapping):
        return dict(model or {})
    return dict.fromkeys(sorted({route.provider for _, route in iterate_routes(package)}), model)


def _project_path(package: PackageSource, world: RunOptions) -> Path:
    if "project" in world:
        return Path(world["project"]) / "package.json"
    is_spec = isinstance(package, str | Path) and Path(package).suffix != ".json"
    return Path(package) if is_spec else Path("package.json")  # type: ignore[arg-type]  # a spec is a path


def _run_to_end(
    package: Package, journals: Journals, world: RunOptions, project: Path, begin: Callable[[Runtime], RunHandle]
) -> Outcome:
    refuse_unknown_ports(package, world)
    clock = world.get("clock")
    if isinstance(clock, StepClock):
        runtime = Runtime.in_memory(**_runtime_arguments(package, journals, world), clock=clock)
        return clock.run(begin(runtime).wait())
    import asyncio  # late: a step clock needs no event loop

    from agentrun.engine.event_loop import run_event_loop  # late: as above

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        arguments = {**_runtime_arguments(package, journals, world), "clock": clock, "live": "model" not in world}
        env_file = Path(world["env_file"]) if "env_file" in world else None
        return run_event_loop(run_in_event_loop(package, arguments, project, env_file, begin))
    raise RuntimeError(
        "agentrun.run() cannot be called inside an event loop; "
        "use await Runtime.in_memory(...).start(Request(...)).wait()"
    )


def _runtime_arguments(package: Package, journals: Journals, world: RunOptions) -> dict[str, Any]:
    return {
        "journals": journals,
        "providers": providers_by_name(package, world.get("model")),
        "executors": dict(world.get("tools", {})),
        "hooks": dict(world.get("hooks", {})),
        "sinks": dict(world.get("sinks", {})),
        "approver": world.get("approver"),
    }


def _check_options(options: RunOptions) -> None:
    """Check what can be checked without the package."""
    refuse_unknown_keywords(options, RunOptions.__annotations__)
    for name in ("env_file", "project"):
        if name in options:
            check_type(name, options[name], (str, PathLike), "a path")
    _check_methods("clock", options.get("clock"), ("now", "sleep_until"))
    if not callable(options.get("approver")):
        _check_methods("approver", options.get("approver"), ("answer",))


def _check_journals(journals: object) -> None:
    _check_methods("journals", journals, ("open", "keep", "package", "records"))


def _check_methods(name: str, value: object, methods: Iterable[str]) -> None:
    for method in methods if value is not None else ():
        if not callable(getattr(value, method, None)):
            raise TypeError(f"`{name}` must be an object with a method `{method}`, not {type(value).__name__}")


def refuse_unknown_keywords(options: Collection[str], known: Collection[str]) -> None:
    for word in options:
        if word not in known:
            hint = did_you_mean(word, known)
            raise TypeError(f"unknown keyword argument {word!r}" + (f": {hint}" if hint else ""))


def refuse_unknown_ports(package: Package, options: Mapping[str, Any]) -> None:
    """Raise `host.missing` for a tool, hook or sink that no package has or that lacks its method."""
    packages = tuple(iterate_packages(package))
    tools = [item for each in packages for item in each.tools.items()]
    served = {f"{name}.{inner}" for name, tool in tools if isinstance(tool, McpTool) for inner in tool.pinned}
    known = {
        "tools": {*TOOL_KINDS, *dict(tools), *served},
        "hooks": {hook.id for each in packages for hook in each.hooks},
        "sinks": {*SINK_KINDS, *(name for each in packages for name in each.sinks)},
    }
    for key, names in known.items():
        if not isinstance(options.get(key, {}), Mapping):
            message = f"`{key}` must be a mapping from names to {key}, not a {type(options[key]).__name__}"
            raise HostError("host.missing", message, fields={"name": key, "what": key})
        for name in options.get(key, ()):
            if name not in names:
                what = key.removesuffix("s")
                hint = did_you_mean(name, names) or f"use the names that the spec declares under `{key}`"
                message = f"the agent has no {what} {quote_text(name)}"
                raise HostError("host.missing", message, hint=hint, fields={"name": name, "what": what})
    _refuse_without_method(options)


def _refuse_without_method(options: Mapping[str, Any]) -> None:
    needed = {
        "model": ("ask", "effect, delta -> Reply | Fault"),
        "tools": ("run", "call -> Returned"),
        "sinks": ("deliver", "delivery -> Fault | None"),
    }
    for name, function in options.get("hooks", {}).items():
        if not callable(function):
            message = f"the object for the hook {quote_text(name)} is not a function: question -> answer"
            raise HostError("host.missing", message, fields={"name": name, "what": "hook"})
    for key, (method, form) in needed.items():
        parts = options.get(key, {})
        for name, part in (parts if isinstance(parts, Mapping) else {"": parts}).items():
            if not callable(getattr(part, method, None)):
                what = key.removesuffix("s")
                label = f"{what} {quote_text(name)}" if name else what
                message = f"the object for the {label} has no method `{method}`: {form}"
                raise HostError("host.missing", message, fields={"name": name, "what": what})


async def run_in_event_loop(
    package: Package,
    arguments: dict[str, Any],
    project: Path,
    env_file: Path | None,
    begin: Callable[[Runtime], RunHandle],
) -> Outcome:
    """Run to the end. `arguments`: those of the runtime; `project`: a path in the project."""
    rest, live = _without_replaced_ports(package, arguments), arguments.pop("live")
    if not live and not _needs_real_ports(rest):
        return await wait_or_cancel(begin(Runtime.in_memory(**arguments)))
    from agentrun.engine.live_providers import live_settings  # late: Rule 2

    found = find_project(project)
    options = {"models": live, "parts": rest, "settings": live_settings(package, found.root, env_file)}
    async with (
        Runtime.in_memory(**arguments) as runtime,
        runtime.live_world(package, found, **options) as world,
    ):
        runtime.add_ports(world)
        await world.prepare()
        return await wait_or_cancel(begin(runtime))


async def wait_or_cancel(handle: RunHandle) -> Outcome:
    """Wait for the end of a run. If the wait is cancelled, the run is cancelled too."""
    import asyncio  # late: a step clock needs no event loop

    try:
        return await handle.wait()
    except asyncio.CancelledError:  # end the run while its journal can still be written
        handle.cancel("host")
        with suppress(Exception):
            await asyncio.shield(handle.wait())
        raise


def _without_replaced_ports(package: Package, arguments: Mapping[str, Mapping[str, Any]]) -> Package:
    executors, hooks, sinks = arguments["executors"], arguments["hooks"], arguments["sinks"]
    servers = {name.partition(".")[0] for name in executors}
    return replace(
        package,
        tools={
            name: tool
            for name, tool in package.tools.items()
            if isinstance(tool, AgentTool) or not _is_replaced(executors, servers, name, kind_tag(tool))
        },
        hooks=tuple(hook for hook in package.hooks if hook.id not in hooks),
        sinks={
            name: sink
            for name, sink in package.sinks.items()
            if sink.delivery != "disabled" and name not in sinks and kind_tag(sink) not in sinks
        },
        agents={name: _without_replaced_ports(agent, arguments) for name, agent in package.agents.items()},
    )


def _is_replaced(executors: Iterable[str], servers: Iterable[str], name: str, kind: str) -> bool:
    return name in executors or kind in executors or (kind == "mcp" and name in servers)


def _needs_real_ports(package: Package) -> bool:
    return any(
        each.hooks or each.sinks or any(not isinstance(tool, AgentTool) for tool in each.tools.values())
        for each in iterate_packages(package)
    )


class OutputType(Generic[_T]):
    def __init__(self, kind: type[_T]) -> None:
        """Raises `package.invalid` if the schema of the type cannot be used."""
        from pydantic import PydanticUserError, TypeAdapter  # late: it takes half a second

        try:
            self._adapter: TypeAdapter[_T] = TypeAdapter(kind)
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise _unusable_type_error(kind, str(error).splitlines()[0]) from None
        self._kind = kind
        self.schema = _plain_schema(kind, schema)

    def convert_outcome(self, outcome: Outcome) -> Outcome[_T]:
        """The outcome with a value of the type. If a validator refuses the answer, the outcome is a failed one."""
        if not outcome.ok:
            return outcome
        from pydantic import ValidationError  # late: it takes half a second

        try:
            value = self._adapter.validate_json(sorted_json(outcome.output))
            return replace(outcome, output=value).with_trail_of(outcome)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[:MAX_OUTPUT_TYPE_ERRORS]
            errors = [f"/{'/'.join(map(str, each['loc']))}: {each['msg']}" for each in found]
            message = f"the answer matches the schema of {_type_name(self._kind)}, but not its validators: {errors[0]}"
            fault = Fault("output.invalid", message, {"errors": errors, "run": outcome.run})
            return replace(outcome, status="failed", answer=None, output=None, fault=fault).with_trail_of(outcome)


def _plain_schema(kind: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without references and without keywords that only pydantic uses."""
    try:
        node = parse_yaml_document(Source(Path("/schema"), "schema", pretty_json(_without_discriminators(schema))))
    except DocumentError as error:
        raise _unusable_type_error(kind, error.problems[0].message) from None
    if found := check_schema(node):
        raise _unusable_type_error(kind, found[0].message, found[0].hint)
    return {"title": _type_name(kind), **resolve_references(node)}


def _without_discriminators(schema: Any) -> Any:
    match schema:
        case dict():
            return {key: _without_discriminators(inner) for key, inner in schema.items() if key != "discriminator"}
        case list():
            return [_without_discriminators(inner) for inner in schema]
    return schema


def _unusable_type_error(kind: Any, why: str, hint: str | None = None) -> PackageError:
    fields = {"pointer": "/output/schema", "type": _type_name(kind)}
    message = f"{_type_name(kind)} cannot be used as output: {why}"
    return PackageError("package.invalid", message, hint=hint, fields=fields)


def _type_name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)


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
