"""Decode the body of a reply while it arrives, within size limits.

Rule 1  Limits apply to decoded bytes: a few kilobytes on the wire can be gigabytes in memory.
Rule 2  gzip and deflate are decoded in small pieces, although they are not requested. Only the compressed bytes are
        kept, and decoded again at the end, so a body over the limit is refused before it is in memory. Other encodings
        and combined encodings are refused.
Rule 3  A streamed body also has a limit for each line, because a reader of lines keeps a line until it ends.
Rule 4  If a body ends with the connection, its length is unknown. If it is JSON, it is complete if it can be parsed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

from agentrun.canonical_json import is_json
from agentrun.errors import ProviderError

MAX_REPLY_BODY = 64 * 1024 * 1024
MAX_STREAMED_BODY = 32 * 1024 * 1024
"""The limit for a streamed body, which is in memory twice: as bytes and decoded."""
MAX_STREAM_LINE = 16 * 1024 * 1024

_PLAIN = ("", "identity")
_ZLIB = ("gzip", "x-gzip", "deflate")
_EITHER_FORM = 32 + zlib.MAX_WBITS
"""For zlib: accept a gzip or a zlib header."""
_PIECE = 256 * 1024
"""Decoded bytes that are in memory at once."""
_OVERHEAD = 64 * 1024
"""How many bytes larger than the limit a compressed body may be."""


class ReplyBody:
    def __init__(self, headers: Iterable[tuple[str, str]], most: int = MAX_REPLY_BODY) -> None:
        """`headers`: those of the reply, with lower-case names; `most`: the size limit.

        Raises `provider.decode` for an unknown encoding.
        """
        fields: dict[str, str] = {}
        for name, value in headers:
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
        self._most = min(most, MAX_REPLY_BODY)
        encoding = fields.get("content-encoding", "").strip().lower()
        if encoding not in (*_PLAIN, *_ZLIB):
            raise _unreadable("its content encoding is not supported", 0, encoding=encoding[:40])
        self._inflate = zlib.decompressobj(_EITHER_FORM) if encoding in _ZLIB else None
        self._is_json = "json" in fields.get("content-type", "")
        self._has_end = "content-length" in fields or "transfer-encoding" in fields
        self._received: list[bytes] = []
        """The bytes as they arrived, compressed or not."""
        self._wire = 0
        self._size = 0
        self._line = 0

    def feed(self, data: bytes, hear: Callable[[bytes], None] | None = None) -> None:
        """Add bytes as they arrived; `hear` is called with decoded pieces.

        Raises `provider.decode` if the body is too large or cannot be decoded.
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
        """The complete body. Raises `provider.zero_output` if it was cut off."""
        body = b"".join(self._received)
        if self._inflate is not None and body:
            if not self._inflate.eof:
                raise cut_off_error(self._size)
            body = zlib.decompress(body, _EITHER_FORM, self._size + 1)
        if status == 200 and self._is_json and not self._has_end and not is_json(body):
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
                raise _unreadable("its compressed data is invalid", self._size) from None
            full = len(piece) == _PIECE
            data = inflate.unconsumed_tail
            if piece:
                yield piece
        if inflate.unused_data:
            raise _unreadable("there are bytes after the compressed data", self._size)

    def _measure_line(self, data: bytes) -> None:
        last = max(data.rfind(b"\n"), data.rfind(b"\r"))
        longest = self._line + len(data) if last < 0 else max(self._line, len(data))
        if longest > MAX_STREAM_LINE:
            raise _unreadable(f"it has a line of more than {MAX_STREAM_LINE} bytes", self._size, limit=MAX_STREAM_LINE)
        self._line = longest if last < 0 else len(data) - 1 - last


def cut_off_error(received: int) -> ProviderError:
    message = f"the reply was cut off after {received} bytes"
    return ProviderError("provider.zero_output", message, fields={"status": None, "received": received})


def _unreadable(why: str, offset: int, **fields: str | int) -> ProviderError:
    return ProviderError("provider.decode", f"the reply cannot be read: {why}", fields={"offset": offset, **fields})
