"""What every provider's codec can do: neutral requests to HTTP and HTTP to neutral replies, without any IO.

Rule 1  The same request gives the same bytes, on every machine. A codec has no state.
Rule 2  A codec takes any bytes and never raises over them: what is not the protocol is a `Fault`.
Rule 3  A reply is whole or it is none. Nothing that was cut off is ever given as a `Reply`.
Rule 4  Credentials and the values of `${NAME}` are added by whoever sends a call, never here.
Rule 5  A conversation is encoded in segments. One is an `Assistant` message and all that follows it up to the next;
        the first is all before the first `Assistant`. A segment that is over never changes, so its bytes are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from agentrun.core.effects import ModelRequest
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Message, Reply
from agentrun.core.package import ModelSettings, Route
from agentrun.core.package_tools import Tool
from agentrun.wire import HttpCall, HttpReply

ReplyOrFault: TypeAlias = Reply | Fault
ReadBlob: TypeAlias = Callable[[str], bytes]
"""The bytes of a picture or a file, by their hash."""


class StreamDecoder(Protocol):
    """Reads one streamed reply."""

    def feed(self, data: bytes) -> list[str]:
        """The texts that these bytes bring. How the bytes are cut into pieces makes no difference."""

    def end(self) -> ReplyOrFault:
        """What came of it, after the last byte or when the connection was cut.

        Without its last event it is `provider.empty`; who sent the call knows better when the connection broke.
        """


class Codec(Protocol):
    """Speaks one provider's language."""

    def problems(self, model: ModelSettings, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:
        """What this provider cannot do of what is asked, each a sentence with the spec's key."""

    def segment(self, messages: Sequence[Message], request: ModelRequest, blob: ReadBlob) -> list[bytes]:
        """The encoded items of the conversation that one segment gives. They depend on it and on the route alone."""

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        """The whole request around the items of all segments."""

    def decode(self, reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
        """Any reply at all that came in one piece."""

    def stream(self, request: ModelRequest) -> StreamDecoder:
        """A decoder of one streamed reply with status 200. Any other status goes through `decode`."""


# --- one run's conversation as a provider reads it: every message is encoded once -----------------------------


class ConversationEncoder:
    """Encodes the requests of one run."""

    def __init__(self, codec: Codec, blob: ReadBlob) -> None:
        self._codec = codec
        self._blob = blob
        self._begin(None)

    def encode(self, request: ModelRequest) -> HttpCall:
        if request.route != self._route or request.messages.until(len(self._messages)) != self._messages:
            self._begin(request.route)
        new = request.messages.since(len(self._messages))
        if new and not isinstance(new[0], Assistant):
            self._reopen()
            new = request.messages.since(len(self._messages))
        for segment in split_segments(new):
            items = self._codec.segment(segment, request, self._blob)
            self._last = len(self._messages), len(self._items)
            self._messages += segment
            self._items += items
        return self._codec.call(request, self._items)

    def _begin(self, route: Route | None) -> None:
        self._route = route
        self._messages: tuple[Message, ...] = ()
        self._items: list[bytes] = []
        self._last = 0, 0

    def _reopen(self) -> None:
        """Forget the last segment."""
        messages, items = self._last
        self._messages = self._messages[:messages]
        del self._items[items:]


def split_segments(messages: Sequence[Message]) -> Iterator[tuple[Message, ...]]:
    """Each assistant message with all that follows it; first what comes before any."""
    start = 0
    for index, message in enumerate(messages):
        if isinstance(message, Assistant) and index > start:
            yield tuple(messages[start:index])
            start = index
    if messages:
        yield tuple(messages[start:])
