"""Filter the messages of an MCP server, and limit its requests.

Notifications are dropped, except two kinds: a change of the list of tools is noted, and progress is passed on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from agentrun.core import model_texts as texts

MAX_SERVER_REQUESTS = 100
"""The number of requests that a server can send at once. Ten more are allowed each second."""
PROGRESS_EVERY = 0.1


class McpProtocolError(Exception):
    """A server broke the protocol. The message says how."""


class MessageFilter:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.is_stale = False
        """Whether the list of tools has changed since it was read."""
        self._now = now
        self._questions = float(MAX_SERVER_REQUESTS)
        self._last = now()
        self._progress = 0.0

    def allows(self, method: str, *, asks: bool) -> bool:
        """Whether a request or notification is passed on. Raises `McpProtocolError`."""
        if asks:
            self._count()
            return True
        if method == "notifications/tools/list_changed":
            self.is_stale = True
        if method != "notifications/progress" or self._now() < self._progress:
            return False
        self._progress = self._now() + PROGRESS_EVERY
        return True

    def _count(self) -> None:
        now = self._now()
        self._questions = min(self._questions + 10 * (now - self._last), MAX_SERVER_REQUESTS) - 1
        self._last = now
        if self._questions < 0:
            raise McpProtocolError(texts.MCP_TOO_MANY_REQUESTS)
