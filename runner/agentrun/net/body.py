"""The body of a reply while it arrives: decoded, and never more of it than allowed.

Rule 1  Caps hold for decoded bytes: a few kilobytes on the wire can be gigabytes in memory.
Rule 2  gzip and deflate are undone piece by piece, although nobody asked for them. Any other encoding is refused.
Rule 3  A line of a stream has a cap of its own: whoever reads lines keeps one until it ends.
Rule 4  A body that ends where the connection ends says nothing of its length. If it is JSON, its own form tells whether
        it is whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import msgspec

from agentrun.errors import ProviderError

MAX_BODY = 64 * 1024 * 1024
MAX_LINE = 16 * 1024 * 1024

_PLAIN = ("", "identity")
_ZLIB = ("gzip", "x-gzip", "deflate")
_EITHER_FORM = 32 + zlib.MAX_WBITS
"""For zlib: a gzip or a zlib header, whichever is there."""


class Body:
    """Collects one body."""

    def __init__(self, headers: Iterable[tuple[str, str]], most: int = MAX_BODY) -> None:
        """`headers` of the reply, their names in lower case; `most`: the largest body.

        Raises `provider.decode` for an unknown encoding.
        """
        fields = dict(headers)
        self._most = min(most, MAX_BODY)
        encoding = fields.get("content-encoding", "").strip().lower()
        if encoding not in (*_PLAIN, *_ZLIB):
            raise _unreadable("its encoding is not one that was asked for", 0, encoding=encoding[:40])
        self._inflate = zlib.decompressobj(_EITHER_FORM) if encoding in _ZLIB else None
        self._has_lines = fields.get("content-type", "").startswith("text/event-stream")
        self._is_json = "json" in fields.get("content-type", "")
        self._has_end = "content-length" in fields or "transfer-encoding" in fields
        self._pieces: list[bytes] = []
        self._size = 0
        self._line = 0

    def feed(self, data: bytes) -> bytes:
        """The bytes decoded. Raises `provider.decode` when they are too many, or not what they say they are."""
        if self._inflate is not None:
            data = self._inflated(data)
        self._size += len(data)
        if self._size > self._most:
            raise _unreadable(f"it is larger than {self._most} bytes", self._most, limit=self._most)
        if self._has_lines:
            self._measure_line(data)
        self._pieces.append(data)
        return data

    def end(self, status: int) -> bytes:
        """The whole body. Raises `provider.zero_output` when it was cut off."""
        body = b"".join(self._pieces)
        if self._inflate is not None and self._pieces and not self._inflate.eof:
            raise cut_off(len(body))
        if status == 200 and self._is_json and not self._has_end and not _is_json(body):
            raise cut_off(len(body))
        return body

    def _inflated(self, data: bytes) -> bytes:
        assert self._inflate is not None
        try:
            plain = self._inflate.decompress(data, self._most + 1 - self._size)
        except zlib.error:
            raise _unreadable("it is not compressed as it says", self._size) from None
        if self._inflate.unused_data:
            raise _unreadable("there are bytes after its compressed form", self._size + len(plain))
        return plain

    def _measure_line(self, data: bytes) -> None:
        last = max(data.rfind(b"\n"), data.rfind(b"\r"))
        longest = self._line + len(data) if last < 0 else max(self._line, len(data))
        if longest > MAX_LINE:
            raise _unreadable(f"a line of it is longer than {MAX_LINE} bytes", self._size, limit=MAX_LINE)
        self._line = longest if last < 0 else len(data) - 1 - last


def cut_off(received: int) -> ProviderError:
    """The error of a reply that ended too early."""
    message = f"the reply was cut off after {received} bytes"
    return ProviderError("provider.zero_output", message, fields={"status": None, "received": received})


def _unreadable(why: str, offset: int, **fields: str | int) -> ProviderError:
    return ProviderError("provider.decode", f"the reply cannot be read: {why}", fields={"offset": offset, **fields})


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
