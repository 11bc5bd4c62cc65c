"""The world of a run in real time: real models, tools, hooks and sinks, with the credentials of the environment.

Rule 1  What a package needs and this machine lacks is found before the run starts, all of it: commands that are not
        installed, variables that are not set.
Rule 2  Only what a package names is made, and imported.
Rule 3  What was opened for the run is closed with it.
Rule 4  A value of the environment that must not be shown is in no fact, no event and no file of the run. What says no
        is cleaned as it comes in: its words are cut for a fault, and half of a secret is known to nobody.

Importing this takes a second: only what goes live does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from agentrun.cassette.interactions import Interaction
from agentrun.cassette.redaction import redact_interaction, redact_text
from agentrun.core.package import Package
from agentrun.engine.crews import Crews
from agentrun.engine.known import known_values
from agentrun.engine.lacks import programs_of
from agentrun.engine.live import live_providers, live_sender
from agentrun.engine.memory import Journals, MemoryBlobs, MemoryJournals
from agentrun.engine.perform import crew_of
from agentrun.engine.ports import Approver, Executor, Hook, SinkPort
from agentrun.engine.settings import Settings
from agentrun.engine.system_clock import SystemClock
from agentrun.engine.world import Listen, World, kind_of, packages_of
from agentrun.redactor import Redactor
from agentrun.spec.project import Project
from agentrun.wire import HttpCall, HttpReply, Sender


@asynccontextmanager
async def live_world(
    package: Package,
    project: Project,
    run: str = "",
    *,
    models: bool = True,
    parts: Package | None = None,
    approver: Approver | None = None,
    journals: Journals | None = None,
    printed: Callable[[str, str], None] = lambda tool, text: None,
    write: Callable[[str], None] = print,
    listen: Listen = lambda run, news: None,
    env_file: Path | None = None,
) -> AsyncIterator[World]:
    """What a run in real time can reach. Raises `host.missing`, `provider.not_found`, `package.invalid`.

    `models`: whether the real ones are wanted. `parts`: the package with those tools, hooks and sinks that are wanted;
    None: all. `printed` is told what a Python tool printed; `write` writes a line to standard output, for a sink.
    """
    settings = Settings(env_file)
    redactor = Redactor(known_values(package, settings.variables()))
    sender, clock = live_sender(settings), SystemClock()
    async with AsyncExitStack() as opened:
        opened.push_async_callback(sender.close)
        packages = tuple(packages_of(parts or package))
        programs = programs_of(packages, project.root, settings.secret)
        import_roots = tuple(project.root / root for root in project.import_roots)
        shown = {"printed": printed, "clean": partial(redact_text, redactor=redactor)}
        executors = {
            kind: _executor(kind, project.root, import_roots, programs, settings, sender, shown)
            for kind in sorted({kind_of(tool) for each in packages for tool in each.tools.values()} - {"agent"})
        }
        for part in executors.values():
            if (close := getattr(part, "close", None)) is not None:
                opened.push_async_callback(close)
        on = [sink for each in packages for sink in each.sinks.values() if sink.delivery != "disabled"]
        yield World(
            clock=clock,
            blobs=MemoryBlobs(),
            journals=MemoryJournals() if journals is None else journals,
            crews=Crews(clock),
            crew=crew_of,
            hooks=_hooks(packages, import_roots, shown),
            sinks={kind: _sink(kind, project.root, sender, write) for kind in sorted(map(kind_of, on))},
            providers=live_providers(package, settings, _CleanRefusals(sender, redactor)) if models else {},
            executors=executors,
            approver=approver,
            listen=listen,
            run=run,
            programs=programs,
            redactor=redactor,
        )


def _executor(
    kind: str,
    root: Path,
    import_roots: tuple[Path, ...],
    programs: Mapping[str, str],
    settings: Settings,
    sender: Sender,
    shown: dict[str, Any],
) -> Executor:
    match kind:
        case "python":
            from agentrun.tools.python import PythonTools  # late: Rule 2

            return PythonTools(import_roots, **shown)
        case "http":
            from agentrun.tools.http import HttpTools  # late: Rule 2

            return HttpTools(sender)
        case "shell":
            from agentrun.tools.shell import ShellTools  # late: Rule 2

            return ShellTools(root, programs, settings.secret)
        case _:
            from agentrun.tools.mcp import McpServers  # late: Rule 2

            return McpServers(root, programs, settings.secret, clean=shown["clean"])


def _hooks(packages: tuple[Package, ...], import_roots: tuple[Path, ...], shown: dict[str, Any]) -> dict[str, Hook]:
    hooks = [hook for each in packages for hook in each.hooks]
    if not hooks:
        return {}
    from agentrun.tools.hooks import load_python_hooks  # late: Rule 2

    return load_python_hooks(import_roots, hooks, **shown)


def _sink(kind: str, root: Path, sender: Sender, write: Callable[[str], None]) -> SinkPort:
    if kind == "http":
        from agentrun.tools.sinks import HttpSinks  # late: Rule 2

        return HttpSinks(sender)
    from agentrun.tools.sinks import FileSinks, JsonlSinks, StdoutSinks  # late: Rule 2

    made: dict[str, Callable[[], SinkPort]] = {
        "file": lambda: FileSinks(root),
        "jsonl": lambda: JsonlSinks(root),
        "stdout": lambda: StdoutSinks(write),
    }
    return made[kind]()


class _CleanRefusals:
    """Sends requests. A reply that is no success comes without values that must not be shown."""

    def __init__(self, sender: Sender, redactor: Redactor) -> None:
        self._sender = sender
        self._redactor = redactor

    async def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> HttpReply:
        reply = await self._sender.send(call, gap=gap, time=time, heard=heard)
        return reply if reply.status == 200 else redact_interaction(Interaction(call, reply), self._redactor).reply
