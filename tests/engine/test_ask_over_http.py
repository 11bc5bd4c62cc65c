"""One model request over HTTP, streamed or not, complete or cut off."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.core.effects import AskModel
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.engine.models import ask_over_http
from agentrun.errors import AgentrunError, ProviderError
from agentrun.providers.codec import codec_for
from agentrun.wire import HttpCall, HttpReply

from ..attacks.provider_runs import STREAM, events
from ..providers.exchange import request
from ..scripted_service import completion, failure

SSE = (("content-type", "text/event-stream"),)
FULL_STREAM = events(*STREAM)
CUT_STREAM = events(*STREAM[:2])
CALL = HttpCall("POST", "https://a", (), b"")


class PieceSender:
    """A sender that gives a body in pieces and then a reply or an error."""

    def __init__(self, *pieces: bytes, end: HttpReply | Exception | None = None) -> None:
        self._pieces = pieces
        self._end = end or HttpReply(200, SSE, b"".join(pieces))
        self.limits: tuple[int, int] | None = None
        self.streamed = False

    async def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> HttpReply:
        self.limits, self.streamed = (gap, time), heard is not None
        for piece in self._pieces:
            if heard is not None:
                heard(piece)
        if isinstance(self._end, Exception):
            raise self._end
        return self._end


def ask(sender: PieceSender, *, stream: bool = True) -> tuple[Reply | Fault, list[str]]:
    texts: list[str] = []
    effect = AskModel("m1.1", 1, 1, 0, 0, request("openai", "gpt-4.1-mini", stream=stream), gap=7, time=9)
    answer = asyncio.run(ask_over_http(codec_for("openai"), sender, effect, CALL, texts.append))
    assert sender.limits == (7, 9)
    assert sender.streamed is stream
    return answer, texts


def text_or_code(answer: Reply | Fault) -> Any:
    return answer.message.text if isinstance(answer, Reply) else answer.code


def test_unstreamed_reply_gives_no_deltas() -> None:
    answer, texts = ask(PieceSender(end=completion("Water.")), stream=False)
    assert (text_or_code(answer), texts) == ("Water.", [])


def test_streamed_reply_gives_its_deltas() -> None:
    answer, texts = ask(PieceSender(FULL_STREAM[:50], FULL_STREAM[50:]))
    assert (text_or_code(answer), texts) == ("Water.", ["Wa", "ter."])


@pytest.mark.parametrize("reply", [failure(500), failure(429)])
def test_error_status_for_a_streamed_request_is_a_fault(reply: HttpReply) -> None:
    answer, texts = ask(PieceSender(end=reply))
    assert isinstance(answer, Fault)
    assert answer.fields["status"] == reply.status
    assert texts == []


def test_unstreamed_reply_to_a_streamed_request_is_accepted() -> None:
    answer, _ = ask(PieceSender(end=completion("Water.")))
    assert text_or_code(answer) == "Water."


def test_html_reply_to_a_streamed_request_is_a_decode_fault() -> None:
    answer, _ = ask(PieceSender(end=HttpReply(200, (("Content-Type", "text/html; charset=utf-8"),), b"<html>")))
    assert text_or_code(answer) == "provider.decode"


@pytest.mark.parametrize("code", ["provider.zero_output", "provider.timeout"])
def test_a_whole_reply_is_kept_however_the_connection_ends(code: str) -> None:
    answer, texts = ask(PieceSender(FULL_STREAM, end=ProviderError(code, "cut")))
    assert (text_or_code(answer), texts) == ("Water.", ["Wa", "ter."])


@pytest.mark.parametrize("code", ["provider.zero_output", "provider.timeout"])
def test_incomplete_stream_is_discarded_when_the_connection_fails(code: str) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(PieceSender(CUT_STREAM, end=ProviderError(code, "cut")))
    assert caught.value.code == code


@pytest.mark.parametrize("code", ["provider.decode", "provider.transient"])
def test_complete_stream_is_discarded_after_a_decode_or_transient_error(code: str) -> None:
    with pytest.raises(AgentrunError) as caught:
        ask(PieceSender(FULL_STREAM, end=ProviderError(code, "no")))
    assert caught.value.code == code
