"""What stands behind a tape that is played: nothing.

Every port that a package names has to be there, so that a run can start; none of these does anything, and being reached
is a mistake of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

from agentrun.core.effects import Deliver, RunTool
from agentrun.core.outcome import Question
from agentrun.core.package import Package
from agentrun.engine.models import HttpProvider
from agentrun.engine.ports import Executor, HookFunction, Provider
from agentrun.engine.world import iterate_packages
from agentrun.errors import InternalError
from agentrun.providers.registry import codec_for, refuse_unsupported
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpCall

TOOL_KINDS = ("python", "http", "shell", "mcp")
SINK_KINDS = ("file", "jsonl", "http", "stdout")


class UnreachablePort:
    """Any port, with nobody behind it."""

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None) -> Never:
        del call, gap, time, heard
        self._refuse()

    async def run(self, call: RunTool) -> Never:
        del call
        self._refuse()

    async def deliver(self, delivery: Deliver) -> Never:
        del delivery
        self._refuse()

    async def answer(self, question: Question) -> Never:
        del question
        self._refuse()

    def __call__(self, question: Any) -> Never:
        del question
        self._refuse()

    def _refuse(self) -> Never:
        raise InternalError("internal", "something was to be done for real in a replay")


UNREACHABLE = UnreachablePort()


def unreachable_providers(package: Package) -> dict[str, Provider]:
    """The models that a package names. Raises `provider.not_found`, `package.invalid`."""
    providers: dict[str, Provider] = {}
    for agent in iterate_packages(package):
        for route in agent.model.routes:
            refuse_unsupported(agent, route)
            providers[route.provider] = HttpProvider(codec_for(route.provider), UNREACHABLE)
    return providers


def unreachable_executors() -> dict[str, Executor]:
    """Who runs tools, by kind. An HTTP tool works as ever: its requests are on the tape."""
    return dict.fromkeys(TOOL_KINDS, UNREACHABLE) | {"http": HttpTools(UNREACHABLE)}


def unreachable_hooks(package: Package) -> dict[str, HookFunction]:
    """The hooks that a package names."""
    return {hook.id: UNREACHABLE for agent in iterate_packages(package) for hook in agent.hooks}
