"""The world of a live run: real models, tools, hooks and sinks, with the credentials of the environment. In a partial
replay the model or the tools come from a cassette, and the rest is live.

Rule 1  All commands that are not installed and all variables that are not set are reported before the run starts.
Rule 2  Only the ports that a package names are created and imported. The functions of the project are imported right
        before the run starts (`World.prepare`), after its policy and its user have allowed it.
Rule 3  Everything that was opened for the run is closed at its end.
Rule 4  A secret of the environment appears in no fact, event or file of the run. Error replies are redacted when they
        arrive, because a fault contains only a part of the reply, and a part of a secret could not be recognised.

Importing this module takes a second, so only live runs do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from agentrun.cassette.interactions import Interaction
from agentrun.cassette.player import Player
from agentrun.cassette.redaction import redact_interaction
from agentrun.core.facts import StandIns
from agentrun.core.package import Package, tool_command
from agentrun.engine import cassette_ports
from agentrun.engine.crew_registry import CrewRegistry
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.http_clients import HttpClients
from agentrun.engine.kinds import open_executor, open_sink
from agentrun.engine.live_providers import (
    known_secrets,
    live_providers,
    live_sender,
    live_settings,
    part_variables,
)
from agentrun.engine.memory import Journals, MemoryBlobs, MemoryJournals
from agentrun.engine.perform import make_crew
from agentrun.engine.ports import Approver, Blobs, HookFunction
from agentrun.engine.settings import Settings
from agentrun.engine.world import Listener, World, iterate_packages, kind_tag, wrap
from agentrun.engine.worlds.replay import UNREACHABLE, unreachable_parts, unreachable_providers
from agentrun.errors import HostError
from agentrun.net.environment import Lookup
from agentrun.redactor import Redactor
from agentrun.spec.project import Project
from agentrun.store.inbox import Inbox
from agentrun.wire import HttpCall, HttpReply, Sender

Requirements: TypeAlias = dict[str, list[str]]
"""Names of commands or variables, each with the tools and sinks that need it."""


@asynccontextmanager
async def live_world(
    package: Package,
    project: Project,
    run: str = "",
    *,
    models: bool = True,
    parts: Package | None = None,
    approver: Approver | None = None,
    suspends: bool = False,
    inbox: Inbox | None = None,
    journals: Journals | None = None,
    blobs: Blobs | None = None,
    printed: Callable[[str, str], None] = lambda tool, text: None,
    write: Callable[[str], None] = print,
    listen: Listener = lambda run, news: None,
    settings: Settings | None = None,
    clients: HttpClients | None = None,
    stand_ins: StandIns | UnsetType = UNSET,
) -> AsyncIterator[World]:
    """The world of a live run. Raises `host.missing`, `provider.not_found`, `package.invalid`.

    `models`: whether to create the models. `parts`: the package with the tools, hooks and sinks to create; None: all.
    `settings`: those of the run, if the caller has read them. `printed` is called with the output of Python tools;
    `write` prints a line to standard output, for a sink. `clients`: those of the runtime; None: the world is the only
    one of its runtime, and closes its client. `stand_ins`, `suspends`, `inbox`: as in a `World`.
    """
    settings = settings or live_settings(package, project.root)
    async with HttpClients() as own, AsyncExitStack() as opened:
        ports = make_live_ports(
            package, project, settings, clients or own, models=models, parts=parts, printed=printed, write=write
        )
        for close in closing_functions(ports):
            opened.push_async_callback(close)
        journals = MemoryJournals() if journals is None else journals
        own_parts = {"approver": approver, "suspends": suspends, "inbox": inbox, "listen": listen}
        yield world_with_ports(ports, run, journals=journals, blobs=blobs, stand_ins=stand_ins, **own_parts)


def make_live_ports(
    package: Package,
    project: Project,
    settings: Settings,
    clients: HttpClients,
    *,
    models: bool = True,
    parts: Package | None = None,
    printed: Callable[[str, str], None] = lambda tool, text: None,
    write: Callable[[str], None] = print,
) -> dict[str, Any]:
    """The fields of a live world that do not depend on its run. The arguments and errors are those of `live_world`."""
    redactor = Redactor(known_secrets(package, settings.variables(), project.secrets))
    sender = live_sender(settings, clients.client(project.root, settings))
    packages = tuple(iterate_packages(parts or package))
    programs = check_requirements(packages, project.root, settings.secret)
    import_roots = tuple(project.root / root for root in project.import_roots)
    shown = {"printed": printed, "clean": redactor.redact_string}
    return {
        "hooks": _make_hooks(packages, import_roots, shown),
        "sinks": {kind: open_sink(kind, project.root, sender, write) for kind in _sink_kinds(packages)},
        "prepare": partial(_import_functions, packages, project, import_roots, {**shown, "lookup": settings.secret}),
        "providers": live_providers(package, settings, _RedactingSender(sender, redactor)) if models else {},
        "executors": {
            kind: open_executor(kind, project.root, import_roots, programs, settings.secret, sender, shown)
            for kind in sorted({kind_tag(tool) for each in packages for tool in each.tools.values()} - {"agent"})
        },
        "programs": programs,
        "redactor": redactor,
    }


def closing_functions(ports: dict[str, Any]) -> list[Callable[[], Awaitable[None]]]:
    """What closes live ports at the end of a run."""
    return [close for part in ports["executors"].values() if (close := getattr(part, "close", None)) is not None]


def world_with_ports(ports: dict[str, Any], run: str, *, blobs: Blobs | None, **own: Any) -> World:
    """The world of a run with live ports. `own`: the other fields of a `World`."""
    clock = SystemClock()
    memory = _SecretFreeBlobs(MemoryBlobs() if blobs is None else blobs, ports["redactor"])
    return World(
        crew=make_crew, run=run, **{"clock": clock, "crews": CrewRegistry(clock), **ports, "blobs": memory, **own}
    )


def _sink_kinds(packages: tuple[Package, ...]) -> list[str]:
    sinks = [sink for each in packages for sink in each.sinks.values() if sink.delivery != "disabled"]
    return sorted(set(map(kind_tag, sinks)))


async def _import_functions(
    packages: tuple[Package, ...], project: Project, import_roots: tuple[Path, ...], shown: dict[str, Any]
) -> None:
    if not any(each.hooks or any(kind_tag(tool) == "python" for tool in each.tools.values()) for each in packages):
        return
    from agentrun.tools.function_imports import import_functions, python_parts  # late: Rule 2

    await import_functions(python_parts(packages), import_roots, project.root, **shown)


def _make_hooks(
    packages: tuple[Package, ...], import_roots: tuple[Path, ...], shown: dict[str, Any]
) -> dict[str, HookFunction]:
    hooks = [hook for each in packages for hook in each.hooks]
    if not hooks:
        return {}
    from agentrun.tools.python import load_python_hooks  # late: Rule 2

    return load_python_hooks(import_roots, hooks, **shown)


class _SecretFreeBlobs:
    """Keeps contents with a secret in memory. A run that is resumed without them fails with `context.failed`."""

    def __init__(self, blobs: Blobs, redactor: Redactor) -> None:
        self._blobs = blobs
        self._redactor = redactor
        self._secret = MemoryBlobs()

    def put(self, data: bytes) -> str:
        return (self._secret if self._redactor.changes(data) else self._blobs).put(data)

    def get(self, blob: str) -> bytes:
        return self._secret.get(blob) if blob in self._secret else self._blobs.get(blob)


class _RedactingSender:
    """Redacts the replies that are not a success."""

    def __init__(self, sender: Sender, redactor: Redactor) -> None:
        self._sender = sender
        self._redactor = redactor

    async def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> HttpReply:
        reply = await self._sender.send(call, gap=gap, time=time, heard=heard)
        return reply if reply.status == 200 else redact_interaction(Interaction(call, reply), self._redactor).reply


def check_requirements(packages: Iterable[Package], root: Path, lookup: Lookup) -> dict[str, str]:
    """Find the file of each command. Raises `host.missing` with all missing commands and variables."""
    variables: Requirements = {}
    commands: Requirements = {}
    for package in packages:
        for name, tool in package.tools.items():
            _add_requirement(variables, part_variables(tool), f"tool {name}")
            _add_requirement(commands, filter(None, [tool_command(tool)]), f"tool {name}")
        for name, sink in package.sinks.items():
            if sink.delivery != "disabled":
                _add_requirement(variables, part_variables(sink), f"sink {name}")
    programs: dict[str, str] = {}
    missing = [
        *_find_missing(variables, lookup),
        *_find_missing(dict(sorted(commands.items())), lambda each: _find_program(each, root, programs)),
    ]
    if missing:
        raise _all_missing_error(missing)
    return programs


def _add_requirement(requirements: Requirements, names: Iterable[str], user: str) -> None:
    for name in names:
        users = requirements.setdefault(name, [])
        if user not in users:
            users.append(user)


def _find_program(command: str, root: Path, programs: dict[str, str]) -> None:
    from agentrun.tools.shell import find_programs  # late: only a package with commands needs it

    programs |= find_programs([command], root)


def _find_missing(requirements: Requirements, find: Callable[[str], object]) -> Iterator[tuple[HostError, str]]:
    for name, users in requirements.items():
        try:
            find(name)
        except HostError as error:
            yield error, ", ".join(users)


def _all_missing_error(missing: list[tuple[HostError, str]]) -> HostError:
    first = missing[0][0]
    message = "; ".join(f"{error.message} (needed by {users})" for error, users in missing)
    hints = dict.fromkeys(error.hint for error, _ in missing if error.hint)
    names = [error.fields["name"] for error, _ in missing]
    return HostError("host.missing", message, hint="; ".join(hints) or None, fields={**first.fields, "names": names})


# --- partial replays --------------------------------------------------------------------------------------------------

LiveAxis: TypeAlias = Literal["tools", "model"]


@asynccontextmanager
async def mixed_world(
    package: Package,
    project: Project,
    run: str,
    player: Player,
    live: LiveAxis,
    approver: Approver | None,
    **options: Any,
) -> AsyncIterator[World]:
    """If the tools are replayed, the answers of `approver` replace the recorded ones. `options`: of a live world."""
    exchanger = cassette_ports.ReplayExchanger(player, None)
    if live == "tools":
        async with live_world(package, project, run, models=False, approver=approver, **options) as world:
            world = replace(world, providers=unreachable_providers(package))
            yield wrap(
                world, cassette_ports.models_wrapper(exchanger), cassette_ports.answer_comparison_wrapper(exchanger)
            )
    else:
        parts = replace(package, tools={}, hooks=(), sinks={}, agents={})
        async with live_world(package, project, run, parts=parts, approver=UNREACHABLE, **options) as world:
            world = replace(world, **unreachable_parts(package))
            yield wrap(world, cassette_ports.other_ports_wrapper(exchanger, approver))
