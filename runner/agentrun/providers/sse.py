"""Decode server-sent events from bytes in pieces of any size.

Rule 1  Pieces may end anywhere: also inside a CRLF, a character or the byte order mark.
Rule 2  Lines end only with CR, LF or CRLF. Invalid UTF-8 is replaced, as the standard says.
Rule 3  An event without its blank line is returned at the end, even if its last line is incomplete. The caller checks
        whether it is complete.
"""

from __future__ import annotations

from msgspec import Struct

_BOM = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True, gc=False):
    """One event."""

    name: str
    """`message` if the server sent no name."""
    data: str


class SseDecoder:
    """Decodes one stream."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        """The first bytes while they may be a byte order mark. None afterwards."""
        self._after_cr = False
        self._line: list[bytes] = []
        """The pieces of an unfinished line."""
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[SseEvent]:
        """Add bytes and return the events that are now complete."""
        if self._head is not None:
            data = self._without_mark(data)
        if not data:
            return []
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
        self._after_cr = data[-1:] == b"\r"
        events: list[SseEvent] = []
        for piece in data.splitlines(keepends=True):  # bytes are split only at CR, LF and CRLF
            self._line.append(piece)
            if piece[-1] in b"\r\n":
                line = b"".join(self._line).rstrip(b"\r\n")
                self._line.clear()
                self._read(line, events)
        return events

    def end(self) -> list[SseEvent]:
        """The event that was not finished (rule 3)."""
        events: list[SseEvent] = []
        line = b"".join([self._head or b"", *self._line])
        self._head, self._line = None, []
        if line:
            self._read(line, events)
        self._read(b"", events)
        return events

    def _without_mark(self, data: bytes) -> bytes:
        """Remove a byte order mark; hold back bytes that may be the beginning of one."""
        data = (self._head or b"") + data
        undecided = len(data) < len(_BOM) and _BOM.startswith(data)
        self._head = data if undecided else None
        return b"" if undecided else data.removeprefix(_BOM)

    def _read(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            if self._data:
                events.append(SseEvent(self._name or "message", "\n".join(self._data)))
            self._name, self._data = "", []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        elif field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")
