"""Calls HTTP endpoints."""

from __future__ import annotations

from collections.abc import Callable

from agentrun.core.effects import Returned, RunTool
from agentrun.wire import Sender


class HttpTools:
    """Calls HTTP endpoints through a sender: a real one, or a tape."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def over(self, wrap: Callable[[Sender], Sender]) -> HttpTools:
        """The same through another sender, made of this one's."""
        return HttpTools(wrap(self._sender))

    async def run(self, call: RunTool) -> Returned:
        raise NotImplementedError
