"""Redaction of random interactions: no value is left, or the interaction is refused, and JSON stays JSON."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentrun.cassette.interactions import Failure, Interaction
from agentrun.cassette.redact_body import ByteEdit, ChunkedBody, apply_edits, parse_body
from agentrun.cassette.redaction import redact_interaction
from agentrun.redactor import Redactor
from agentrun.secret import Secret
from agentrun.wire import HttpCall, HttpReply

from .unredacted import find_unredacted

LETTERS = 'ab"\\n1 +%'
TEXTS = st.text(LETTERS, max_size=9)
KEYS = st.sampled_from(["text", "type", "index", "a", "ab", "thought"])
DATA: st.SearchStrategy[Any] = st.recursive(
    st.one_of(TEXTS, st.integers(0, 200), st.sampled_from([True, None, 1.1, 11111])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
SECRETS = st.lists(
    st.tuples(st.sampled_from(["A", "B"]), st.text(LETTERS, min_size=3, max_size=5).map(Secret)), min_size=1, max_size=3
)


ADDRESSES = st.lists(st.sampled_from(["a", "b", "1", "%61", "%62", "%31", "%22", "%5c", "+", "%", "%2561"])).map(
    "".join
)


def _json(data: Any, *, ascii_only: bool, spaced: bool) -> bytes:
    return json.dumps(data, ensure_ascii=ascii_only, indent=2 if spaced else None).encode()


DOCUMENTS = st.builds(_json, DATA, ascii_only=st.booleans(), spaced=st.just(value=False))
BODIES = st.one_of(
    st.builds(_json, DATA, ascii_only=st.booleans(), spaced=st.booleans()),
    st.lists(DOCUMENTS, max_size=5).map(lambda all_: b"".join(b"data: " + one + b"\n\n" for one in all_)),
    st.lists(DOCUMENTS, max_size=5).map(b"\n".join),
    TEXTS.map(str.encode),
    st.binary(max_size=20),
)


KINDS = (("delta", "aa"), ("start", "x1"), ("delta", "1"), ("delta", "c"))
SPLIT_EVENTS = b"".join(
    b'data: {"type":"t_%s","text":"%s"}\n\n' % (kind.encode(), text.encode()) for kind, text in KINDS
)
"""What is taken out, x11, brings together what was apart."""


def interaction(url: str, body: bytes, reply: bytes) -> Interaction:
    return Interaction(
        HttpCall("POST", url, (("x", url),), body),
        HttpReply(200, (), reply),
        chunks=(1,) * len(reply),
        failure=Failure("x", url, {"y": [url]}),
    )


@given(SECRETS, ADDRESSES, BODIES, BODIES)
@example([("A", Secret("aac")), ("B", Secret("x11"))], "", b"", SPLIT_EVENTS)
def test_value_is_replaced_everywhere_or_the_interaction_is_refused(
    values: list[tuple[str, Secret]], url: str, body: bytes, reply: bytes
) -> None:
    redactor = Redactor(values, shortest=3)
    planted = interaction(url, body, reply)
    clean = redact_interaction(planted, redactor)
    if find_unredacted([clean], redactor) is not None:  # then nothing is written
        for sent in (clean.call.body, clean.reply.body):
            assert _is_json(sent) or b"data: " in sent or b"\n" in sent, "only the signs of JSON may keep a value"
            assert not any(redactor.find_first(text) for text in _strings(sent))
        return
    assert redact_interaction(clean, redactor) == clean
    assert sum(clean.chunks) == len(clean.reply.body)
    for was, now in ((body, clean.call.body), (reply, clean.reply.body)):
        if _is_json(was):
            assert _is_json(now)


def _strings(body: bytes) -> list[str]:
    contents = parse_body(body)
    return [] if contents is None else [leaf.text for leaf in contents.leaves if leaf.document.is_json]


def _is_json(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict | list | str)
    except ValueError:
        return False


@given(st.binary(max_size=30), st.data())
def test_edits_keep_chunk_sizes_consistent(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    places = [0, *cuts, len(data)]
    chunks = tuple(end - start for start, end in pairwise(places) if end > start)
    spots = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6, unique=True)))
    edits = [ByteEdit(start, end, b"N" * (end % 4)) for start, end in zip(spots[::2], spots[1::2], strict=False)]
    found = apply_edits(ChunkedBody(data, chunks), edits)
    assert sum(found.chunks) == len(found.data)
    assert 0 not in found.chunks
    assert found.data == apply_edits(ChunkedBody(data), edits).data
    if not edits:
        assert found == ChunkedBody(data, chunks)


def test_planted_single_round_leaves_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: without a second look something is left."""
    monkeypatch.setattr("agentrun.cassette.redact_body._ROUNDS", 1)
    with pytest.raises(AssertionError):
        test_value_is_replaced_everywhere_or_the_interaction_is_refused()
