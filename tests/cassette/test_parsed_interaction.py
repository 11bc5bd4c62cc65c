"""Parsed replies of every wire format, and the comparison of requested and answering model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.parsed_interaction import PROVIDER_BY_FORMAT, compare_models, is_same_model, parse_reply
from agentrun.cassette.parsed_request import ParsedRequest, parse_request
from agentrun.core.messages import Reply
from agentrun.providers.codec import CODECS
from agentrun.testing.provider import ScriptedProvider
from agentrun.wire import HttpCall, HttpReply

from ..testing.provider_requests import call_of, script, send
from ..testing.provider_requests import model_request as request

TURN = {"text": "I look.", "calls": [{"tool": "search", "args": {"q": "vcr"}}]}
OPENAI = "https://api.openai.com/v1/chat/completions"
BODY = b'{"model": "m", "stream": true, "messages": []}'


def record_interaction(provider: str, *, stream: bool) -> Interaction:
    call = call_of(request(provider, stream=stream))
    with ScriptedProvider(script(TURN)) as server:
        got = send(server, call)
    return Interaction(call, HttpReply(got.status, tuple(got.headers.items()), got.body), line=3)


def question(interaction: Interaction) -> ParsedRequest:
    found = parse_request(interaction.call)
    assert found is not None
    return found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", CODECS)
def test_reply_of_every_format_is_parsed(provider: str, stream: bool) -> None:
    interaction = record_interaction(provider, stream=stream)
    reply = parse_reply(interaction, question(interaction))
    assert isinstance(reply, Reply)
    assert reply.message.text == "I look."
    assert [call.tool for call in reply.message.calls] == ["search"]
    assert reply.usage is not None
    (exchange,) = compare_models(Cassette((interaction,), {}, 0))
    assert (exchange.number, exchange.line, exchange.requested, exchange.answered) == (1, 3, "m-1", "m-1")
    assert not exchange.differs


def test_every_provider_has_a_format() -> None:
    assert set(PROVIDER_BY_FORMAT.values()) == set(CODECS)


@given(st.binary(max_size=200), st.integers(100, 599), st.sampled_from(["text/event-stream", "application/json", ""]))
def test_any_reply_bytes_are_parsed_without_error(body: bytes, status: int, kind: str) -> None:
    reply = HttpReply(status, (("content-type", kind),) if kind else (), body)
    interaction = Interaction(HttpCall("POST", OPENAI, (), BODY), reply)
    parse_reply(interaction, question(interaction))


@pytest.mark.parametrize(
    ("wanted", "came", "same"),
    [
        ("gpt-4.1-mini", "gpt-4.1-mini", True),
        ("gpt-4.1-mini", "gpt-4.1-mini-2025-04-14", True),
        ("claude-3-5-haiku", "claude-3-5-haiku-20241022", True),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku-20241022", True),
        ("gpt-4", "gpt-4-0613", True),
        ("gemini-2.0-flash", "models/gemini-2.0-flash-001", True),
        ("gpt-4.1", "gpt-4.1-mini", False),
        ("gpt-4.1", "gpt-4.1-mini-2025-04-14", False),
        ("gpt-4o-2024-08-06", "gpt-4o-2024-11-20", False),
        ("gpt-4o-2024-08-06", "gpt-4o", False),
        ("gpt-4", "gpt-4o", False),
        ("gpt-4", "gpt-41106", False),
    ],
)
def test_dated_version_of_the_requested_model_is_the_same_model(wanted: str, came: str, same: bool) -> None:
    assert is_same_model(wanted, came) is same
