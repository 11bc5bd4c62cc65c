"""One run's conversation as a provider reads it: every message is encoded once.

Rule 1  What is kept is true only for the route and the messages it was made of. When either changed (a fallback, a
        summary), all is encoded again.
Rule 2  The last segment may still grow. When it did, it is encoded again, and nothing before it.
Rule 3  What failed leaves nothing behind: the next request finds all as before, or begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentrun.core.effects import ModelRequest
from agentrun.core.messages import Assistant, Message
from agentrun.core.package import Route
from agentrun.providers.codec import Blob, Codec
from agentrun.wire import HttpCall


class Conversation:
    """Encodes the requests of one run."""

    def __init__(self, codec: Codec, blob: Blob) -> None:
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
        for segment in segments(new):
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


def segments(messages: Sequence[Message]) -> Iterator[tuple[Message, ...]]:
    """Each assistant message with all that follows it; first what comes before any."""
    start = 0
    for index, message in enumerate(messages):
        if isinstance(message, Assistant) and index > start:
            yield tuple(messages[start:index])
            start = index
    if messages:
        yield tuple(messages[start:])
