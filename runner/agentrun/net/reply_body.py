"""The body of a reply while it arrives: decoded, and never more of it than allowed.

Rule 1  Caps hold for decoded bytes: a few kilobytes on the wire can be gigabytes in memory.
Rule 2  gzip and deflate are decoded in small pieces, although nobody asked for them. The compressed bytes are kept and
        decoded again at the end, so a body over the cap is refused before it was ever in memory. Any other encoding,
        and two encodings on top of each other, are refused.
Rule 3  A line has a cap of its own when somebody hears the body while it arrives: a reader of lines keeps each line
        until it ends, whatever the reply says that it is.
Rule 4  A body that ends where the connection ends says nothing of its length. If it is JSON, its own form tells whether
        it is whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

import msgspec

from agentrun.errors import ProviderError

MAX_REPLY_BODY = 64 * 1024 * 1024
MAX_STREAMED_BODY = 32 * 1024 * 1024
"""A body that is read while it arrives: it is in memory twice, as bytes and as what was read of it."""
MAX_STREAM_LINE = 16 * 1024 * 1024

_PLAIN = ("", "identity")
_ZLIB = ("gzip", "x-gzip", "deflate")
_EITHER_FORM = 32 + zlib.MAX_WBITS
"""For zlib: a gzip or a zlib header, whichever is there."""
_PIECE = 256 * 1024
"""Decoded bytes that are in memory at once."""
_OVERHEAD = 64 * 1024
"""Bytes by which a compressed body may be larger than the decoded one."""


class ReplyBody:
    """Collects one body."""

    def __init__(self, headers: Iterable[tuple[str, str]], most: int = MAX_REPLY_BODY) -> None:
        """`headers` of the reply, their names in lower case; `most`: the largest body.

        Raises `provider.decode` for an unknown encoding.
        """
        fields: dict[str, str] = {}
        for name, value in headers:
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
        self._most = min(most, MAX_REPLY_BODY)
        encoding = fields.get("content-encoding", "").strip().lower()
        if encoding not in (*_PLAIN, *_ZLIB):
            raise _unreadable("its encoding is not one that was asked for", 0, encoding=encoding[:40])
        self._inflate = zlib.decompressobj(_EITHER_FORM) if encoding in _ZLIB else None
        self._is_json = "json" in fields.get("content-type", "")
        self._has_end = "content-length" in fields or "transfer-encoding" in fields
        self._received: list[bytes] = []
        """As they came, compressed or not."""
        self._wire = 0
        self._size = 0
        self._line = 0

    def feed(self, data: bytes, hear: Callable[[bytes], None] | None = None) -> None:
        """Take bytes as they came; `hear` gets them decoded, in pieces.

        Raises `provider.decode` when they are too many, or not what they say they are.
        """
        self._received.append(data)
        self._wire += len(data)
        if self._wire > self._most + _OVERHEAD:
            raise self._too_large()
        for piece in (data,) if self._inflate is None else self._inflate_chunks(self._inflate, data):
            self._size += len(piece)
            if self._size > self._most:
                raise self._too_large()
            if hear is not None:
                self._measure_line(piece)
                hear(piece)

    def end(self, status: int) -> bytes:
        """The whole body. Raises `provider.zero_output` when it was cut off."""
        body = b"".join(self._received)
        if self._inflate is not None and body:
            if not self._inflate.eof:
                raise cut_off_error(self._size)
            body = zlib.decompress(body, _EITHER_FORM, self._size + 1)
        if status == 200 and self._is_json and not self._has_end and not _is_json(body):
            raise cut_off_error(len(body))
        return body

    def _too_large(self) -> ProviderError:
        return _unreadable(f"it is larger than {self._most} bytes", self._most, limit=self._most)

    def _inflate_chunks(self, inflate: zlib._Decompress, data: bytes) -> Iterator[bytes]:
        full = True
        while full:
            try:
                piece = inflate.decompress(data, _PIECE)
            except zlib.error:
                raise _unreadable("it is not compressed as it says", self._size) from None
            full = len(piece) == _PIECE
            data = inflate.unconsumed_tail
            if piece:
                yield piece
        if inflate.unused_data:
            raise _unreadable("there are bytes after its compressed form", self._size)

    def _measure_line(self, data: bytes) -> None:
        last = max(data.rfind(b"\n"), data.rfind(b"\r"))
        longest = self._line + len(data) if last < 0 else max(self._line, len(data))
        if longest > MAX_STREAM_LINE:
            raise _unreadable(f"a line of it is longer than {MAX_STREAM_LINE} bytes", self._size, limit=MAX_STREAM_LINE)
        self._line = longest if last < 0 else len(data) - 1 - last


def cut_off_error(received: int) -> ProviderError:
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
