"""What every provider's codec can do: neutral requests to HTTP and HTTP to neutral replies, without any IO.

Rule 1  `encode` gives the same bytes for the same request, on every machine.
Rule 2  `decode` takes any bytes and never raises: what is not the protocol is a `Fault`.
Rule 3  Credentials and the values of `${NAME}` are added by whoever sends a call, never here.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from agentrun.core.effects import ModelRequest
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Reply
from agentrun.core.package import Route
from agentrun.wire import HttpCall, HttpReply

Decoded: TypeAlias = Reply | Fault


class Codec(Protocol):
    def check(self, route: Route) -> None:
        """Refuse a route that cannot be encoded, before a run depends on it (`package.invalid`)."""

    def encode(self, request: ModelRequest) -> HttpCall: ...

    def decode(self, reply: HttpReply) -> Decoded: ...
