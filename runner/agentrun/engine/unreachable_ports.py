"""Ports for replays, which must never be called.

Every port that a package names has to exist, so that a run can start. A call of one of these is a bug in agentrun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

from agentrun.core.effects import Deliver, RunTool
from agentrun.core.outcome import Question
from agentrun.core.package import Package
from agentrun.core.package_tools import TOOL_KINDS
from agentrun.engine.models import HttpProvider
from agentrun.engine.ports import Executor, HookFunction, Provider
from agentrun.engine.world import iterate_packages, iterate_routes
from agentrun.errors import InternalError
from agentrun.providers.registry import codec_for, refuse_unsupported
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpCall


class UnreachablePort:
    """Implements every port."""

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
        raise InternalError("internal", "a replay called a real port")


UNREACHABLE = UnreachablePort()


def unreachable_providers(package: Package) -> dict[str, Provider]:
    """The models of a package. Raises `provider.not_found`, `package.invalid`."""
    providers: dict[str, Provider] = {}
    for agent, route in iterate_routes(package):
        refuse_unsupported(agent, route)
        providers[route.provider] = HttpProvider(codec_for(route.provider), UNREACHABLE)
    return providers


def unreachable_executors() -> dict[str, Executor]:
    """Executors by tool kind. HTTP tools are real, because the cassette contains their HTTP requests."""
    return dict.fromkeys(TOOL_KINDS, UNREACHABLE) | {"http": HttpTools(UNREACHABLE)}


def unreachable_hooks(package: Package) -> dict[str, HookFunction]:
    """The hooks of a package."""
    return {hook.id: UNREACHABLE for agent in iterate_packages(package) for hook in agent.hooks}
