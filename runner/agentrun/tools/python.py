"""Runs Python functions.

Rule 1  A function runs in a thread that no exit of the process waits for; an async function runs on the event loop,
        after its module was imported in such a thread. With `isolation: process` it runs in a process of its own.
Rule 2  What it raises, also `SystemExit` or `KeyboardInterrupt`, is a fault (`raised.py`).
Rule 3  When nobody waits any more, what it still gives is dropped.
Rule 4  What it prints is for `printed` alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentrun.core.effects import Returned, RunTool
from agentrun.core.package_tools import PythonTool
from agentrun.tools.calling import called, finished, found_function
from agentrun.tools.isolated import run_isolated
from agentrun.tools.printed import kept
from agentrun.tools.raised import fitted
from agentrun.tools.threads import in_thread


def _unheard(tool: str, text: str) -> None:
    """Nobody reads what is printed."""


def _as_it_is(text: str) -> str:
    return text


class PythonTools:
    """Runs Python functions found under the import roots."""

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        printed: Callable[[str, str], None] = _unheard,
        clean: Callable[[str], str] = _as_it_is,
    ) -> None:
        """`printed` hears the name of a tool and what one call of it printed, without secrets.

        `clean` takes out of a text what must not be shown, beyond what has the shape of a secret.
        """
        self._roots = tuple(root.resolve() for root in roots)
        self._printed = printed
        self._clean = clean
        self._functions: dict[tuple[str, str, str], Callable[..., Any]] = {}

    async def run(self, call: RunTool) -> Returned:
        tool = call.tool
        assert isinstance(tool, PythonTool)
        with kept(self._clean) as output:
            try:
                if tool.isolation == "process":
                    returned = await run_isolated(self._roots, call.name, tool, call.arguments, output)
                else:
                    returned = await self._in_thread(call, tool)
            finally:
                if text := output.end():
                    with suppress(Exception):  # who listens may fail; the call did not
                        self._printed(call.name, text)
        return returned if returned.fault is None else Returned(fault=fitted(returned.fault, self._clean))

    async def _in_thread(self, call: RunTool, tool: PythonTool) -> Returned:
        answer = await in_thread(lambda: self._begin(call, tool), f"tool {call.name} {call.id}")
        return answer if isinstance(answer, Returned) else await finished(call.name, answer, self._roots)

    def _begin(self, call: RunTool, tool: PythonTool) -> Returned | Awaitable[object]:
        """Call the function, in a thread. What has to be awaited is left to the event loop."""
        found = self._function(call.name, tool)
        return found if isinstance(found, Returned) else called(call.name, found, call.arguments, self._roots)

    def _function(self, name: str, tool: PythonTool) -> Callable[..., Any] | Returned:
        key = tool.module, tool.function, tool.source
        if key not in self._functions:
            found = found_function(self._roots, name, tool)
            if isinstance(found, Returned):
                return found
            self._functions[key] = found
        return self._functions[key]
