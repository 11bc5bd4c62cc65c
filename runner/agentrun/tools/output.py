"""What a program writes, as much of it as is kept.

Rule 1  The beginning and the end are kept, what lies between is counted. However much comes, memory stays bounded.
Rule 2  More than `most` bytes is a flood: `flooded` says so to whoever waits for it.
"""

from __future__ import annotations

import asyncio

MiB = 1024 * 1024


class Output:
    """The beginning and the end of what was written."""

    def __init__(self, *, head: int, tail: int, most: int | None = None) -> None:
        self.total = 0
        """Bytes that were written."""
        self.flooded = asyncio.Event()
        self._head = bytearray()
        self._tail = bytearray()
        self._room = head
        self._last = tail
        self._most = most

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self._most is not None and self.total > self._most:
            self.flooded.set()
        taken = min(len(data), self._room - len(self._head))
        self._head += data[:taken]
        self._tail += data[taken:]
        if len(self._tail) > 2 * self._last:  # not at every byte
            del self._tail[: -self._last or None]

    @property
    def left_out(self) -> int:
        """How many bytes of it are not kept."""
        return self.total - len(self._head) - min(len(self._tail), self._last)

    @property
    def beginning(self) -> bytes:
        return bytes(self._head)

    @property
    def end(self) -> bytes:
        """What is kept of what follows the beginning."""
        return bytes(self._tail[-self._last :] if self._last else b"")
