"""Redaction of long runs: the same as with whole requests, although each message is searched once."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.cassette import redaction
from agentrun.cassette.interactions import Interaction, PackedCall
from agentrun.cassette.leaks import CONTEXT
from agentrun.cassette.recorder import MIN_SHARED_BODY, Recorder
from agentrun.cassette.redact_recording import RecordingRedaction, redact_recording
from agentrun.cassette.redaction import RunRedaction, redact_cassette
from agentrun.cassette.writer import dump_cassette
from agentrun.core.package import RedactionRule
from agentrun.redactor import Redactor
from agentrun.secret import Secret
from agentrun.wire import HttpCall, HttpReply

MODULE: Any = redaction
URL = "https://api.openai.com/v1/chat/completions"
KEY = "correct-horse-battery-staple"
MAIL = RedactionRule(name="mail", path=None, pattern="[a-z]+@[a-z]+[.]org")
NAME = RedactionRule(name="name", path="customer.name", pattern=None)
THIRD = RedactionRule(name="third", path="messages.3.content", pattern=None)
PADDING = "x" * MIN_SHARED_BODY
TEXTS = [
    *("Yes.", "", f"The key is {KEY}.", KEY[:9], KEY[9:], "ada@example.org", "Grace", "ä\n\"", json.dumps({"k": KEY})),
    *(json.dumps({"customer": {"name": "Grace Hopper"}}), "Grace Hopper said so", "sk-proj-abcdefghij12345678ABCDEFGH"),
]  # fmt: skip


def record(conversations: list[list[list[str]]], redact: RecordingRedaction | None = None) -> tuple[Interaction, ...]:
    """Requests of sub-agents at the same time. Each continues the one before it, or begins anew."""
    recorder = Recorder(lambda: 0, redact=redact)
    for path, conversation in enumerate(conversations):
        for texts in conversation:
            messages = [{"content": text, "role": "user"} for text in texts]
            body = sorted_json({"messages": messages, "model": "m", "padding": PADDING, "tools": [{"name": KEY}]})
            reply = HttpReply(200, (("content-type", "text/plain"),), texts[-1].encode())
            recorder.begin(HttpCall("POST", URL, (("content-type", "application/json"),), body), f"c{path}").end(reply)
    return recorder.interactions()


def whole(interactions: Any) -> list[Any]:
    return [(sorted_json(json.loads(each.call.body)), replace(each, request=None)) for each in interactions]


@st.composite
def conversations(draw: st.DrawFn) -> list[list[list[str]]]:
    made = []
    for _ in range(draw(st.integers(1, 2))):
        texts, requests = ["Begin."] * draw(st.integers(1, 2 * CONTEXT)), []
        for _ in range(draw(st.integers(1, 8))):
            if draw(st.integers(0, 5)) == 0 and len(texts) > 2:
                texts = [*texts[:1], "masked", *texts[2:]]
            texts = [*texts, *draw(st.lists(st.sampled_from(TEXTS), max_size=3))]
            requests.append(texts)
        made.append(requests)
    return made


SPLIT = ["Begin.", "masked", KEY[:9], KEY[9:]]
"""A secret that slides out of the context."""


@example([[[*SPLIT, *["Yes."] * n] for n in (0, 4, 7, 7, 9)]], [])
@given(conversations(), st.lists(st.sampled_from([MAIL, NAME, THIRD]), max_size=3, unique_by=lambda rule: rule.name))
def test_result_is_the_same_as_with_whole_requests(made: list[list[list[str]]], rules: list[RedactionRule]) -> None:
    interactions = record(made)
    redactor = Redactor([("KEY", Secret(KEY))])
    plain = [replace(each, request=each.call) for each in interactions]
    expected = redact_cassette(RunRedaction(rules, redactor), plain, {"a": KEY})
    clean = redact_recording(RunRedaction(rules, redactor), rules, interactions, {"a": KEY})
    assert whole(clean.interactions) == whole(expected.interactions)
    assert clean.metadata == expected.metadata
    text = dump_cassette(clean.interactions, {})
    assert text == dump_cassette(expected.interactions, {})
    assert KEY not in text


def test_each_message_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    original = MODULE.redact_body

    def counting(body: Any, redactor: Any) -> Any:
        searched.append(len(body.data))
        return original(body, redactor)

    monkeypatch.setattr(MODULE, "redact_body", counting)
    sizes = []
    for turns in (40, 80, 160):
        texts = [f"Message {n} of a long conversation, with {KEY}." for n in range(2 * turns)]
        interactions = record([[texts[: 2 * turn + 2] for turn in range(turns)]])
        searched.clear()
        redact_recording(RunRedaction([], Redactor([("KEY", Secret(KEY))])), [], interactions, {})
        sizes.append(sum(searched))
    assert (sizes[2] - sizes[1]) / (sizes[1] - sizes[0]) < 2.2


def test_recorded_requests_share_their_messages() -> None:
    texts = [f"Message {n}." for n in range(100)]
    interactions = record([[texts[: n + 1] for n in range(100)]])
    bodies = [each.request.json for each in interactions if isinstance(each.request, PackedCall)]
    assert len(bodies) == 100
    assert [each.base for each in bodies] == [None, *bodies[:-1]]
    items = [each.list_of("messages")[:] for each in bodies]
    assert all(one is two for short, long in pairwise(items) for one, two in zip(short, long, strict=False))


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [1, 2], "padding": "%s"}' % PADDING.encode(),
        b'{"padding":"%s","messages":[1,2]}' % PADDING.encode(),
        b"[%s]" % b",".join([b"1"] * MIN_SHARED_BODY),
        b"not JSON " * MIN_SHARED_BODY,
        b'{"messages":[1,2],"padding":"%s"}' % PADDING.encode()[:5],
    ],
    ids=["spaces", "order", "list", "text", "small"],
)
def test_other_requests_are_recorded_as_they_are(body: bytes) -> None:
    recorder = Recorder(lambda: 0)
    call = HttpCall("POST", URL, (), body)
    for _ in range(2):
        recorder.begin(call, "").end(HttpReply(200, (), b"ok"))
    assert [each.request for each in recorder.interactions()] == [call, call]


def test_request_that_continues_with_other_notation_is_recorded_as_it_is() -> None:
    recorder = Recorder(lambda: 0)
    before, after = (b'{"messages":[1%s],"padding":"%s"}' % (new, PADDING.encode()) for new in (b"", b", 2"))
    calls = [HttpCall("POST", URL, (), body) for body in (before, after)]
    for call in calls:
        recorder.begin(call, "").end(HttpReply(200, (), b"ok"))
    first, second = recorder.interactions()
    assert isinstance(first.request, PackedCall)
    assert second.request == calls[1]


@example([[[*SPLIT, *["Yes."] * n] for n in (0, 4, 7, 7, 9)]], [])
@example([[["Begin."] * 9, [*["Begin."] * 9, KEY[:9]], [*["Begin."] * 9, KEY[:9], KEY[9:]]]], [])
@given(conversations(), st.lists(st.sampled_from([MAIL, NAME, THIRD]), max_size=3, unique_by=lambda rule: rule.name))
def test_result_is_the_same_if_each_interaction_is_redacted_when_it_ends(
    made: list[list[list[str]]], rules: list[RedactionRule]
) -> None:
    redactor = Redactor([("KEY", Secret(KEY))])
    plain = [replace(each, request=each.call) for each in record(made)]
    expected = redact_cassette(RunRedaction(rules, redactor), plain, {})
    clean = record(made, RecordingRedaction(RunRedaction(rules, redactor), rules))
    assert whole(clean) == whole(expected.interactions)
    assert KEY not in dump_cassette(clean, {})
