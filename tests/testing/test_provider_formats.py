"""Replies of the scripted provider are decoded by our codecs in every format, streamed and not.

The official clients read it too (`tests/sdks`); these tests need nothing but ourselves and try many more turns.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, to_builtins

from agentrun.canonical_json import sorted_json
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, FinishReason, Reasoning, Refusal, Reply, Text, ToolCall, Usage
from agentrun.providers.codec import ReplyOrFault, codec_for
from agentrun.spec.v1.provider import ScriptedCall, ScriptedTurn, ScriptedUsage
from agentrun.testing.provider.server import format_of
from agentrun.testing.provider.wire_format import UnsupportedByFormat, make_wire_reply
from agentrun.wire import HttpReply

from .provider_requests import PROVIDERS, call_of, model_request

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
plain_words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
calls = st.builds(
    ScriptedCall,
    tool=st.sampled_from(["search", "docs.read", "unheard-of"]),
    args=st.dictionaries(
        plain_words, st.one_of(texts, st.integers(-9, 9), st.lists(st.booleans(), max_size=2)), max_size=3
    ),
)
counts = st.integers(1, 1000)
usages = st.builds(
    lambda cached, fresh, reasoning, spoken: ScriptedUsage(cached + fresh, reasoning + spoken, cached, reasoning),
    *[counts] * 4,
)
turns = st.builds(
    ScriptedTurn,
    reasoning=st.one_of(st.just(UNSET), plain_words),
    text=plain_words,
    calls=st.lists(calls, max_size=3),
    usage=usages,
    chunk=st.integers(1, 8),
)


def decode_turn(provider: str, turn: ScriptedTurn, *, stream: bool, piece: int = 7) -> ReplyOrFault:
    """What our codec makes of a turn."""
    request = model_request(provider, stream=stream)
    call = call_of(request)
    format = format_of(call.url)
    assert format is not None
    assert format.name == provider
    question = format.parse_request(call.url, call.body)
    answer = make_wire_reply(turn, 0, question.model)
    if not stream:
        headers = (("content-type", "application/json"),)
        return codec_for(provider).decode(
            HttpReply(200, headers, sorted_json(format.reply_body(answer, question))), request
        )
    decoder = codec_for(provider).stream(request)
    data = b"".join(format.reply_events(answer, question))
    for start in range(0, len(data), piece):
        decoder.feed(data[start : start + piece])
    return decoder.end()


def without_provider_details(reply: ReplyOrFault) -> Reply:
    """A reply without what differs between providers."""
    assert isinstance(reply, Reply), reply
    parts = [part for part in reply.message.parts if not isinstance(part, Reasoning)]
    plain = [ToolCall(part.id, part.tool, part.arguments) if isinstance(part, ToolCall) else part for part in parts]
    return Reply(Assistant(tuple(plain)), reply.finish, reply.usage, reply.model, None)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
@given(turn=turns)
def test_scripted_turn_is_decoded_as_written(provider: str, stream: bool, turn: ScriptedTurn) -> None:
    assert isinstance(turn.usage, ScriptedUsage)
    parts: list[Text | ToolCall] = [
        Text(turn.text or ""),
        *(ToolCall(str(n), call.tool, sorted_json(call.args).decode()) for n, call in enumerate(turn.calls)),
    ]
    finish: FinishReason = "tool_calls" if turn.calls else "stop"
    usage = Usage(**to_builtins(turn.usage))
    reply = decode_turn(provider, turn, stream=stream)
    assert without_provider_details(reply) == Reply(Assistant(tuple(parts)), finish, usage, "m-1", None)
    thought = [part for part in reply.message.parts if isinstance(part, Reasoning)] if isinstance(reply, Reply) else []
    assert bool(thought) == (turn.reasoning is not UNSET and provider != "openai")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("finish", ["stop", "length", "content_filter", "unknown"])
def test_scripted_finish_is_decoded(provider: str, stream: bool, finish: Any) -> None:
    reply = decode_turn(provider, ScriptedTurn(text="Hello.", finish=finish), stream=stream)
    assert isinstance(reply, Reply)
    assert reply.finish == finish


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_usage_off_is_decoded_as_none(provider: str, stream: bool) -> None:
    assert (
        without_provider_details(decode_turn(provider, ScriptedTurn(text="Hello.", usage="off"), stream=stream)).usage
        is None
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
def test_scripted_refusal_is_decoded(provider: str, stream: bool) -> None:
    (part,) = without_provider_details(
        decode_turn(provider, ScriptedTurn(refusal="I would rather not."), stream=stream)
    ).message.parts
    assert isinstance(part, Refusal)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_empty_turn_is_an_empty_reply(provider: str, stream: bool) -> None:
    fault = decode_turn(provider, ScriptedTurn(text=""), stream=stream)
    assert isinstance(fault, Fault)
    assert fault.code == "provider.empty"


RAW = ScriptedTurn(calls=[ScriptedCall(tool="search", raw='{"q": ')])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_invalid_arguments_are_sent_only_where_the_format_allows(provider: str, stream: bool) -> None:
    """Some formats have no words for them: those say so."""
    if provider.startswith("openai"):
        assert (
            without_provider_details(decode_turn(provider, RAW, stream=stream)).message.calls[0].arguments == '{"q": '
        )
    else:
        with pytest.raises(UnsupportedByFormat):
            decode_turn(provider, RAW, stream=stream)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_same_turn_gives_the_same_bytes(provider: str) -> None:
    turn = ScriptedTurn(text="Hello.", reasoning="Hm.", calls=[ScriptedCall(tool="search", args={"b": 1, "a": 2})])
    call = call_of(model_request(provider))
    format = format_of(call.url)
    assert format is not None
    question = format.parse_request(call.url, call.body)
    assert json.dumps(format.reply_body(make_wire_reply(turn, 3, "m"), question)) == json.dumps(
        format.reply_body(make_wire_reply(turn, 3, "m"), question)
    )
