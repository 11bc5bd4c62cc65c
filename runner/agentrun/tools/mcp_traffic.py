"""Which messages of a server are looked at.

Rule 1  A notification is dropped at once, but for two kinds: that the list of tools has changed is noted, and how far
        a call is gets through, ten times a second.
Rule 2  A server may ask its client something, now and then. One that asks without end is no server.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_SERVER_REQUESTS = 100
"""Requests of a server at once; ten more each second."""
PROGRESS_EVERY = 0.1


class McpProtocolError(Exception):
    """A server that does not keep to the protocol, in words."""


class MessageFilter:
    """The messages of one server, as they arrive."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.is_stale = False
        """Whether the list of tools has changed since it was read."""
        self._now = now
        self._questions = float(MAX_SERVER_REQUESTS)
        self._last = now()
        self._progress = 0.0

    def allows(self, method: str, *, asks: bool) -> bool:
        """Whether a message that is no reply is looked at. Raises `McpProtocolError`."""
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
            raise McpProtocolError("it asks its client without end")
