"""What crosses the seam to the network: one request, one reply, nothing of any HTTP library."""

from __future__ import annotations

from msgspec import Struct

SCRIPTED = "agentrun-provider"
"""What a scripted provider calls itself in its replies: a recording of it can say that no model was asked."""


class HttpAuth(Struct, frozen=True):
    """Which credential a request carries, by name. Its value is added by whoever sends the request."""

    header: str
    """The header that it goes into."""
    prefix: str
    """What stands before it there."""
    name: str
    """The environment variable that holds it."""


class HttpCall(Struct, frozen=True):
    """A request as a codec builds it. Credentials are added by whoever sends it, never here."""

    method: str
    url: str
    """`${NAME}` stands for an environment variable: a recording has the endpoint as it was declared."""
    headers: tuple[tuple[str, str], ...]
    """`${NAME}` as in `url`."""
    body: bytes
    auth: HttpAuth | None = None


class HttpReply(Struct, frozen=True):
    """A whole reply; `body` is decoded (no content encoding left)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
