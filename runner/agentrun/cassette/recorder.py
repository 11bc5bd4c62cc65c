"""Keeps what a run sees of the world, in the order in which it asked.

Rule 1  The place of an interaction is taken when its request is issued, not when it is answered.
Rule 2  What fails or is given up is kept too, with what had come of it, up to `MAX_PARTIAL_BODY` bytes.
Rule 3  Interactions that are kept from an earlier recording stay as they are; what is new comes after them in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentrun.cassette.file import NO_REPLY
from agentrun.cassette.interactions import Failure, Interaction
from agentrun.wire import HttpCall, HttpReply

ChunkCallback = Callable[[bytes], None]
_STREAM = (("content-type", "text/event-stream"),)
MAX_PARTIAL_BODY = 4 * 1024 * 1024
"""Bytes that are kept of a reply that is not whole: a hostile one may have come up to the cap of a reply."""


class Recorder:
    """Records one run. `now` gives milliseconds of a clock that never goes back."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._began = now()
        self._shift = 0
        self._pending: list[PendingInteraction] = []
        self._last = -1
        self.reused = 0
        """How many were kept of an earlier recording."""

    def begin(self, call: HttpCall, path: str) -> PendingInteraction:
        """A request is about to be sent."""
        take = PendingInteraction(call, path, self._ends, self._time())
        self._pending.append(take)
        return take

    def reuse(self, interaction: Interaction) -> None:
        """One of an earlier recording was played."""
        take = PendingInteraction(interaction.call, interaction.path, self._time, 0)
        take.interaction, take.is_reused = interaction, True
        self._pending.append(take)
        self.reused += 1
        self._shift = max(self._shift, (interaction.end or 0) - (self._now() - self._began))

    @property
    def count(self) -> int:
        return len(self._pending)

    def interactions(self) -> tuple[Interaction, ...]:
        """All so far. What is still under way was given up."""
        for take in self._pending:
            if take.interaction is None:
                take.stop()
        return tuple(take.interaction for take in self._pending if take.interaction is not None)

    def new_interactions(self) -> tuple[Interaction, ...]:
        """Those that are of no earlier recording."""
        return tuple(take.interaction for take in self._pending if take.interaction is not None and not take.is_reused)

    def servers(self) -> dict[str, str]:
        """The addresses of models that were asked now, each with what its server calls itself."""
        now = (take for take in self._pending if not take.is_reused and take.call.method != "CALL")
        return {take.call.url: take.server for take in now if take.call.reach is None}

    def _ends(self) -> int:
        """Now, but after whatever ended before: the times tell the order."""
        self._last = max(self._time(), self._last + 1)
        return self._last

    def _time(self) -> int:
        return self._now() - self._began + self._shift


class PendingInteraction:
    """One interaction while it happens."""

    def __init__(self, call: HttpCall, path: str, time: Callable[[], int], start: int) -> None:
        self.call = call
        self._path = path
        self._time = time
        self._start = start
        self._sizes: list[int] = []
        """Of the pieces that came."""
        self._beginning = bytearray()
        self.interaction: Interaction | None = None
        self.is_reused = False
        self.server = ""
        """What answered calls itself."""

    def record_chunks(self, heard: ChunkCallback | None) -> ChunkCallback | None:
        """Passes the pieces of a body on and remembers them."""
        if heard is None:
            return None

        def both(data: bytes) -> None:
            self._sizes.append(len(data))
            self._beginning += data[: MAX_PARTIAL_BODY - len(self._beginning)]
            heard(data)

        return both

    def end(self, reply: HttpReply) -> None:
        """The whole reply is there."""
        self.server = next((value for name, value in reply.headers if name == "server"), "")
        is_whole = sum(self._sizes) == len(reply.body)  # a reply that is no success is not heard
        self._make(reply, chunks=tuple(self._sizes) if is_whole else ())

    def fail(self, code: str, message: str, fields: dict[str, Any]) -> None:
        """There will be no whole reply."""
        self._make(self._partial(), chunks=self._partial_chunks(), failure=Failure(code, message, fields))

    def stop(self) -> None:
        """Nobody waits for it any more."""
        self._make(self._partial(), chunks=self._partial_chunks(), stopped=True)

    def _partial(self) -> HttpReply:
        return HttpReply(200, _STREAM, bytes(self._beginning)) if self._sizes else HttpReply(NO_REPLY, (), b"")

    def _partial_chunks(self) -> tuple[int, ...]:
        """The sizes of the pieces that are kept; the last one may be cut."""
        chunks, left = [], len(self._beginning)
        for size in self._sizes:
            chunks.append(min(size, left))
            left -= chunks[-1]
            if not left:
                break
        return tuple(chunks)

    def _make(self, reply: HttpReply, **more: Any) -> None:
        if self.interaction is None:
            self.interaction = Interaction(
                self.call, reply, start=self._start, end=self._time(), path=self._path, **more
            )
