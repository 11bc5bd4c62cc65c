"""Record the interactions of a run in the order of its requests.

Rule 1  The order is that of the requests, not of the replies.
Rule 2  Failed and cancelled interactions are recorded too, with at most `MAX_PARTIAL_BODY` bytes of the reply.
Rule 3  Interactions reused from an earlier recording stay unchanged; new ones have later times.
Rule 4  An interaction is appended to the log when it ends (`recording_log.py`), and is not kept in memory. Of requests
        only the last one of each run and address is kept, because the next one continues it.
Rule 5  If a secret cannot be redacted, the log is removed and nothing more is recorded. The run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from agentrun.cassette.interactions import NO_REPLY, Failure, Interaction, PackedCall
from agentrun.cassette.json_body import JsonBody
from agentrun.cassette.recording_log import LoggedInteraction, RecordingLog
from agentrun.cassette.redact_recording import RecordingRedaction
from agentrun.errors import AgentrunError
from agentrun.files import TemporaryRecording
from agentrun.wire import HttpCall, HttpReply

ChunkCallback = Callable[[bytes], None]
_STREAM = (("content-type", "text/event-stream"),)
MIN_SHARED_BODY = 2048
"""Bytes. Smaller requests are kept as they are."""
MAX_PARTIAL_BODY = 4 * 1024 * 1024
"""Bytes recorded of an incomplete reply: a hostile one may be as long as the limit of replies."""


class Recorder:
    """Records a run, or the runs of a conversation. `now` returns the milliseconds of a monotonic clock."""

    def __init__(
        self,
        now: Callable[[], int],
        log: RecordingLog | None = None,
        redact: RecordingRedaction | None = None,
        earlier: Sequence[LoggedInteraction] = (),
    ) -> None:
        """`log`: None if the recording does not survive the process. `redact`: None for a test without secrets.
        `earlier`: the interactions in the log, if the run is resumed; they are numbered from 1 without gaps."""
        self.is_kept = log is not None
        """Whether the log survives the process."""
        self._now = now
        self._log = log or RecordingLog(TemporaryRecording(b"{}\n"), b"{}")
        self._redact = redact
        self._began = now()
        self._last = max((each.interaction.end or 0 for each in earlier), default=-1)
        self._shift = max(self._last, 0)
        self._pending: dict[int, PendingInteraction] = {}
        self._bodies: dict[tuple[str, str], tuple[JsonBody, bytes]] = {}
        """The last large request of each run and address, parsed and as it was sent."""
        self.count = len(earlier)
        """How many requests there were."""
        self.error: AgentrunError | None = None
        """Why nothing more is recorded."""

    def begin(self, call: HttpCall, path: str) -> PendingInteraction:
        self.count += 1
        pending = PendingInteraction(self, self.count, call, self._share(call, path), path, self._time())
        self._pending[self.count] = pending
        return pending

    def _share(self, call: HttpCall, path: str) -> HttpCall | PackedCall:
        if len(call.body) < MIN_SHARED_BODY:
            return call
        earlier = self._bodies.get((path, call.url))
        body = None if earlier is None else earlier[0].continue_with(call.body, earlier[1])
        if body is None:
            body = JsonBody.parse(call.body)
            if body is None or body.compact() != call.body:
                return call
        self._bodies[path, call.url] = body, call.body
        return PackedCall(call.method, call.url, call.headers, body)

    def reuse(self, interaction: Interaction, number: int, effect: str) -> None:
        """`number`: that of the interaction in its cassette."""
        self.count += 1
        self._append(LoggedInteraction(self.count, interaction, effect, reused=number))
        self._shift = max(self._shift, (interaction.end or 0) - (self._now() - self._began))

    def add_settled(self, call: HttpCall, reply: HttpReply, path: str) -> None:
        """Add a call that has its result from a person."""
        self.count += 1
        start = self._time()
        interaction = Interaction(call, reply, start, self.end_time(), path=path)
        clean = self._clean(interaction, self.count)
        self._append(LoggedInteraction(self.count, clean, call.effect, is_settled=True))

    def end(self, pending: PendingInteraction, interaction: Interaction) -> None:
        """Append an interaction to the log. Raises `storage.failed`."""
        if self._pending.pop(pending.number, None) is None or self.error is not None:
            return
        call = pending.call
        server = pending.server if call.reach is None and call.method != "CALL" else None
        try:
            clean = self._clean(interaction, pending.number)
        except AgentrunError as error:  # a secret could not be redacted: the run goes on, but nothing is recorded
            self.error = error
            self._log.remove()
            return
        self._append(LoggedInteraction(pending.number, clean, call.effect, server))

    def _clean(self, interaction: Interaction, number: int) -> Interaction:
        return interaction if self._redact is None else self._redact.redact(interaction, self._log, number)

    def _append(self, logged: LoggedInteraction) -> None:
        if self.error is None:
            try:
                self._log.append(logged)
            except AgentrunError as error:
                self.error = error
                if self.is_kept:
                    raise

    def close(self) -> bool:
        """Redact what was appended before a value was found. Returns whether that was necessary. Raises
        `storage.failed`."""
        return self._redact is not None and self.error is None and self._redact.redact_earlier(self._log)

    def logged(self) -> list[LoggedInteraction]:
        """All interactions in the order of their requests. Unfinished ones are recorded as stopped."""
        for each in [*self._pending.values()]:
            each.stop()
        self.close()
        return [] if self.error is not None else sorted(self._log.read(), key=lambda each: each.number)

    def interactions(self) -> tuple[Interaction, ...]:
        return tuple(each.interaction for each in self.logged())

    def remove(self) -> None:
        """Remove the log. The cassette is written, or there is none."""
        self._log.remove()

    def end_time(self) -> int:
        """The time now, but later than every earlier end, because the times give the order."""
        self._last = max(self._time(), self._last + 1)
        return self._last

    def _time(self) -> int:
        return self._now() - self._began + self._shift


class PendingInteraction(Struct):
    _recorder: Recorder
    number: int
    call: HttpCall
    _request: HttpCall | PackedCall
    _path: str
    _start: int
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
        end = self._recorder.end_time()
        self._recorder.end(self, Interaction(self._request, reply, self._start, end, path=self._path, **more))
