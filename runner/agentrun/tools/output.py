"""What a program writes, as much of it as is kept.

Rule 1  The beginning and the end are kept, what lies between is counted. However much comes, memory stays bounded.
Rule 2  Where something was left out, no half of a word, or of a secret that the program was given, stands before or
        after the gap: nobody would know it as one.
Rule 3  More than `most` bytes are a flood. Whoever writes them is stopped.
"""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_WORD = 4096


class Output:
    """The beginning and the end of what was written."""

    def __init__(self, *, head: int, tail: int, most: int | None = None) -> None:
        self.total = 0
        """Bytes that were written."""
        self._head = bytearray()
        self._tail = bytearray()
        self._room = head
        self._last = tail
        self._most = most

    def add(self, data: bytes) -> None:
        self.total += len(data)
        taken = min(len(data), self._room - len(self._head))
        self._head += data[:taken]
        self._tail += data[taken:]
        if len(self._tail) > 2 * self._last:  # not at every byte
            del self._tail[: -self._last or None]

    @property
    def is_flood(self) -> bool:
        return self._most is not None and self.total > self._most

    @property
    def left_out(self) -> int:
        """How many bytes of it are not kept."""
        return self.total - len(self._head) - min(len(self._tail), self._last)

    def text(self, secrets: Iterable[bytes] = ()) -> str:
        """All that is kept, with a line in the place of what is not. What is no UTF-8 is replaced."""
        if not self.left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        secrets = tuple(secrets)
        head = _without_half(bytes(self._head), secrets)
        tail = _without_half(self.end[::-1], [secret[::-1] for secret in secrets])[::-1]
        gap = f"[… {self.total - len(head) - len(tail):,} bytes left out …]"
        return f"{head.decode('utf-8', 'replace')}\n{gap}\n{tail.decode('utf-8', 'replace')}"

    @property
    def beginning(self) -> bytes:
        return bytes(self._head)

    @property
    def end(self) -> bytes:
        """What is kept of what follows the beginning."""
        return bytes(self._tail[-self._last :] if self._last else b"")


def _without_half(data: bytes, secrets: Iterable[bytes]) -> bytes:
    """The data without the beginning of a secret, or of a word, at its end."""
    halves = (size for secret in secrets for size in range(len(secret) - 1, 0, -1) if data.endswith(secret[:size]))
    data = data[: len(data) - max(halves, default=0)]
    last = data[-LONGEST_WORD:]
    word = 0 if last[-1:].isspace() else len((last.split() or [b""])[-1])
    return data[: len(data) - word]
