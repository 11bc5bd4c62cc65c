"""Posts answers to HTTP endpoints."""

from __future__ import annotations

from agentrun.core.effects import Deliver
from agentrun.core.facts_base import Fault
from agentrun.wire import Sender


class HttpSinks:
    """Posts answers as JSON."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def deliver(self, delivery: Deliver) -> Fault | None:
        raise NotImplementedError
