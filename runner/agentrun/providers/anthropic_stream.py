"""A streamed answer of Anthropic Messages.

Rule 1  The stream is whole with `message_stop`; what follows is not looked at. Without it there is no reply.
Rule 2  Pieces belong to the block of their index, and a block that was never begun has none.
Rule 3  Events and pieces of kinds that are not known here are passed over: the API may add some at any time.
Rule 4  The first error is the result; what follows it is not looked at.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import asdict, replace

from agentrun.canon import compact
from agentrun.core.effects import ModelRequest
from agentrun.core.facts_base import Fault
from agentrun.providers.anthropic_reply import Block, Error, Head, Said, StopDetails, Tokens, broken_off, make_reply
from agentrun.providers.codec import Decoded
from agentrun.providers.faults import UNREADABLE, decode_fault, unended_fault, unreadable
from agentrun.providers.sse import SseDecoder


class _Delta(Struct):
    """A piece of a block, or the end of the message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class _Event(Struct):
    type: str
    index: int = 0
    message: Head | None = None
    content_block: Raw = Raw(b"")
    delta: _Delta | None = None
    usage: Tokens | None = None
    error: Error | None = None


_event = msgspec.json.Decoder(_Event)
_block = msgspec.json.Decoder(Block)


class _Open:
    """A block that is being put together."""

    def __init__(self, raw: Raw) -> None:
        self.block = _block.decode(raw)
        self._whole: dict[str, Any] = msgspec.json.decode(raw)
        self._texts = [self.block.text]
        self._thoughts = [self.block.thinking]
        self._json: list[str] = []
        self._signature: str | UnsetType = UNSET

    def add(self, delta: _Delta) -> str:
        """Takes a piece; gives the text in it that is for people."""
        match delta.type:
            case "text_delta":
                self._texts.append(delta.text)
                return delta.text
            case "thinking_delta":
                self._thoughts.append(delta.thinking)
            case "signature_delta":
                self._signature = delta.signature
            case "input_json_delta":
                self._json.append(delta.partial_json)
        return ""

    def said(self) -> Said:
        block = replace(self.block, text="".join(self._texts))
        if block.type == "thinking":
            self._whole["thinking"] = "".join(self._thoughts)
        if self._signature is not UNSET:
            self._whole["signature"] = self._signature
        arguments = "".join(self._json)
        return Said(
            block,
            arguments if arguments.strip() else bytes(block.input).decode(),
            compact(self._whole).decode(),
        )


class AnthropicStream:
    """Reads one reply."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._sse = SseDecoder()
        self._fault: Fault | None = None
        self._done = False
        self._head = Head()
        self._blocks: dict[int, _Open] = {}

    def feed(self, data: bytes) -> list[str]:
        return [text for event in self._sse.feed(data) if (text := self._read(event.data))]

    def end(self) -> Decoded:
        for event in self._sse.end():
            if _is_whole(event.data):
                self._read(event.data)
        if self._fault is not None:
            return self._fault
        if not self._done:
            return unended_fault()
        return make_reply(self._head, [block.said() for _, block in sorted(self._blocks.items())], self._request)

    def _read(self, data: str) -> str:
        if self._done or self._fault is not None:
            return ""
        try:
            return self._take(_event.decode(data))
        except UNREADABLE as problem:
            self._fault = unreadable(problem, len(data))
        return ""

    def _take(self, event: _Event) -> str:
        match event.type:
            case "message_start":
                self._head = event.message or Head()
            case "content_block_start":
                return self._begin(event)
            case "content_block_delta":
                return self._add(event)
            case "message_delta":
                self._finish(event)
            case "message_stop":
                self._done = True
            case "error":
                self._fault = broken_off(event.error or Error())
        return ""

    def _begin(self, event: _Event) -> str:
        if event.index in self._blocks:
            self._fault = decode_fault("a block begins twice", {"pointer": "/index"})
            return ""
        block = self._blocks[event.index] = _Open(event.content_block)
        return block.block.text

    def _add(self, event: _Event) -> str:
        block = self._blocks.get(event.index)
        if block is None:
            self._fault = decode_fault("a piece of a block that was never begun", {"pointer": "/index"})
            return ""
        return block.add(event.delta or _Delta())

    def _finish(self, event: _Event) -> None:
        """The end of the message, with the usage that is known by now."""
        delta = event.delta or _Delta()
        usage = self._head.usage
        if event.usage is not None:
            told = {name: value for name, value in asdict(event.usage).items() if value is not None}
            usage = replace(usage or Tokens(), **told)
        self._head = replace(
            self._head,
            stop_reason=delta.stop_reason or self._head.stop_reason,
            stop_details=delta.stop_details or self._head.stop_details,
            usage=usage,
        )


def _is_whole(data: str) -> bool:
    """Whether what came last is an event, or only the beginning of one."""
    try:
        _event.decode(data)
    except UNREADABLE:
        return False
    return True
