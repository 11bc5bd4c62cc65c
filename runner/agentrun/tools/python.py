"""Run Python functions as tools and hooks.

Rule 1  A function runs in a daemon thread. An async function runs on the event loop, after its module was imported in
        such a thread. With `isolation: process` it runs in a separate process.
Rule 2  Every exception, even `SystemExit` and `KeyboardInterrupt`, becomes a fault (`call_results.py`).
Rule 3  After a timeout or a cancellation the result is dropped.
Rule 4  The source of a hook is compared with its pin before the run starts, and again at its import.
Rule 5  A hook that returns None means `Continue`. An exception is a failure of the hook. Its output and the text of its
        exception go only to `printed`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.core import model_texts as texts
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import Continue
from agentrun.core.package import Hook
from agentrun.core.package_tools import PythonTool
from agentrun.errors import PackageError
from agentrun.net.environment import Lookup
from agentrun.tools.call_results import (
    FUNCTION_FAULT_CODES,
    MAX_RESULT_BYTES,
    clean_fault,
    failed_call,
    fault_from_exception,
)
from agentrun.tools.captured_output import CapturedOutput, capture_output
from agentrun.tools.function_calls import await_result, call_function, load_function, run_in_task
from agentrun.tools.function_imports import own_variable, worker_environment
from agentrun.tools.pinned_modules import FunctionPin, ImportFailed, import_function, read_pinned_source
from agentrun.tools.process_worker import WORKER_START_CODE, WorkerMessage, WorkerRequest
from agentrun.tools.processes import Process, open_folder, start_process
from agentrun.tools.progress import progress
from agentrun.tools.supervisor_client import BoundedOutput, ProcessExit
from agentrun.tools.threads import run_in_thread

ISOLATED_GRACE_MS = 500
"""Milliseconds between SIGTERM and SIGKILL for processes that the function left."""
MAX_RESULT_LINE = 6 * MAX_RESULT_BYTES + 1024 * 1024
"""Bytes of one line on descriptor 3. In JSON one character can take six bytes."""


class PythonTools:
    def __init__(
        self,
        roots: Sequence[Path],
        *,
        printed: Callable[[str, str], None] = lambda tool, text: None,
        clean: Callable[[str], str] = lambda text: text,
        lookup: Lookup = own_variable,
    ) -> None:
        """`printed` is called with the name of a tool and the output of one call. `clean` redacts known secrets.
        `lookup`: returns the variables that `env` of a tool names."""
        self._lookup = lookup
        self._roots = tuple(root.resolve() for root in roots)
        self._printed = printed
        self._clean = clean
        self._functions: dict[tuple[str, str, str], Callable[..., Any]] = {}

    async def run(self, call: RunTool) -> ToolReturn:
        tool = call.tool
        assert isinstance(tool, PythonTool)
        with capture_output(self._clean, partial(self._printed, call.name)) as output:
            if tool.isolation == "process":
                environment = worker_environment(tool.env or {}, self._lookup)
                returned = await run_in_process(self._roots, call.name, tool, call.arguments, output, environment)
            else:
                returned = await self._in_thread(call, tool)
        return returned if returned.fault is None else ToolReturn(fault=clean_fault(returned.fault, self._clean))

    async def _in_thread(self, call: RunTool, tool: PythonTool) -> ToolReturn:
        answer = await run_in_thread(lambda: self._begin(call, tool), f"tool {call.name} {call.id}")
        return answer if isinstance(answer, ToolReturn) else await await_result(call.name, answer, self._roots)

    def _begin(self, call: RunTool, tool: PythonTool) -> ToolReturn | Awaitable[object]:
        """Call the function in a thread. An awaitable is returned to the event loop."""
        found = self._function(call.name, tool)
        return found if isinstance(found, ToolReturn) else call_function(call.name, found, call.arguments, self._roots)

    def _function(self, name: str, tool: PythonTool) -> Callable[..., Any] | ToolReturn:
        key = tool.module, tool.function, tool.source
        if key not in self._functions:
            found = load_function(self._roots, name, tool)
            if isinstance(found, ToolReturn):
                return found
            self._functions[key] = found
        return self._functions[key]


async def run_in_process(
    roots: Sequence[Path],
    name: str,
    pin: FunctionPin,
    arguments: dict[str, Any],
    printed: CapturedOutput,
    environment: Mapping[str, str],
) -> ToolReturn:
    """Run a function in a separate process. `printed` gets its output."""
    order = WorkerRequest(name, pin.module, pin.function, pin.source, tuple(map(str, roots)), arguments)
    argv = [sys.executable, "-P", "-c", WORKER_START_CODE, *sys.path]
    try:
        with open_folder(Path.cwd()) as folder:
            process = start_process(
                sys.executable,
                argv,
                env=environment,
                folder=folder,
                grace=ISOLATED_GRACE_MS,
                side=True,
                stdout=_CapturedStream(printed),
            )
            async with process as running:
                returned = await _read_result(running, name, msgspec.json.encode(order))
                if returned is not None:
                    await running.stop()
                ended = await running.wait()
    except (OSError, ValueError) as error:
        kind = type(error).__name__
        return failed_call(name, texts.PROCESS_NOT_STARTED.format(kind), error=kind)
    return returned or _crash_result(name, ended)


class _CapturedStream(BoundedOutput):
    """Adds the output of the process to the captured output of the call."""

    def __init__(self, printed: CapturedOutput) -> None:
        super().__init__(head=0, tail=0)
        self._printed = printed

    def add(self, data: bytes) -> None:
        self._printed.write(data)


async def _read_result(process: Process, name: str, order: bytes) -> ToolReturn | None:
    """The result of the function. None: the process ended without a result."""
    with suppress(BrokenPipeError, ConnectionResetError):  # the process ended; this is handled below
        process.stdin.write(order)
        process.stdin.close()
    unread = bytearray()
    while data := await process.side.read(1 << 16):
        *lines, rest = data.split(b"\n")
        for each in lines:
            unread += each
            line = _parse_message(bytes(unread))
            unread.clear()
            match line:
                case WorkerMessage(returned=ToolReturn() as returned):
                    return returned
                case WorkerMessage(progress=str() as text):
                    progress(text)
                case _:
                    return failed_call(name, texts.PROCESS_INVALID_RESULT)
        unread += rest
        if len(unread) > MAX_RESULT_LINE:
            return failed_call(name, texts.PROCESS_RESULT_TOO_LARGE.format(MAX_RESULT_LINE))
    return None


def _parse_message(line: bytes) -> WorkerMessage | None:
    try:
        read = msgspec.json.decode(line, type=WorkerMessage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    fault = None if read.returned is None else read.returned.fault
    return read if fault is None or fault.code in (*FUNCTION_FAULT_CODES, "tool.drift") else None


def _crash_result(name: str, ended: ProcessExit) -> ToolReturn:
    if word := ended.signal_name:
        return failed_call(name, texts.PROCESS_KILLED_BY.format(word), signal=word)
    if ended.code is not None:
        return failed_call(name, texts.PROCESS_EXITED.format(ended.code), exit=ended.code)
    return failed_call(name, texts.PROCESS_KILLED)


# --- hooks ------------------------------------------------------------------------------------------------------------


def load_python_hooks(
    roots: Sequence[Path],
    hooks: Iterable[Hook],
    *,
    printed: Callable[[str, str], None] = lambda hook, text: None,
    clean: Callable[[str], str] = lambda text: text,
) -> dict[str, Callable[[Any], Any]]:
    """The function of each hook, by id. Raises `tool.drift`, `package.invalid`."""
    roots = [root.resolve() for root in roots]
    by_id: dict[str, Hook] = {}
    for hook in hooks:
        other = by_id.setdefault(hook.id, hook)
        if (other.module, other.function, other.source) != (hook.module, hook.function, hook.source):
            message = f"an agent and its sub-agents have two different hooks with the id {hook.id!r}"
            hint = "give one of them another id"
            raise PackageError("package.invalid", message, hint=hint, fields={"pointer": "/hooks", "hook": hook.id})
        read_pinned_source(roots, hook.id, hook, "hook")
    return {name: _HookFunction(roots, hook, printed, clean).ask for name, hook in by_id.items()}


class _RaisedError(Struct, frozen=True):
    error: Any
    is_import: bool = False


class _HookFunction:
    def __init__(
        self, roots: Sequence[Path], hook: Hook, printed: Callable[[str, str], None], clean: Callable[[str], str]
    ) -> None:
        self._roots = roots
        self._hook = hook
        self._printed = printed
        self._clean = clean
        self._function: Callable[[Any], Any] | None = None

    async def ask(self, question: Any) -> Any:
        with capture_output(self._clean, partial(self._printed, self._hook.id)):
            answer = await run_in_thread(lambda: self._begin(question), f"hook {self._hook.id}")
            answer = await _await_answer(answer) if isawaitable(answer) else answer
        if isinstance(answer, _RaisedError):
            self._report_error(answer)
            raise _as_exception(answer.error)
        return Continue() if answer is None else answer

    def _report_error(self, raised: _RaisedError) -> None:
        """Report the exception like output. It is not in the journal, but the author of the hook needs it."""
        where = f"{self._hook.module} cannot be imported: " if raised.is_import else ""
        fault = clean_fault(fault_from_exception(self._hook.id, raised.error, where, roots=self._roots), self._clean)
        with suppress(Exception):  # a failing listener does not fail the hook
            at = f" ({fault.fields['at']})" if "at" in fault.fields else ""
            self._printed(self._hook.id, f"{fault.message}{at}")

    def _begin(self, question: Any) -> Any:
        """Call the function in a thread. An awaitable is returned to the event loop."""
        try:
            if self._function is None:
                self._function = import_function(self._roots, self._hook.id, self._hook, "hook")
            function = self._function
            return _call_async(function, question) if iscoroutinefunction(function) else function(question)
        except ImportFailed as failed:
            return _RaisedError(failed.error, is_import=True)
        except BaseException as error:  # noqa: BLE001  # user code may raise anything
            return _RaisedError(error)


async def _call_async(function: Callable[[Any], Awaitable[Any]], question: Any) -> Any:
    return await function(question)


async def _await_answer(answer: Awaitable[Any]) -> Any:
    result = await run_in_task(answer)
    return result.value if result.error is None else _RaisedError(result.error)


def _as_exception(error: BaseException) -> BaseException:
    """The exception of the hook, or a RuntimeError if raising it here would stop more than the hook."""
    if isinstance(error, Exception | SystemExit):
        return error
    return RuntimeError(type(error).__name__)
