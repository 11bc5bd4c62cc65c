"""Hooks that answer as they were told to, and sinks that keep what they get.

hooks={"guard": hook(Deny("not today"))}
sinks={"report": sink()}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentrun.core.effects import Deliver
from agentrun.core.facts_base import Fault
from agentrun.core.facts_gates import Continue, HookAnswer
from agentrun.engine.hooks import HookQuestion


class HookDouble:
    """A hook, and what it was asked."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.questions: list[HookQuestion] = []

    def __call__(self, question: HookQuestion) -> Any:
        self.questions.append(question)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer(question) if callable(self._answer) else self._answer


def hook(answer: HookAnswer | Exception | Callable[[HookQuestion], Any] = Continue()) -> HookDouble:  # noqa: B008  # frozen
    """A hook that gives an answer, or a function of its question; or that raises."""
    return HookDouble(answer)


class SinkDouble:
    """A sink, and what was delivered to it."""

    def __init__(self, fault: Fault | Exception | None) -> None:
        self._fault = fault
        self.deliveries: list[Deliver] = []

    @property
    def kept(self) -> dict[str, str]:
        """The texts that a sink has which keeps one delivery for each key."""
        return {delivery.key: delivery.text for delivery in self.deliveries}

    async def deliver(self, delivery: Deliver) -> Fault | None:
        self.deliveries.append(delivery)
        if isinstance(self._fault, Exception):
            raise self._fault
        return self._fault


def sink(*, fails: Fault | Exception | None = None) -> SinkDouble:
    """A sink that keeps what it gets, or fails."""
    return SinkDouble(fails)
