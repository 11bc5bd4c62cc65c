"""The runtime as three small functions, for Python users.

    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.")                  # the real model
    outcome = agentrun.run("specs/triage.yaml", "The printer is on fire.", model=model)
    outcome = agentrun.resume("run-1", journals=journals, model=model)
    agentrun.audit(journals.records("run-1"), package)

In an event loop of one's own: `await Runtime.in_memory(...).start(Request(...)).wait()`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack

import msgspec

from agentrun.compiler.api import compile, load
from agentrun.compiler.fingerprint import PackageFile, sealed
from agentrun.core.audit import audit as first_divergence
from agentrun.core.facts import Record, kind_of
from agentrun.core.outcome import Outcome, Suspended
from agentrun.core.package import Package
from agentrun.engine.approvals import Callback
from agentrun.engine.clock import StepClock
from agentrun.engine.handle import RunHandle
from agentrun.engine.memory import Journals, MemoryJournals, stored_package
from agentrun.engine.ports import Approver, Clock, Executor, Hook, Provider, SinkPort
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.errors import AuditError
from agentrun.journal.file import read_file

AnyPackage: TypeAlias = PackageFile | Package | str | Path
"""A package, or a file: of a package when its name ends with .json, else of a spec."""


Close: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class World(TypedDict, total=False):
    """Who does what a run asks for."""

    model: Provider | Mapping[str, Provider]
    """One for all providers, or one for each by name. Absent: the real ones, with keys from the environment."""
    env_file: Path
    """A file with further variables of the environment, for the real models."""
    tools: Mapping[str, Executor]
    """By the name of the tool, or by its kind."""
    hooks: Mapping[str, Hook]
    sinks: Mapping[str, SinkPort]
    approver: Approver | Callback
    """Whom questions are put to: an object, or a function `question -> "approved"` (or `"denied"`, a bool, …). Without
    one the run is suspended."""
    clock: Clock
    """A `StepClock` takes no real time, and makes ids that are the same every time."""


def run(
    package: AnyPackage,
    message: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    output: dict[str, Any] | None = None,
    journals: Journals | None = None,
    **world: Unpack[World],
) -> Outcome | Suspended:
    """Run an agent. `output` is a JSON Schema of the answer; `journals` is where the run is written to."""
    file = package_of(package)
    runtime = _runtime(file.agent, journals or MemoryJournals(), world)
    request = Request(agent=file.agent.name, package=file, message=message, params=dict(params or {}), output=output)
    close = _connected(runtime, runtime.effective_package(request).agent, world)
    return _ended(runtime, lambda: runtime.start(request), close)


def resume(
    run: str, *, journals: Journals, package: AnyPackage | None = None, **world: Unpack[World]
) -> Outcome | Suspended:
    """Go on with a run: with the package that is stored with it, or with another one."""
    file = stored_package(journals, run) if package is None else package_of(package)
    runtime = _runtime(file.agent, journals, world)
    close = _connected(runtime, file.agent, world)
    return _ended(runtime, lambda: runtime.resume(run, with_package=file), close)


def audit(journal: Iterable[Record] | str | Path, package: AnyPackage) -> None:
    """Raises `audit.diverged` at the first decision that would not be made today. `journal`: records, or a file."""
    records = read_file(Path(journal)) if isinstance(journal, str | Path) else journal
    found = first_divergence(package_of(package).agent, records)
    if found is None:
        return
    today = found.instead[0] if found.instead else None
    name = "nothing" if today is None else kind_of(today)
    raise AuditError(
        "audit.diverged",
        f"record {found.seq} is {kind_of(found.was)}; today it would be {name}",
        fields={"seq": found.seq, "was": msgspec.to_builtins(found.was), "is": msgspec.to_builtins(today)},
    )


def package_of(package: AnyPackage) -> PackageFile:
    match package:
        case PackageFile():
            return package
        case Package():
            return sealed(package)
        case _:
            return load(package) if Path(package).suffix == ".json" else compile(package)


def providers_of(package: Package, model: Provider | Mapping[str, Provider] | None) -> dict[str, Provider]:
    """The models by provider; one stands for all that a package and its sub-agents name."""
    if model is None or isinstance(model, Mapping):
        return dict(model or {})
    return dict.fromkeys(sorted(_named(package)), model)


def _named(package: Package) -> set[str]:
    own = {route.provider for route in package.model.routes}
    return own.union(*(_named(agent) for agent in package.agents.values()))


def _runtime(package: Package, journals: Journals, world: World) -> Runtime:
    clock = world.get("clock")
    numbers = count(1)
    derived = {"ids": lambda: f"run-{next(numbers)}"} if isinstance(clock, StepClock) else {}
    return Runtime.in_memory(
        journals=journals,
        providers=providers_of(package, world.get("model")),
        executors=world.get("tools", {}),
        hooks=world.get("hooks", {}),
        sinks=world.get("sinks", {}),
        approver=world.get("approver"),
        clock=clock,
        **derived,
    )


def _connected(runtime: Runtime, package: Package, world: World) -> Close:
    """Give the runtime the real models, unless there are others or no real time. How to hang up in the end."""
    if "model" in world or isinstance(runtime.clock, StepClock):
        return _nothing
    from agentrun.engine.live import live_providers, live_sender  # late: httpx and pydantic take a second
    from agentrun.engine.settings import Settings  # late: as above

    settings = Settings(world.get("env_file"))
    sender = live_sender(settings)
    for name, provider in live_providers(package, settings, sender).items():
        runtime.providers.add(name, provider)
    return sender.close


async def _nothing() -> None:
    pass


def _ended(runtime: Runtime, begin: Callable[[], RunHandle], close: Close) -> Outcome | Suspended:
    """What comes of a run, in whatever time its clock has."""

    async def ended() -> Outcome | Suspended:
        try:
            return await begin().wait()
        finally:
            await close()

    if isinstance(runtime.clock, StepClock):
        return runtime.clock.run(ended())
    import asyncio  # late: a clock moved by hand needs no event loop

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(ended())
    raise RuntimeError("in an event loop: await Runtime.in_memory(...).start(Request(...)).wait()")
