"""Anthropic Messages: encoding of conversations."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core.effects import ModelRequest
from agentrun.core.messages import (
    Assistant,
    Image,
    Message,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Transcript,
    User,
    user_message,
)
from agentrun.errors import LimitError
from agentrun.providers.anthropic import Anthropic
from agentrun.providers.codec import ConversationEncoder

from . import exchange
from .exchange import BLOBS, NOTE, NOW, PDF, PICTURE, SEARCH, check_golden_file, encode, request_json

CODEC = Anthropic()
HAIKU = "claude-haiku-4-5"
THIS_ROUTE = f"anthropic/{HAIKU}"
THOUGHT = '{"signature":"s==","thinking":"Hm.","type":"thinking"}'


def request(*messages: Message, name: str = HAIKU, **more: Any) -> ModelRequest:
    return exchange.request("anthropic", name, *messages, **more)


def messages(*history: Message, **more: Any) -> list[Any]:
    return list(exchange.body(CODEC, request(*history, **more))["messages"])


CALLS = (
    ToolCall("c1.0", "docs.search", '{"q": "a"}', "toolu_1", THIS_ROUTE),
    ToolCall("c1.1", "now", "{}", "toolu_2", THIS_ROUTE),
)
CONVERSATION = (
    User((Text("Look at this."), PICTURE, PDF, NOTE)),
    Assistant((Reasoning(THOUGHT, THIS_ROUTE), Text("I look."), *CALLS)),
    ToolResult("c1.0", (Text("Nothing."), PICTURE)),
    ToolResult("c1.1", (Text("Noon."),)),
    user_message("Hurry."),
    Assistant((Text("Done."),)),
    user_message("Thanks."),
)


def test_conversation_matches_the_golden_file() -> None:
    asked = request(*CONVERSATION, tools=(SEARCH, NOW))
    check_golden_file(exchange.GOLDEN / "anthropic" / "conversation.request.json", request_json(encode(CODEC, asked)))


def test_results_of_a_batch_are_one_message_before_the_text() -> None:
    late = (user_message("Hurry."), *CONVERSATION[2:4])
    for history in (CONVERSATION[:5], (*CONVERSATION[:2], *late)):
        answer = messages(*history)[-1]
        kinds = [(block["type"], block.get("tool_use_id")) for block in answer["content"]]
        assert answer["role"] == "user"
        assert kinds == [("tool_result", "toolu_1"), ("tool_result", "toolu_2"), ("text", None)]


def test_another_route_gets_no_reasoning_and_derived_ids() -> None:
    elsewhere = messages(*CONVERSATION[:4], name="claude-sonnet-4-5")
    assert [block["type"] for block in elsewhere[1]["content"]] == ["text", "tool_use", "tool_use"]
    assert [block["id"] for block in elsewhere[1]["content"][1:]] == ["c1_0", "c1_1"]
    assert [block["tool_use_id"] for block in elsewhere[2]["content"]] == ["c1_0", "c1_1"]


def test_reasoning_is_sent_back_unchanged_in_place() -> None:
    redacted = '{"data":"x","new_field":[1.0],"type":"redacted_thinking"}'
    parts = (Reasoning(THOUGHT, THIS_ROUTE), Text("a"), Reasoning(redacted, THIS_ROUTE), CALLS[1])
    data = encode(CODEC, request(user_message("Hi"), Assistant(parts), CONVERSATION[3])).body
    thought, text = THOUGHT.encode(), b'{"text":"a","type":"text"}'
    assert b'"content":[' + thought + b"," + text + b"," + redacted.encode() + b',{"id":"toolu_2"' in data


def test_reasoning_that_is_no_json_is_left_out() -> None:
    assert messages(user_message("Hi"), Assistant((Reasoning("{", THIS_ROUTE), Text("a"))))[1]["content"] == [
        {"type": "text", "text": "a"}
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
        ("{}", {}),
        ("{", {"INVALID_JSON": "{"}),
        ("", {"INVALID_JSON": ""}),
        ("[1]", {"INVALID_JSON": "[1]"}),
        ('{"a": NaN}', {"INVALID_JSON": '{"a": NaN}'}),
        ('{"a":' + "9" * 5000 + "}", None),
        ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", None),
    ],
)
def test_arguments_are_sent_as_an_object(arguments: str, expected: Any) -> None:
    asked = request(
        user_message("Hi"), Assistant((ToolCall("c1.0", "now", arguments),)), ToolResult("c1.0", (Text("x"),))
    )
    data = encode(CODEC, asked).body
    if expected is None:
        assert b'"input":{' in data
    else:
        assert json.loads(data)["messages"][1]["content"][0]["input"] == expected


def test_blank_texts_and_empty_messages_are_left_out() -> None:
    history = (
        User((Text(""), Text("a"))),
        Assistant((Text(" \n"), Reasoning(THOUGHT, "other/model"))),
        user_message("b"),
        Assistant((CALLS[1],)),
        ToolResult("c1.1", (Text(" "),)),
    )
    assert messages(*history) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_2"}]},
    ]


def test_refusals_are_sent_as_text() -> None:
    assert messages(user_message("Hi"), Assistant((Refusal("No."),)))[1]["content"] == [{"type": "text", "text": "No."}]


def test_calls_with_the_same_wire_id_get_derived_ids() -> None:
    twice = tuple(replace(call, wire_id="same") for call in CALLS)
    blocks = [
        block
        for item in messages(user_message("Hi"), Assistant(twice), *CONVERSATION[2:4])
        for block in item["content"]
    ]
    assert [block["id"] for block in blocks if block["type"] == "tool_use"] == ["c1_0", "c1_1"]
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == ["c1_0", "c1_1"]


@pytest.mark.parametrize("part", [Image("image/tiff", "sha256:a", 4), replace(PDF, media_type="application/zip")])
def test_unsupported_media_type_fails(part: Any) -> None:
    with pytest.raises(LimitError) as caught:
        encode(CODEC, request(User((part,))))
    assert (caught.value.code, caught.value.fields["reason"]) == ("context.failed", "unsupported")


@given(st.lists(st.sampled_from(CONVERSATION[:1] + CONVERSATION[4:]), min_size=1, max_size=6), st.integers(0, 6))
def test_a_conversation_that_grows_is_encoded_like_a_new_one(history: list[Message], first: int) -> None:
    grown = ConversationEncoder(CODEC, BLOBS.__getitem__)
    transcript = Transcript([user_message("Hi"), *history[:first]])
    asked = replace(request(), messages=transcript)
    grown.encode(asked)
    whole = replace(asked, messages=transcript.plus(*history[first:]))
    assert grown.encode(whole) == encode(CODEC, whole)
