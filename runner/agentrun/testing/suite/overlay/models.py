"""The models of a run with faults before them.

Rule 1  What comes is read by the model's own codec, as if it had come over the wire.
Rule 2  A reply that is cut is the recorded one: so many of its pieces are heard, then the connection breaks. Where
        there is no recording of it (while one is made) nothing is heard. A reply that did not stream is one piece.
Rule 3  Cut after its last piece a reply is whole, and is kept. One that has fewer pieces is not cut, and not counted
        as an attempt that met the fault.
Rule 4  A recorded reply stays on the tape for the attempt that gets through. When another route answers in the end, it
        counts as played.
"""

from __future__ import annotations

from msgspec import UNSET

from agentrun.core.facts_base import Fault
from agentrun.core.messages import Reply
from agentrun.engine.exchange import is_stream
from agentrun.engine.taped import Heard
from agentrun.testing.suite.overlay import places
from agentrun.testing.suite.overlay.layer import Layer
from agentrun.testing.suite.overlay.wire_faults import cut, failing
from agentrun.wire import HttpCall, HttpReply, Sender


class LaidModels:
    """The models of one run, whatever route is taken to them."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self._struck: list[HttpCall] = []
        """Requests of the call under way that something was injected for."""
        self._sent: HttpCall | None = None
        """The latest request that went through."""

    def over(self, sender: Sender) -> Sender:
        return _LaidSender(self, sender)

    def went_wrong(self, call: HttpCall) -> None:
        self._struck.append(call)

    def goes_through(self, call: HttpCall) -> None:
        self._sent = call

    def read(self, answer: Reply | Fault) -> None:
        """Told what the codec made of a reply."""
        self.layer.faults.settled(self.layer.member, answer.code if isinstance(answer, Fault) else None)
        if isinstance(answer, Reply):
            through = None if self._sent is None else (self._sent.url, self._sent.body)
            for key, call in {(each.url, each.body): each for each in self._struck}.items():
                if key != through:
                    self.layer.use_up(call)
            self._struck, self._sent = [], None


class _LaidSender:
    def __init__(self, models: LaidModels, sender: Sender) -> None:
        self._models = models
        self._sender = sender

    async def send(self, call: HttpCall, *, gap: int, time: int, heard: Heard | None = None) -> HttpReply:
        layer = self._models.layer
        fault = layer.faults.of_model(layer.member)
        if fault is None:
            return await self._through(call, gap, time, heard)
        if fault.inject.cut_after_chunk is not UNSET:
            return await self._cut(fault, fault.inject.cut_after_chunk, call, gap, time, heard)
        fault.has_struck = True
        self._models.went_wrong(call)
        return await failing(fault.inject, call, layer.clock, gap=gap, time=time, streamed=heard is not None)

    async def _cut(
        self, fault: places.Fault, after: int, call: HttpCall, gap: int, time: int, heard: Heard | None
    ) -> HttpReply:
        layer = self._models.layer
        kept = None if layer.player is None else layer.player.peek(call, layer.member.path)
        pieces = (0,) if kept is None else kept.chunks or (len(kept.reply.body),)
        if kept is None or after < len(pieces):
            fault.has_struck = True
            self._models.went_wrong(call)
            raise cut(b"" if kept is None else kept.reply.body, pieces, after, heard)
        if after > len(pieces):
            fault.passes(layer.member)
            return await self._through(call, gap, time, heard)
        fault.has_struck = True
        reply = await self._through(call, gap, time, heard)
        if heard is None or not is_stream(reply):
            return reply
        raise cut(reply.body, pieces, after, None)

    async def _through(self, call: HttpCall, gap: int, time: int, heard: Heard | None) -> HttpReply:
        """As if nothing were laid over it."""
        self._models.goes_through(call)
        pieces = 0

        def hear(data: bytes) -> None:
            nonlocal pieces
            pieces += 1
            assert heard is not None
            heard(data)

        layer = self._models.layer
        reply = await self._sender.send(call, gap=gap, time=time, heard=None if heard is None else hear)
        layer.faults.heard(layer.member, max(pieces, 1))
        return reply
