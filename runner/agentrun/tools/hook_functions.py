"""Run Python functions as hooks.

Rule 1  The source of a hook is compared with its pin before the run starts, and again at its import.
Rule 2  None means `Continue`. An exception is a failure of the hook. Its output and the text of its exception go only
        to `printed`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from pathlib import Path
from typing import Any

from msgspec import Struct

from agentrun.core.facts import Continue
from agentrun.core.package import Hook
from agentrun.errors import PackageError
from agentrun.tools.call_results import clean_fault, fault_from_exception
from agentrun.tools.captured_output import capture_output
from agentrun.tools.function_calls import run_in_task
from agentrun.tools.pinned_modules import ImportFailed, import_function, read_pinned_source
from agentrun.tools.threads import run_in_thread


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
