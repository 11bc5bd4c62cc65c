"""Tools that do nothing but count.

search = stub("3 results")
add = stub(lambda a, b: a + b, delay=200, clock=clock)
broken = stub(fails="tool.execution")
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from agentrun.canon import compact
from agentrun.core.effects import Returned, RunTool
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Text
from agentrun.engine.ports import Clock


class StubCall(Struct, frozen=True):
    """One time that a stub ran."""

    call: str
    tool: str
    key: str
    arguments: dict[str, Any]


class Stub:
    """An executor, and what it was asked to do."""

    def __init__(self, result: Any, fault: Fault | Exception | str | None, delay: int, clock: Clock | None) -> None:
        self._result = result
        self._fault = fault
        self._delay = delay
        self._clock = clock
        self.calls: list[StubCall] = []

    @property
    def count(self) -> int:
        """How often it ran."""
        return len(self.calls)

    @property
    def times(self) -> Counter[str]:
        """How often it ran under each idempotency key."""
        return Counter(call.key for call in self.calls)

    async def run(self, call: RunTool) -> Returned:
        self.calls.append(StubCall(call.id, call.name, call.key, call.arguments))
        if self._clock is not None:
            await self._clock.sleep_until(self._clock.now() + self._delay)
        if isinstance(self._fault, Exception):
            raise self._fault
        if self._fault is not None:
            fault = self._fault if isinstance(self._fault, Fault) else _fault(self._fault, call.name)
            return Returned((Text(f"{fault.code}: {fault.message}"),), fault)
        result = self._result(**call.arguments) if callable(self._result) else self._result
        return result if isinstance(result, Returned) else Returned((Text(_text(result)),))


def stub(
    result: Any | Callable[..., Any] = "done",
    *,
    fails: Fault | Exception | str | None = None,
    delay: int = 0,
    clock: Clock | None = None,
) -> Stub:
    """A tool that gives a result, or a function of its arguments; or that fails: with a code, a fault, an exception.

    `delay` milliseconds pass on the clock before it does.
    """
    if delay and clock is None:
        raise ValueError("a stub with a delay needs the clock that it passes on")
    return Stub(result, fails, delay, clock)


def _fault(code: str, tool: str) -> Fault:
    return Fault(code, "the stub fails", {"tool": tool})


def _text(result: Any) -> str:
    return result if isinstance(result, str) else compact(result).decode()
