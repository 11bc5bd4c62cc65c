"""Record the interactions of a run in the order of its requests.

Rule 1  The order is that of the requests, not of the replies.
Rule 2  Failed and cancelled interactions are recorded too, with at most `MAX_PARTIAL_BODY` bytes of the reply.
Rule 3  Interactions reused from an earlier recording stay unchanged; new ones have later times.
Rule 4  A request that continues an earlier one shares its parts, so that a long run takes no more memory per step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.interactions import NO_REPLY, Failure, Interaction, PackedCall
from agentrun.cassette.json_body import JsonBody
from agentrun.wire import HttpCall, HttpReply

ChunkCallback = Callable[[bytes], None]
_STREAM = (("content-type", "text/event-stream"),)
MIN_SHARED_BODY = 2048
"""Bytes. Smaller requests are kept as they are."""
MAX_PARTIAL_BODY = 4 * 1024 * 1024
"""Bytes recorded of an incomplete reply: a hostile one may be as long as the limit of replies."""


class Recorder:
    """Records one run. `now` returns the milliseconds of a monotonic clock."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._began = now()
        self._shift = 0
        self._pending: list[PendingInteraction] = []
        self._last = -1
        self._bodies: dict[tuple[str, str], JsonBody] = {}
        """The last large request of each run and address."""
        self.reused = 0
        """How many interactions come from an earlier recording."""

    def begin(self, call: HttpCall, path: str) -> PendingInteraction:
        request = self._share(call, path)
        shown = call if request is call else replace(call, body=b"")
        pending = PendingInteraction(shown, request, path, self._ends, self._time())
        self._pending.append(pending)
        return pending

    def _share(self, call: HttpCall, path: str) -> HttpCall | PackedCall:
        if len(call.body) < MIN_SHARED_BODY:
            return call
        earlier = self._bodies.get((path, call.url))
        body = None if earlier is None else earlier.continue_with(call.body)
        if body is None:
            body = JsonBody.parse(call.body)
            if body is None or body.compact() != call.body:
                return call
        self._bodies[path, call.url] = body
        return PackedCall(call.method, call.url, call.headers, body)

    def reuse(self, interaction: Interaction) -> None:
        request = interaction.request
        call = HttpCall(request.method, request.url, request.headers, b"")
        self._pending.append(PendingInteraction(call, request, interaction.path, self._time, 0, interaction, True))
        self.reused += 1
        self._shift = max(self._shift, (interaction.end or 0) - (self._now() - self._began))

    @property
    def count(self) -> int:
        return len(self._pending)

    def interactions(self) -> tuple[Interaction, ...]:
        """All interactions. Unfinished ones are marked as stopped."""
        for each in self._pending:
            if each.interaction is None:
                each.stop()
        return tuple(each.interaction for each in self._pending if each.interaction is not None)

    def new_interactions(self) -> tuple[Interaction, ...]:
        return tuple(each.interaction for each in self._pending if each.interaction is not None and not each.is_reused)

    def reused_interactions(self) -> tuple[Interaction, ...]:
        return tuple(each.interaction for each in self._pending if each.interaction is not None and each.is_reused)

    def servers(self) -> dict[str, str]:
        """The model addresses of new interactions, each with the `server` header of its reply."""
        new = (each for each in self._pending if not each.is_reused and each.call.method != "CALL")
        return {each.call.url: each.server for each in new if each.call.reach is None}

    def _ends(self) -> int:
        """The time now, but later than every earlier end, because the times give the order."""
        self._last = max(self._time(), self._last + 1)
        return self._last

    def _time(self) -> int:
        return self._now() - self._began + self._shift


class PendingInteraction(Struct):
    call: HttpCall
    """Without its body, if it is large."""
    _request: HttpCall | PackedCall
    _path: str
    _time: Callable[[], int]
    _start: int
    interaction: Interaction | None = None
    is_reused: bool = False
    server: str = ""
    _sizes: list[int] = []
    _beginning: bytearray = bytearray()
    _kept: list[int] = []
    """The sizes of the chunks in the beginning."""

    def record_chunks(self, on_chunk: ChunkCallback | None) -> ChunkCallback | None:
        if on_chunk is None:
            return None

        def both(data: bytes) -> None:
            self._sizes.append(len(data))
            if kept := data[: MAX_PARTIAL_BODY - len(self._beginning)]:
                self._beginning += kept
                self._kept.append(len(kept))
            on_chunk(data)

        return both

    def end(self, reply: HttpReply) -> None:
        self.server = next((value for name, value in reply.headers if name == "server"), "")
        is_whole = sum(self._sizes) == len(reply.body)  # the callback does not get replies with an error status
        self._make(reply, chunks=tuple(self._sizes) if is_whole else ())

    def fail(self, code: str, message: str, fields: dict[str, Any]) -> None:
        self._make(self._partial(), chunks=tuple(self._kept), failure=Failure(code, message, fields))

    def stop(self) -> None:
        self._make(self._partial(), chunks=tuple(self._kept), stopped=True)

    def _partial(self) -> HttpReply:
        return HttpReply(200, _STREAM, bytes(self._beginning)) if self._sizes else HttpReply(NO_REPLY, (), b"")

    def _make(self, reply: HttpReply, **more: Any) -> None:
        if self.interaction is None:
            end = self._time()
            self.interaction = Interaction(self._request, reply, self._start, end, path=self._path, **more)
