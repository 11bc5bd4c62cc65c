"""Streams of Anthropic Messages."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.messages import Reasoning, Text, Usage
from agentrun.providers.anthropic import Anthropic
from agentrun.providers.anthropic_reply import AnthropicStream
from agentrun.providers.codec import ReplyOrFault

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
from .test_anthropic_reply import ERRORS

CODEC = Anthropic()
ASKED = exchange.request("anthropic", "claude-haiku-4-5", tools=(SEARCH, NOW), stream=True)
HEAD = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}}
BEGIN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
HI = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
CLOSE = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
STOP = {"type": "message_stop"}


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def streamed(data: bytes, places: list[int] | None = None) -> tuple[str, ReplyOrFault]:
    return exchange.streamed(CODEC, ASKED, data, places)


@pytest.mark.parametrize("story", stories("anthropic"))
def test_golden(story: str) -> None:
    """A streamed reply comes to what the same reply in one piece comes to."""
    found = streamed(stream_of("anthropic", story))[1]
    assert told(found) == (GOLDEN / "anthropic" / f"{story}.decoded.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("story", "texts"),
    [("text", "Hello ☃ world"), ("tools", "Let me see."), ("length", "Once upon a"), ("refusal", "To break in, fir")],
)
def test_texts_pass(story: str, texts: str) -> None:
    assert streamed(stream_of("anthropic", story))[0] == texts


@pytest.mark.parametrize("story", stories("anthropic"))
@given(st.data())
def test_any_cuts(story: str, data: st.DataObject) -> None:
    whole = stream_of("anthropic", story)
    assert streamed(whole, data.draw(cuts(whole))) == streamed(whole)


@pytest.mark.parametrize("story", stories("anthropic"))
def test_byte_by_byte(story: str) -> None:
    whole = stream_of("anthropic", story)
    assert streamed(whole, list(range(len(whole)))) == streamed(whole)


@pytest.mark.parametrize("story", stories("anthropic"))
def test_nothing_partial(story: str) -> None:
    last = b'{"type":"message_stop"}'
    never_partial(ASKED, CODEC, stream_of("anthropic", story), lambda whole: whole.index(last) + len(last))


class _Hasty(AnthropicStream):
    """A planted bug: a stream that is over is taken for whole."""

    def end(self) -> ReplyOrFault:
        self.feed(b"\n\n" + sse(STOP))
        return super().end()


class _HastyCodec(Anthropic):
    stream = staticmethod(_Hasty)


def test_a_hasty_decoder_is_found_out() -> None:
    with pytest.raises(AssertionError):
        never_partial(ASKED, _HastyCodec(), stream_of("anthropic", "text"), len)


def test_the_end_needs_no_blank_line() -> None:
    whole = sse(HEAD, BEGIN, HI, CLOSE, STOP)
    assert streamed(whole.rstrip()) == streamed(whole)
    assert reply(streamed(whole)[1]).usage == Usage(input=5, output=9)


def test_usage_is_what_was_told_last() -> None:
    quiet = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    assert reply(streamed(sse(HEAD, BEGIN, HI, quiet, STOP))[1]).usage == Usage(input=5, output=1)
    assert reply(streamed(sse(BEGIN, HI, quiet, STOP))[1]).usage is None
    more = CLOSE | {"usage": {"input_tokens": 6, "cache_read_input_tokens": 2, "output_tokens": 9}}
    assert reply(streamed(sse(HEAD, BEGIN, HI, more, STOP))[1]).usage == Usage(input=8, cached=2, output=9)


def test_blocks_that_are_mixed_stay_apart() -> None:
    other = {"type": "content_block_start", "index": 7, "content_block": {"type": "text", "text": ""}}
    ho = {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "Ho"}}
    found = reply(streamed(sse(HEAD, other, BEGIN, ho, HI, ho, CLOSE, STOP))[1])
    assert found.message.parts == (Text("Hi"), Text("HoHo"))


def test_what_is_not_known_is_passed_over() -> None:
    news = [
        {"type": "brand_new", "delta": {"type": "x"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}},
        {"type": "content_block_stop", "index": 99},
    ]
    assert streamed(sse(HEAD, BEGIN, *news, HI, CLOSE, STOP)) == streamed(sse(HEAD, BEGIN, HI, CLOSE, STOP))


def test_what_follows_the_end_is_not_looked_at() -> None:
    whole = sse(HEAD, BEGIN, HI, CLOSE, STOP)
    error = {"type": "error", "error": {"type": "api_error", "message": "late"}}
    for late in (sse(HI), sse(STOP), sse(error), b"data: {\n\n", b"data: {"):
        assert streamed(whole + late) == streamed(whole)


def test_a_block_of_an_unknown_kind_is_kept() -> None:
    block = {"type": "brand_new", "x": [1]}
    begin = {"type": "content_block_start", "index": 1, "content_block": block}
    found = reply(streamed(sse(HEAD, BEGIN, HI, begin, CLOSE, STOP))[1])
    assert isinstance(part := found.message.parts[1], Reasoning)
    assert json.loads(part.opaque) == block


@pytest.mark.parametrize(("status", "kind", "code"), ERRORS)
def test_an_error_inside_means_what_it_means_before(status: int, kind: str, code: str) -> None:
    event = {"type": "error", "error": {"type": kind, "message": "Sorry"}}
    found = fault(streamed(sse(HEAD, BEGIN, HI, event, CLOSE, STOP))[1])
    assert (found.code, found.fields["status"]) == (code, status)


def test_an_error_of_no_known_kind_may_be_tried_again() -> None:
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
def test_not_the_protocol(events: tuple[Any, ...]) -> None:
    assert fault(streamed(sse(*events))[1]).code == "provider.decode"


def test_nothing_at_all() -> None:
    assert fault(streamed(b"")[1]).code == "provider.empty"
    assert fault(streamed(sse(HEAD, CLOSE, STOP))[1]).fields == {"finish": "end_turn"}
    assert fault(streamed(sse(STOP))[1]).code == "provider.empty"


@pytest.mark.parametrize("story", stories("anthropic"))
@given(st.data())
def test_damaged(story: str, data: st.DataObject) -> None:
    broken = data.draw(damaged(stream_of("anthropic", story)))
    found = streamed(broken, data.draw(cuts(broken)))
    assert is_sound(found[1])
    assert found == streamed(broken)


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_any_bytes(data: bytes, places: list[int]) -> None:
    assert is_sound(streamed(data, [place for place in places if place <= len(data)])[1])
