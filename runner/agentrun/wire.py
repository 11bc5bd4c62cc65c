"""HTTP requests and replies as plain data, independent of any HTTP library."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec import Struct

SCRIPTED_PROVIDER_NAME = "agentrun-provider"
"""The name of a scripted provider in its replies, so that a cassette can show that no real model was asked."""
METADATA_HOSTS = frozenset(
    {
        *("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "100.100.100.200", "192.0.0.192"),
        *("168.63.129.16", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
        *("metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"),
        *("metadata.azure.com", "metadata.azure.internal", "metadata.tencentyun.com", "metadata.oraclecloud.com"),
    }
)
"""The metadata services of clouds, which hand out credentials. They are blocked unless exactly that host is listed."""


class HttpAuth(Struct, frozen=True):
    """The credential of a request: the name of an environment variable. The sender adds its value."""

    header: str
    prefix: str
    """The text before the credential, such as `Bearer `."""
    name: str


class NetworkAccess(Struct, frozen=True):
    """The hosts that a request may reach. Requests of tools have one; requests to models have none."""

    hosts: tuple[str, ...]
    """The allowed hosts, with a port if it is not the default port, or `*.domain` for its subdomains. Empty: only the
    origin of `home`."""
    private_network: bool
    max_bytes: int
    home: str
    """The declared address, with `${NAME}`. Credentials are sent to its origin only."""


class HttpCall(Struct, frozen=True):
    method: str
    url: str
    """`${NAME}` is an environment variable, as in headers: a cassette contains them as they were declared."""
    headers: tuple[tuple[str, str], ...]
    body: bytes
    auth: HttpAuth | None = None
    reach: NetworkAccess | None = None
    """Not written to cassettes."""
    without_defaults: HttpCall | None = None
    """The request without the defaults of arguments that a model left out. A cassette that was recorded before an
    argument got its default has this one. Not written to cassettes."""
    effect: str = ""
    """The effect that sends it, or the question that it asks. Not written to cassettes."""


class HttpReply(Struct, frozen=True):
    """A complete reply. The content encoding of `body` is already decoded."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str:
        return next((value.strip() for key, value in self.headers if key.lower() == name), "")


class Sender(Protocol):
    def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> Coroutine[Any, Any, HttpReply]:
        """`gap` limits the silence between two pieces of the reply and `time` the whole exchange, in milliseconds.
        `heard` gets the body as it arrives if the status is 200. Raises an `AgentrunError` without a complete reply."""
