"""Gemini: decoding of streams."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.messages import Text
from agentrun.providers.codec import ReplyOrFault
from agentrun.providers.gemini import GeminiGenerate, GeminiStream

from . import exchange
from .exchange import (
    GOLDEN,
    NOW,
    SEARCH,
    check_that_cut_streams_fail,
    cuts,
    damaged,
    decoded_json,
    fault,
    golden_names,
    is_reply_or_known_fault,
    reply,
    stream_of,
)
from .test_gemini_reply import ERRORS, error

CODEC = GeminiGenerate()
REQUEST = exchange.request("gemini", "gemini-2.5-flash", tools=(SEARCH, NOW), stream=True)


def chunk(*texts: str, finish: str | None = None) -> dict[str, Any]:
    parts = [{"text": text} for text in texts]
    return {"candidates": [{"content": {"parts": parts}, **({"finishReason": finish} if finish else {})}]}


def sse(*chunks: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in chunks)


def streamed(data: bytes, places: list[int] | None = None) -> tuple[str, ReplyOrFault]:
    return exchange.streamed(CODEC, REQUEST, data, places)


@pytest.mark.parametrize("story", golden_names("gemini"))
def test_stream_decodes_to_the_golden_file(story: str) -> None:
    """A streamed reply comes to what the same reply in one piece comes to."""
    found = streamed(stream_of("gemini", story))[1]
    assert decoded_json(found) == (GOLDEN / "gemini" / f"{story}.decoded.json").read_text(encoding="utf-8")


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
def test_texts_are_passed_on(story: str, texts: str) -> None:
    assert streamed(stream_of("gemini", story))[0] == texts


@pytest.mark.parametrize("story", golden_names("gemini"))
@given(st.data())
def test_chunk_boundaries_do_not_matter(story: str, data: st.DataObject) -> None:
    whole = stream_of("gemini", story)
    assert streamed(whole, data.draw(cuts(whole))) == streamed(whole)


@pytest.mark.parametrize("story", golden_names("gemini"))
def test_stream_fed_byte_by_byte_is_the_same(story: str) -> None:
    whole = stream_of("gemini", story)
    assert streamed(whole, list(range(len(whole)))) == streamed(whole)


@pytest.mark.parametrize("story", golden_names("gemini"))
def test_truncated_stream_is_no_reply(story: str) -> None:
    check_that_cut_streams_fail(REQUEST, CODEC, stream_of("gemini", story), lambda whole: len(whole.rstrip()))


class _EarlyEndStream(GeminiStream):
    """A planted bug: a stream that is over is taken for whole."""

    def end(self) -> ReplyOrFault:
        self.feed(b"\n\n" + sse({"candidates": [{"finishReason": "STOP"}]}))
        return super().end()


class _HastyCodec(GeminiGenerate):
    stream = staticmethod(_EarlyEndStream)


def test_planted_decoder_that_accepts_partial_streams_is_detected() -> None:
    with pytest.raises(AssertionError):
        check_that_cut_streams_fail(REQUEST, _HastyCodec(), stream_of("gemini", "text"), len)


def test_finish_reason_before_the_last_chunk_is_not_the_end() -> None:
    """Old models said STOP with every piece."""
    early = sse(chunk("a", finish="STOP"), chunk("b"))
    assert fault(streamed(early)[1]).code == "provider.empty"
    assert reply(streamed(early + sse(chunk("c", finish="STOP")))[1]).message.parts == (Text("abc"),)


def test_usage_after_the_finish_reason_is_read() -> None:
    tail = {"usageMetadata": {"promptTokenCount": 3}, "candidates": [{"content": {"parts": []}}]}
    found = reply(streamed(sse(chunk("a", finish="STOP"), tail))[1])
    assert found.finish == "stop"
    assert found.usage is not None
    assert found.usage.input == 3


@pytest.mark.parametrize(("code", "status", "expected"), ERRORS)
def test_error_chunk_has_the_code_of_its_status(code: int, status: str, expected: str) -> None:
    found = fault(streamed(sse(chunk("a"), error(code, status), chunk("b", finish="STOP")))[1])
    assert (found.code, found.fields["status"]) == (expected, code)


def test_error_chunk_without_a_code_is_transient() -> None:
    assert fault(streamed(sse({"error": {}}))[1]).code == "provider.transient"


def test_retry_info_of_an_error_chunk_is_read() -> None:
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
def test_malformed_chunk_is_a_decode_fault(chunks: tuple[Any, ...]) -> None:
    assert fault(streamed(sse(*chunks))[1]).code == "provider.decode"


def test_stream_without_content_is_empty() -> None:
    assert fault(streamed(b"")[1]).code == "provider.empty"
    assert fault(streamed(sse({"candidates": [{"finishReason": "STOP"}]}))[1]).fields == {"finish": "STOP"}


@pytest.mark.parametrize("story", golden_names("gemini"))
@given(st.data())
def test_damaged_stream_is_a_reply_or_a_known_fault(story: str, data: st.DataObject) -> None:
    broken = data.draw(damaged(stream_of("gemini", story)))
    found = streamed(broken, data.draw(cuts(broken)))
    assert is_reply_or_known_fault(found[1])
    assert found == streamed(broken)


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_any_bytes_are_a_reply_or_a_known_fault(data: bytes, places: list[int]) -> None:
    assert is_reply_or_known_fault(streamed(data, [place for place in places if place <= len(data)])[1])
