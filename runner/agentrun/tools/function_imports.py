"""Import the Python functions of an agent before it runs.

Rule 1  A function that cannot be imported is a mistake of its developer. It is reported before the run exists, with its
        module, its file and the error. A model never reads it.
Rule 2  A tool with `isolation: process` is imported in a process of its own, like its calls. A check without a run
        imports everything in such a process, with the variables of `PROGRAM_VARIABLES` only.
Rule 3  An import that takes longer than `IMPORT_SECONDS` has failed. A thread cannot be stopped, so an import in this
        process goes on until the process ends.
Rule 4  A module that cannot be imported is tried once. All its functions have the same failure.
Rule 5  A module that differs from its pin is not imported: `tool.drift`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.core.fault import Fault, fault_of
from agentrun.core.package import Package
from agentrun.core.package_tools import PythonTool
from agentrun.errors import AgentrunError, HostError, ToolError
from agentrun.net.environment import Lookup, fill_variables
from agentrun.secret import Secret
from agentrun.tools.call_results import clean_fault, fault_from_exception
from agentrun.tools.captured_output import capture_output
from agentrun.tools.pinned_modules import ImportFailed, PinKind, find_module_source, import_function
from agentrun.tools.processes import Process, open_folder, start_process
from agentrun.tools.supervisor_client import BoundedOutput
from agentrun.tools.threads import run_in_thread

IMPORT_SECONDS = 60.0
PROGRAM_VARIABLES = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", "USER")
GRACE_MS = 500
"""Milliseconds between SIGTERM and SIGKILL for processes that a module left."""
IMPORT_WORKER_CODE = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; "
    "from agentrun.tools.process_worker import run_import_worker; run_import_worker()"
)
"""The arguments are the entries of `sys.path` of the parent, so that the modules find the same modules."""


class PythonPart(Struct, frozen=True):
    """The function of a tool or hook, with its pin."""

    what: PinKind
    name: str
    module: str
    function: str
    source: str
    isolated: bool = False
    env: tuple[tuple[str, str], ...] = ()
    """The variables of its process: fixed text or ${NAME}."""

    @property
    def label(self) -> str:
        return f"{self.what} {self.name}"


class FailedImport(Struct, frozen=True):
    part: PythonPart
    fault: Fault


class ImportOrder(Struct, frozen=True):
    """What the process of a check reads."""

    parts: tuple[PythonPart, ...]
    roots: tuple[str, ...]


class ImportMessage(Struct, frozen=True, omit_defaults=True):
    """What the process of a check writes: one message before each import, and one after it."""

    number: int
    is_over: bool = False
    fault: Fault | None = None


def own_variable(name: str) -> Secret:
    return Secret(os.environ.get(name, ""))


def python_parts(packages: Iterable[Package]) -> tuple[PythonPart, ...]:
    parts: list[PythonPart] = []
    for package in packages:
        for name, tool in package.tools.items():
            if isinstance(tool, PythonTool):
                isolated, env = tool.isolation == "process", tuple((tool.env or {}).items())
                parts.append(PythonPart("tool", name, tool.module, tool.function, tool.source, isolated, env))
        parts += [PythonPart("hook", hook.id, hook.module, hook.function, hook.source) for hook in package.hooks]
    return tuple(dict.fromkeys(parts))


async def import_functions(
    parts: Iterable[PythonPart],
    roots: Sequence[Path],
    root: Path,
    *,
    printed: Callable[[str, str], None] = lambda name, text: None,
    clean: Callable[[str], str] = lambda text: text,
    lookup: Lookup = own_variable,
    seconds: float = IMPORT_SECONDS,
) -> None:
    """Import everything, or raise `host.missing` or `tool.drift`. `root`: of the project; `printed` gets the output of
    the modules; `clean` redacts known secrets."""
    failed: list[FailedImport] = []
    broken: dict[str, Fault] = {}
    parts = tuple(parts)
    for part in (part for part in parts if not part.isolated):
        fault = broken.get(part.module)
        if fault is None:
            with capture_output(clean, partial(printed, part.name)):
                fault = await _import_in_thread(part, roots, seconds)
        if fault is not None:
            broken |= {part.module: fault} if is_of_module(fault) else {}
            failed.append(FailedImport(part, fault))
    for env in dict.fromkeys(part.env for part in parts if part.isolated):
        isolated = [part for part in parts if part.isolated and part.env == env]
        failed += await import_in_processes(isolated, roots, worker_environment(dict(env), lookup), seconds=seconds)
    if failed:
        cleaned = [FailedImport(each.part, clean_fault(each.fault, clean)) for each in failed]
        raise import_error(cleaned, roots, root)


async def _import_in_thread(part: PythonPart, roots: Sequence[Path], seconds: float) -> Fault | None:
    try:
        async with asyncio.timeout(seconds):
            return await run_in_thread(lambda: import_fault(part, roots), f"import of {part.label}")
    except TimeoutError:
        return _slow_import(seconds)


def import_fault(part: PythonPart, roots: Sequence[Path]) -> Fault | None:
    """Import a function in this process. None: it can be called."""
    try:
        import_function(roots, part.name, part, part.what)
    except ToolError as error:
        return fault_of(error)
    except ImportFailed as failed:
        return fault_from_exception(part.name, failed.error, roots=roots)
    return None


async def import_in_processes(
    parts: Sequence[PythonPart],
    roots: Sequence[Path],
    environment: Mapping[str, str],
    *,
    seconds: float = IMPORT_SECONDS,
) -> list[FailedImport]:
    """Import functions in one process, and the rest in another one if a module ends it or takes too long."""
    failed: list[FailedImport] = []
    rest = tuple(parts)
    while rest:
        found, over = await _import_in_process(rest, roots, environment, seconds)
        failed += found
        last, rest = rest[over - 1], rest[over:]
        if rest:
            failed += [FailedImport(part, found[-1].fault) for part in rest if part.module == last.module]
            rest = tuple(part for part in rest if part.module != last.module)
    return failed


async def _import_in_process(
    parts: tuple[PythonPart, ...], roots: Sequence[Path], environment: Mapping[str, str], seconds: float
) -> tuple[list[FailedImport], int]:
    """The failures, and how many imports are over: all, or those up to a module that ended the process, or hangs."""
    order = msgspec.json.encode(ImportOrder(parts, tuple(str(root.resolve()) for root in roots)))
    argv = [sys.executable, "-P", "-c", IMPORT_WORKER_CODE, *sys.path]
    failed: list[FailedImport] = []
    over = 0
    output = BoundedOutput(head=0, tail=0)
    try:
        with open_folder(Path.cwd()) as folder:
            started = start_process(
                sys.executable, argv, env=environment, folder=folder, grace=GRACE_MS, side=True, stdout=output
            )
            async with started as process:
                with suppress(BrokenPipeError, ConnectionResetError):  # the process ended; this is handled below
                    process.stdin.write(order)
                    process.stdin.close()
                limit = IMPORT_SECONDS  # of the start of Python
                while over < len(parts):
                    message = await _next_message(process, limit)
                    if isinstance(message, Fault):
                        return [*failed, FailedImport(parts[over], message)], over + 1
                    limit = seconds
                    if message.is_over:
                        failed += [] if message.fault is None else [FailedImport(parts[over], message.fault)]
                        over += 1
    except (OSError, ValueError) as error:
        fault = _module_fault(f"its process cannot be started: {type(error).__name__}")
        return [FailedImport(part, fault) for part in parts], len(parts)
    return failed, over


async def _next_message(process: Process, seconds: float) -> ImportMessage | Fault:
    """The next message, or why there is none."""
    try:
        async with asyncio.timeout(seconds):
            line = await process.side.readline()
        if line:
            return msgspec.json.decode(line, type=ImportMessage)
    except TimeoutError:
        return _slow_import(seconds)
    except (msgspec.DecodeError, ValueError):  # ValueError: a line that is too long
        return _module_fault("the module wrote to descriptor 3, which belongs to agentrun")
    ended = await process.wait()
    how = f"was killed by {ended.signal_name}" if ended.signal_name else f"exited with code {ended.code}"
    return _module_fault(f"the process {how} during the import")


def _slow_import(seconds: float) -> Fault:
    return _module_fault(f"the import took longer than {seconds:g} s")


def _module_fault(message: str) -> Fault:
    return Fault("tool.execution", message, {"error": "ImportError"})


def is_of_module(fault: Fault) -> bool:
    """Whether all functions of the module have this fault: an exception, and not a function that is missing."""
    return "error" in fault.fields


def worker_environment(env: Mapping[str, str], lookup: Lookup) -> dict[str, str]:
    """The variables of a process that runs functions: those that programs need, and `env` of the tool."""
    needed = {name: os.environ[name] for name in PROGRAM_VARIABLES if name in os.environ}
    return needed | {name: fill_variables(text, lookup) for name, text in env.items()}


def check_environment() -> dict[str, str]:
    """The variables of a check. It leaves no bytecode in the project."""
    return {**worker_environment({}, own_variable), "PYTHONDONTWRITEBYTECODE": "1"}


def import_error(failed: Sequence[FailedImport], roots: Sequence[Path], root: Path) -> AgentrunError:
    """All failures in one error. A module that differs from its pin comes first."""
    drifted = next((each for each in failed if each.fault.code == "tool.drift"), None)
    if drifted is not None:
        fault = drifted.fault
        return ToolError(fault.code, fault.message, hint=fault.hint, fields=fault.fields)
    users: dict[str, list[str]] = {}
    for each in failed:
        users.setdefault(describe_failed_import(each, roots, root), []).append(each.part.label)
    message = "; ".join(f"{text} (needed by {', '.join(labels)})" for text, labels in users.items())
    first = failed[0]
    fields: dict[str, Any] = {
        "name": first.part.module,
        "names": list(dict.fromkeys(each.part.module for each in failed)),
        "module": first.part.module,
        "file": module_file(first.part, roots, root),
        "error": first.fault.message,
        **({"imported": first.fault.fields["imported"]} if "imported" in first.fault.fields else {}),
    }
    return HostError("host.missing", message, hint=first.fault.hint or IMPORT_HINT, fields=fields)


IMPORT_HINT = "fix the module; `agentrun validate --imports` checks it again without a run"


def describe_failed_import(failed: FailedImport, roots: Sequence[Path], root: Path) -> str:
    """`desk (python/desk.py) cannot be imported: ModuleNotFoundError: No module named 'pandas' (desk.py:3)`."""
    at = failed.fault.fields.get("at")
    place = f" ({at})" if at else ""
    file = module_file(failed.part, roots, root)
    return f"{failed.part.module} ({file}) cannot be imported: {failed.fault.message}{place}"


def module_file(part: PythonPart, roots: Sequence[Path], root: Path) -> str:
    source = find_module_source(roots, part.module)
    return "no file" if source is None else os.path.relpath(source.path, root.resolve())
