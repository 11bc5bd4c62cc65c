"""Server-sent events from bytes that may be cut anywhere.

Rule 1  How the bytes are cut makes no difference: not inside a CRLF, a character or the byte order mark either.
Rule 2  Lines end with CR, LF or CRLF and with nothing else; what is not UTF-8 is replaced, as the standard says.
Rule 3  An event without its blank line is given at the end, also when its last line is cut off: whoever reads it knows
        whether it is whole.
"""

from __future__ import annotations

from msgspec import Struct

_BOM = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True, gc=False):
    """One event."""

    name: str
    """`message` when the server gave none."""
    data: str


class SseDecoder:
    """Reads one stream."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        """The first bytes, as long as they may be a byte order mark. None: that is decided."""
        self._after_cr = False
        self._line: list[bytes] = []
        """The pieces of a line that has not ended."""
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that these bytes complete."""
        if self._head is not None:
            data = self._without_mark(data)
        if not data:
            return []
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
        self._after_cr = data[-1:] == b"\r"
        events: list[SseEvent] = []
        for piece in data.splitlines(keepends=True):  # of bytes: at CR, LF and CRLF alone
            self._line.append(piece)
            if piece[-1] in b"\r\n":
                line = b"".join(self._line).rstrip(b"\r\n")
                self._line.clear()
                self._read(line, events)
        return events

    def end(self) -> list[SseEvent]:
        """What was still open."""
        events: list[SseEvent] = []
        line = b"".join([self._head or b"", *self._line])
        self._head, self._line = None, []
        if line:
            self._read(line, events)
        self._read(b"", events)
        return events

    def _without_mark(self, data: bytes) -> bytes:
        """Hold back what may still become a byte order mark."""
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
