"""Anthropic Messages: decoding of streams."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.messages import Reasoning, Text, Usage
from agentrun.providers.anthropic import Anthropic, AnthropicStream
from agentrun.providers.codec import ReplyOrFault

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
from .test_anthropic_reply import ERRORS

CODEC = Anthropic()
REQUEST = exchange.request("anthropic", "claude-haiku-4-5", tools=(SEARCH, NOW), stream=True)
HEAD = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}}
BEGIN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
HI = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
CLOSE = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
STOP = {"type": "message_stop"}


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def streamed(data: bytes, places: list[int] | None = None) -> tuple[str, ReplyOrFault]:
    return exchange.streamed(CODEC, REQUEST, data, places)


@pytest.mark.parametrize("story", golden_names("anthropic"))
def test_stream_decodes_to_the_golden_file(story: str) -> None:
    """A streamed reply comes to what the same reply in one piece comes to."""
    found = streamed(stream_of("anthropic", story))[1]
    assert decoded_json(found) == (GOLDEN / "anthropic" / f"{story}.decoded.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("story", "texts"),
    [("text", "Hello ☃ world"), ("tools", "Let me see."), ("length", "Once upon a"), ("refusal", "To break in, fir")],
)
def test_texts_are_passed_on(story: str, texts: str) -> None:
    assert streamed(stream_of("anthropic", story))[0] == texts


@pytest.mark.parametrize("story", golden_names("anthropic"))
@given(st.data())
def test_chunk_boundaries_do_not_matter(story: str, data: st.DataObject) -> None:
    whole = stream_of("anthropic", story)
    assert streamed(whole, data.draw(cuts(whole))) == streamed(whole)


@pytest.mark.parametrize("story", golden_names("anthropic"))
def test_stream_fed_byte_by_byte_is_the_same(story: str) -> None:
    whole = stream_of("anthropic", story)
    assert streamed(whole, list(range(len(whole)))) == streamed(whole)


@pytest.mark.parametrize("story", golden_names("anthropic"))
def test_truncated_stream_is_no_reply(story: str) -> None:
    last = b'{"type":"message_stop"}'
    check_that_cut_streams_fail(
        REQUEST, CODEC, stream_of("anthropic", story), lambda whole: whole.index(last) + len(last)
    )


class _EarlyEndStream(AnthropicStream):
    """A planted bug: a stream that is over is taken for whole."""

    def end(self) -> ReplyOrFault:
        self.feed(b"\n\n" + sse(STOP))
        return super().end()


class _HastyCodec(Anthropic):
    stream = staticmethod(_EarlyEndStream)


def test_planted_decoder_that_accepts_partial_streams_is_detected() -> None:
    with pytest.raises(AssertionError):
        check_that_cut_streams_fail(REQUEST, _HastyCodec(), stream_of("anthropic", "text"), len)


def test_last_event_needs_no_blank_line() -> None:
    whole = sse(HEAD, BEGIN, HI, CLOSE, STOP)
    assert streamed(whole.rstrip()) == streamed(whole)
    assert reply(streamed(whole)[1]).usage == Usage(input=5, output=9)


def test_last_reported_usage_is_used() -> None:
    quiet = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    assert reply(streamed(sse(HEAD, BEGIN, HI, quiet, STOP))[1]).usage == Usage(input=5, output=1)
    assert reply(streamed(sse(BEGIN, HI, quiet, STOP))[1]).usage is None
    more = CLOSE | {"usage": {"input_tokens": 6, "cache_read_input_tokens": 2, "output_tokens": 9}}
    assert reply(streamed(sse(HEAD, BEGIN, HI, more, STOP))[1]).usage == Usage(input=8, cached=2, output=9)


def test_interleaved_blocks_are_separated_by_index() -> None:
    other = {"type": "content_block_start", "index": 7, "content_block": {"type": "text", "text": ""}}
    ho = {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "Ho"}}
    found = reply(streamed(sse(HEAD, other, BEGIN, ho, HI, ho, CLOSE, STOP))[1])
    assert found.message.parts == (Text("Hi"), Text("HoHo"))


def test_unknown_events_are_ignored() -> None:
    news = [
        {"type": "brand_new", "delta": {"type": "x"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}},
        {"type": "content_block_stop", "index": 99},
    ]
    assert streamed(sse(HEAD, BEGIN, *news, HI, CLOSE, STOP)) == streamed(sse(HEAD, BEGIN, HI, CLOSE, STOP))


def test_data_after_the_end_is_ignored() -> None:
    whole = sse(HEAD, BEGIN, HI, CLOSE, STOP)
    error = {"type": "error", "error": {"type": "api_error", "message": "late"}}
    for late in (sse(HI), sse(STOP), sse(error), b"data: {\n\n", b"data: {"):
        assert streamed(whole + late) == streamed(whole)


def test_unknown_block_is_kept_as_reasoning() -> None:
    block = {"type": "brand_new", "x": [1]}
    begin = {"type": "content_block_start", "index": 1, "content_block": block}
    found = reply(streamed(sse(HEAD, BEGIN, HI, begin, CLOSE, STOP))[1])
    assert isinstance(part := found.message.parts[1], Reasoning)
    assert json.loads(part.opaque) == block


@pytest.mark.parametrize(("status", "kind", "code"), ERRORS)
def test_error_event_has_the_code_of_its_status(status: int, kind: str, code: str) -> None:
    event = {"type": "error", "error": {"type": kind, "message": "Sorry"}}
    found = fault(streamed(sse(HEAD, BEGIN, HI, event, CLOSE, STOP))[1])
    assert (found.code, found.fields["status"]) == (code, status)


def test_unknown_error_event_is_transient() -> None:
    for event in ({"type": "error"}, {"type": "error", "error": {"type": "brand_new"}}):
        assert fault(streamed(sse(HEAD, event))[1]).code == "provider.transient"


@pytest.mark.parametrize(
    "events",
    [
        (HEAD, HI, CLOSE, STOP),
        (HEAD, BEGIN, BEGIN, HI, CLOSE, STOP),
        (HEAD, {"type": "content_block_start", "index": 0}, CLOSE, STOP),
        (HEAD, {"type": "content_block_start", "index": 0, "content_block": []}, CLOSE, STOP),
        (HEAD, BEGIN, {"type": "content_block_delta", "index": "0", "delta": {}}, CLOSE, STOP),
        (HEAD, BEGIN, {"type": "content_block_delta", "index": 0, "delta": {"text": 1}}, CLOSE, STOP),
        ({"no": "type"}, STOP),
        ([], STOP),
    ],
)
def test_malformed_event_is_a_decode_fault(events: tuple[Any, ...]) -> None:
    assert fault(streamed(sse(*events))[1]).code == "provider.decode"


def test_stream_without_content_is_empty() -> None:
    assert fault(streamed(b"")[1]).code == "provider.empty"
    assert fault(streamed(sse(HEAD, CLOSE, STOP))[1]).fields == {"finish": "end_turn"}
    assert fault(streamed(sse(STOP))[1]).code == "provider.empty"


@pytest.mark.parametrize("story", golden_names("anthropic"))
@given(st.data())
def test_damaged_stream_is_a_reply_or_a_known_fault(story: str, data: st.DataObject) -> None:
    broken = data.draw(damaged(stream_of("anthropic", story)))
    found = streamed(broken, data.draw(cuts(broken)))
    assert is_reply_or_known_fault(found[1])
    assert found == streamed(broken)


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_any_bytes_are_a_reply_or_a_known_fault(data: bytes, places: list[int]) -> None:
    assert is_reply_or_known_fault(streamed(data, [place for place in places if place <= len(data)])[1])
