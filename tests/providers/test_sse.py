"""The decoder of server-sent events gives the same events however the bytes are split."""

import re
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.providers.sse import SseDecoder, SseEvent

LINES = [
    *(b"data: 1", b"data:  2", b"data:", b"data", b"data: [DONE]", b"event: a", b"event:b", b"event", b"id: 7"),
    *(b"", b":", b": comment", b"datax: y", b" data: z", "data: é\u2028😀\u0085".encode(), b"data: \xff\xc3"),
]
ENDS = [b"\r", b"\n", b"\r\n", b"\r\n", b"\r\r", b"\n\n", b"\r\n\r\n", b"\n\r"]
NOISE = [
    *(b"", b" ", b"x", b"\x00", b"\t", b"\x0b", b"\x0c", b"\x1c", b"\r", b"\n", b"data"),
    *(b"\xef\xbb\xbf", b"\xef", b"\xbb", b"\xbf", b"\xff", b"\xc3", b"\xf0\x9f", b"\xed\xa0\x80", "\u2029".encode()),
]


def cut_up(data: bytes, cuts: list[int]) -> list[bytes]:
    return [data[start:end] for start, end in pairwise([0, *sorted(cuts), len(data)])]


def expected_events(data: bytes) -> list[SseEvent]:
    """The standard, read off a whole text."""
    lines = re.split("\r\n|\r|\n", data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"))
    events, name, held = [], "", []
    for line in [*lines, ""]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            held.append(value)
        elif field == "event":
            name = value
        elif not line:
            if held:
                events.append(SseEvent(name or "message", "\n".join(held)))
            name, held = "", []
    return events


def decode_pieces(pieces: list[bytes]) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()


def differs(decode: Callable[[list[bytes]], list[SseEvent]], count: int, seed: int) -> list[bytes] | None:
    """The first of so many random streams, cut at random, that is not read as the standard says."""
    chance = Random(seed)  # noqa: S311  # the same examples every time
    for _ in range(count):
        data = chance.choice(NOISE) + b"".join(
            chance.choice(LINES) + (chance.choice(NOISE) if chance.random() < 0.2 else b"") + chance.choice(ENDS)
            for _ in range(chance.randrange(7))
        )
        data = data[: chance.choice([len(data), chance.randrange(len(data) + 1)])]
        pieces = cut_up(data, [chance.randrange(len(data) + 1) for _ in range(chance.randrange(9))])
        if decode(pieces) != expected_events(data):
            return pieces
    return None


def test_random_splits_agree_with_the_standard() -> None:
    assert differs(decode_pieces, 2_000, seed=1) is None


@pytest.mark.long
def test_many_random_splits_agree_with_the_standard() -> None:
    assert differs(decode_pieces, 100_000, seed=2) is None


@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_any_bytes_agree_with_the_standard(data: bytes, cuts: list[int]) -> None:
    assert decode_pieces(cut_up(data, [min(cut, len(data)) for cut in cuts])) == expected_events(data)


def test_stream_fed_byte_by_byte_is_the_same() -> None:
    data = b"\xef\xbb\xbfevent: a\r\ndata: 1\r\ndata: 2\r\n\r\n: ping\r\rdata: \xe2\x80\xa8 3\n\ndata: last"
    found = [SseEvent("a", "1\n2"), SseEvent("message", "\u2028 3"), SseEvent("message", "last")]
    assert decode_pieces([data]) == found
    assert decode_pieces([data[index : index + 1] for index in range(len(data))]) == found


def test_event_is_emitted_at_its_blank_line() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: 1\r") == []
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\r") == [SseEvent("message", "1")]
    assert decoder.feed(b"\n") == []
    assert decoder.end() == []


@pytest.mark.parametrize("head", [b"", b"\xef", b"\xef\xbb", b"\xef\xbb\xbf"])
def test_incomplete_byte_order_mark_is_text(head: bytes) -> None:
    assert decode_pieces([head]) == []
    assert decode_pieces([head, b"data: 1\n\n"]) == expected_events(head + b"data: 1\n\n")


def test_byte_order_mark_is_ignored_only_at_the_start() -> None:
    assert decode_pieces([b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n"]) == [SseEvent("message", "1")]


def test_a_long_line_in_many_pieces_takes_linear_time() -> None:
    decoder = SseDecoder()
    decoder.feed(b"data: ")
    for _ in range(200_000):
        decoder.feed(b"x")
    assert decoder.feed(b"\n\n") == [SseEvent("message", "x" * 200_000)]


# --- decoders that must not pass ---------------------------------------------------------------------------


def _by_text(pieces: list[bytes]) -> list[SseEvent]:
    """Splits text at every line end of Unicode."""
    text = b"".join(pieces).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return expected_events("\n".join(text.splitlines()).encode())


def _by_piece(pieces: list[bytes]) -> list[SseEvent]:
    """Decodes each piece for itself."""
    return expected_events("".join(piece.decode("utf-8", "replace") for piece in pieces).encode())


def _with_mark(pieces: list[bytes]) -> list[SseEvent]:
    return expected_events(b"\n" + b"".join(pieces))


def _forgets_cr(pieces: list[bytes]) -> list[SseEvent]:
    """Takes the LF of a CRLF that was cut for another line end."""
    return expected_events(b"".join(piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n") for piece in pieces))


@pytest.mark.parametrize("wrong", [_by_text, _by_piece, _with_mark, _forgets_cr])
def test_planted_wrong_decoder_is_detected(wrong: Callable[[list[bytes]], list[SseEvent]]) -> None:
    assert differs(wrong, 2_000, seed=1) is not None
