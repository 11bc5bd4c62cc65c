"""Streams of Gemini."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.messages import Text
from agentrun.providers.codec import ReplyOrFault
from agentrun.providers.gemini import GeminiGenerate
from agentrun.providers.gemini_reply import GeminiStream

from . import exchange
from .exchange import (
    GOLDEN,
    NOW,
    SEARCH,
    cuts,
    damaged,
    fault,
    is_sound,
    never_partial,
    reply,
    stories,
    stream_of,
    told,
)
from .test_gemini_reply import ERRORS, error

CODEC = GeminiGenerate()
ASKED = exchange.request("gemini", "gemini-2.5-flash", tools=(SEARCH, NOW), stream=True)


def chunk(*texts: str, finish: str | None = None) -> dict[str, Any]:
    parts = [{"text": text} for text in texts]
    return {"candidates": [{"content": {"parts": parts}, **({"finishReason": finish} if finish else {})}]}


def sse(*chunks: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in chunks)


def streamed(data: bytes, places: list[int] | None = None) -> tuple[str, ReplyOrFault]:
    return exchange.streamed(CODEC, ASKED, data, places)


@pytest.mark.parametrize("story", stories("gemini"))
def test_golden(story: str) -> None:
    """A streamed reply comes to what the same reply in one piece comes to."""
    found = streamed(stream_of("gemini", story))[1]
    assert told(found) == (GOLDEN / "gemini" / f"{story}.decoded.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("story", "texts"),
    [
        ("text", "Hello ☃ world"),
        ("tools", "Let me see."),
        ("signed", "It is noon."),
        ("length", "Once upon a"),
        ("blocked", ""),
        ("filtered", ""),
    ],
)
def test_texts_pass(story: str, texts: str) -> None:
    assert streamed(stream_of("gemini", story))[0] == texts


@pytest.mark.parametrize("story", stories("gemini"))
@given(st.data())
def test_any_cuts(story: str, data: st.DataObject) -> None:
    whole = stream_of("gemini", story)
    assert streamed(whole, data.draw(cuts(whole))) == streamed(whole)


@pytest.mark.parametrize("story", stories("gemini"))
def test_byte_by_byte(story: str) -> None:
    whole = stream_of("gemini", story)
    assert streamed(whole, list(range(len(whole)))) == streamed(whole)


@pytest.mark.parametrize("story", stories("gemini"))
def test_nothing_partial(story: str) -> None:
    never_partial(ASKED, CODEC, stream_of("gemini", story), lambda whole: len(whole.rstrip()))


class _Hasty(GeminiStream):
    """A planted bug: a stream that is over is taken for whole."""

    def end(self) -> ReplyOrFault:
        self.feed(b"\n\n" + sse({"candidates": [{"finishReason": "STOP"}]}))
        return super().end()


class _HastyCodec(GeminiGenerate):
    stream = staticmethod(_Hasty)


def test_a_hasty_decoder_is_found_out() -> None:
    with pytest.raises(AssertionError):
        never_partial(ASKED, _HastyCodec(), stream_of("gemini", "text"), len)


def test_a_reason_that_is_said_too_early_is_not_the_end() -> None:
    """Old models said STOP with every piece."""
    early = sse(chunk("a", finish="STOP"), chunk("b"))
    assert fault(streamed(early)[1]).code == "provider.empty"
    assert reply(streamed(early + sse(chunk("c", finish="STOP")))[1]).message.parts == (Text("abc"),)


def test_usage_may_follow_the_end() -> None:
    tail = {"usageMetadata": {"promptTokenCount": 3}, "candidates": [{"content": {"parts": []}}]}
    found = reply(streamed(sse(chunk("a", finish="STOP"), tail))[1])
    assert found.finish == "stop"
    assert found.usage is not None
    assert found.usage.input == 3


@pytest.mark.parametrize(("code", "status", "expected"), ERRORS)
def test_an_error_inside_means_what_it_means_before(code: int, status: str, expected: str) -> None:
    found = fault(streamed(sse(chunk("a"), error(code, status), chunk("b", finish="STOP")))[1])
    assert (found.code, found.fields["status"]) == (expected, code)


def test_an_error_without_a_code_may_be_tried_again() -> None:
    assert fault(streamed(sse({"error": {}}))[1]).code == "provider.transient"


def test_a_delay_inside() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "9s"}]
    assert fault(streamed(sse(error(429, details=details)))[1]).fields == {"status": 429, "retry_after": 9}


@pytest.mark.parametrize(
    "chunks",
    [
        ([],),
        ({"candidates": [{"content": {"parts": [{"text": 1}]}}]},),
        ({"candidates": [{"index": 1}]},),
        (chunk("a"), "x", chunk("b", finish="STOP")),
    ],
)
def test_not_the_protocol(chunks: tuple[Any, ...]) -> None:
    assert fault(streamed(sse(*chunks))[1]).code == "provider.decode"


def test_nothing_at_all() -> None:
    assert fault(streamed(b"")[1]).code == "provider.empty"
    assert fault(streamed(sse({"candidates": [{"finishReason": "STOP"}]}))[1]).fields == {"finish": "STOP"}


@pytest.mark.parametrize("story", stories("gemini"))
@given(st.data())
def test_damaged(story: str, data: st.DataObject) -> None:
    broken = data.draw(damaged(stream_of("gemini", story)))
    found = streamed(broken, data.draw(cuts(broken)))
    assert is_sound(found[1])
    assert found == streamed(broken)


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_any_bytes(data: bytes, places: list[int]) -> None:
    assert is_sound(streamed(data, [place for place in places if place <= len(data)])[1])
