"""What crosses the seam to the network: one request, one reply, nothing of any HTTP library."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec import Struct

SCRIPTED_PROVIDER_NAME = "agentrun-provider"
"""What a scripted provider calls itself in its replies: a recording of it can say that no model was asked."""


class HttpAuth(Struct, frozen=True):
    """Which credential a request carries, by name. Its value is added by whoever sends the request."""

    header: str
    """The header that it goes into."""
    prefix: str
    """What stands before it there."""
    name: str
    """The environment variable that holds it."""


METADATA_HOSTS = frozenset(
    {
        *("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "100.100.100.200", "192.0.0.192"),
        *("168.63.129.16", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
        *("metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"),
        *("metadata.azure.com", "metadata.azure.internal", "metadata.tencentyun.com", "metadata.oraclecloud.com"),
    }
)
"""Where clouds give a machine its credentials. No request goes there unless exactly that host is listed for it."""


class NetworkAccess(Struct, frozen=True):
    """Where a request may go, whatever its address turns out to be. A tool's has one, a model's has none."""

    hosts: tuple[str, ...]
    """The hosts, with a port where it is not the scheme's own, or `*.domain` for all below it. None: the origin of
    `home` alone."""
    private_network: bool
    """Whether loopback and private addresses may be reached."""
    max_bytes: int
    """The largest reply that is read."""
    home: str
    """The address that was declared, with `${NAME}`. Credentials go to its origin and to no other."""


class HttpCall(Struct, frozen=True):
    """A request as a codec builds it. Credentials are added by whoever sends it, never here."""

    method: str
    url: str
    """`${NAME}` stands for an environment variable: a recording has the endpoint as it was declared."""
    headers: tuple[tuple[str, str], ...]
    """`${NAME}` as in `url`."""
    body: bytes
    auth: HttpAuth | None = None
    reach: NetworkAccess | None = None
    """Not part of what is asked: no recording has it."""


class HttpReply(Struct, frozen=True):
    """A whole reply; `body` is decoded (no content encoding left)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Sender(Protocol):
    def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> Coroutine[Any, Any, HttpReply]:
        """The whole reply to one request. `heard` gets the body of one with status 200 as it arrives.

        `gap` is the longest silence in the reply and `time` the longest that it may take, in milliseconds.
        Raises an `AgentrunError` when there is no whole reply.
        """
