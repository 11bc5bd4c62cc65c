"""What crosses the seam to the network: one request, one reply, nothing of any HTTP library."""

from __future__ import annotations

from msgspec import Struct


class HttpCall(Struct, frozen=True):
    """A request as a codec builds it. Credentials are added by whoever sends it, never here."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class HttpReply(Struct, frozen=True):
    """A whole reply; `body` is decoded (no content encoding left)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
