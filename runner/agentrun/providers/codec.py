"""What every provider's codec can do: neutral requests to HTTP and HTTP to neutral replies, without any IO.

Rule 1  The same request gives the same bytes, on every machine. A codec has no state.
Rule 2  A codec takes any bytes and never raises over them: what is not the protocol is a `Fault`.
Rule 3  A reply is whole or it is none. Nothing that was cut off is ever given as a `Reply`.
Rule 4  Credentials and the values of `${NAME}` are added by whoever sends a call, never here.
Rule 5  A conversation is encoded in segments. One is an `Assistant` message and all that follows it up to the next;
        the first is all before the first `Assistant`. A segment that is over never changes, so its bytes are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from agentrun.core.effects import ModelRequest
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Message, Reply
from agentrun.core.package import Model, Route
from agentrun.core.package_tools import Tool
from agentrun.wire import HttpCall, HttpReply

Decoded: TypeAlias = Reply | Fault
Blob: TypeAlias = Callable[[str], bytes]
"""The bytes of a picture or a file, by their hash."""


class StreamDecoder(Protocol):
    """Reads one streamed reply."""

    def feed(self, data: bytes) -> list[str]:
        """The texts that these bytes bring. How the bytes are cut into pieces makes no difference."""

    def end(self) -> Decoded:
        """What came of it, after the last byte or when the connection was cut.

        Without its last event it is `provider.empty`; who sent the call knows better when the connection broke.
        """


class Codec(Protocol):
    """Speaks one provider's language."""

    def problems(self, model: Model, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:
        """What this provider cannot do of what is asked, each a sentence with the spec's key."""

    def segment(self, messages: Sequence[Message], request: ModelRequest, blob: Blob) -> list[bytes]:
        """The encoded items of the conversation that one segment gives. They depend on it and on the route alone."""

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        """The whole request around the items of all segments."""

    def decode(self, reply: HttpReply, request: ModelRequest) -> Decoded:
        """Any reply at all that came in one piece."""

    def stream(self, request: ModelRequest) -> StreamDecoder:
        """A decoder of one streamed reply with status 200. Any other status goes through `decode`."""
