"""OpenAI Chat Completions: encoding of requests."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.effects import ModelRequest
from agentrun.core.messages import Assistant, Message, Reasoning, Refusal, Text, ToolCall, ToolResult, User
from agentrun.errors import PackageError
from agentrun.providers.openai_chat import CHAT_FIELDS, OpenAIChat
from agentrun.wire import HttpAuth

from ..packages import TRIAGE
from . import exchange
from .exchange import NOW, SEARCH, encode, problems

CODEC = OpenAIChat()


def request(*messages: Message, **more: Any) -> ModelRequest:
    return exchange.request("openai", "gpt-4.1-mini", *messages, **{"temperature": 0.0, **more})


def body(asked: ModelRequest) -> dict[str, Any]:
    return exchange.body(CODEC, asked)


def test_request_bytes_are_exact() -> None:
    """To the byte: this is what recordings are found by."""
    call = encode(CODEC, request())
    assert (call.method, call.url) == ("POST", "https://api.openai.com/v1/chat/completions")
    assert call.headers == (("accept", "application/json"), ("content-type", "application/json"))
    assert call.auth == HttpAuth("authorization", "Bearer ", "OPENAI_API_KEY")
    assert call.body == (
        b'{"messages":[{"content":"Be brief.","role":"system"},{"content":"Hi","role":"user"}],'
        b'"model":"gpt-4.1-mini","temperature":0.0}'
    )


def test_empty_instructions_are_not_sent() -> None:
    assert body(request(instructions=""))["messages"] == [{"role": "user", "content": "Hi"}]


def test_declared_base_url_key_and_headers_are_used() -> None:
    call = encode(
        CODEC,
        request(route={"base_url": "${MODEL_URL}/v1/", "api_key": "${KEY}", "headers": {"x-b": "2", "x-a": "${A}"}}),
    )
    assert call.url == "${MODEL_URL}/v1/chat/completions"
    assert call.headers[2:] == (("x-a", "${A}"), ("x-b", "2"))
    assert call.auth == HttpAuth("authorization", "Bearer ", "KEY")


def test_request_contains_no_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-" + "a1" * 20)
    call = encode(CODEC, request(route={"api_key": "${OPENAI_API_KEY}"}))
    assert b"sk-" not in msgspec.json.encode(call)
    assert "authorization" not in dict(call.headers)


def test_every_setting_is_sent() -> None:
    every = body(
        request(
            temperature=0.5,
            top_p=0.9,
            seed=7,
            stop=["END"],
            max_output_tokens=100,
            reasoning="low",
            route={"options": {"logit_bias": {"50256": -100}, "user": "u"}},
        )
    )
    del every["messages"]
    assert every == {
        "model": "gpt-4.1-mini",
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["END"],
        "max_completion_tokens": 100,
        "reasoning_effort": "low",
        "logit_bias": {"50256": -100},
        "user": "u",
    }
    assert body(request(temperature=None)).keys() == {"model", "messages"}


@pytest.mark.parametrize("key", sorted(CHAT_FIELDS))
def test_options_cannot_override_fields_of_the_codec(key: str) -> None:
    asked = request(route={"options": {key: "x", "user": "u"}})
    assert problems(CODEC, asked) == [f"model.options cannot set {key}"]
    with pytest.raises(PackageError) as caught:
        encode(CODEC, asked)
    assert caught.value.code == "package.invalid"
    assert caught.value.fields["pointer"] == f"/model/options/{key}"


def test_every_sent_field_is_reserved() -> None:
    settings: dict[str, Any] = {"top_p": 1.0, "seed": 1, "stop": ["a"], "max_output_tokens": 1, "reasoning": "high"}
    asked = request(output=TRIAGE, tools=(NOW,), tool_choice="required", stream=True, **settings)
    assert body(asked).keys() == CHAT_FIELDS - {"n"}


def test_more_than_four_stop_texts_are_a_problem() -> None:
    assert problems(CODEC, request(seed=1, stop=list("abcd"), output=TRIAGE)) == []
    assert problems(CODEC, request(stop=list("abcde"))) == ["model.stop"]
    assert problems(CODEC, request(stop=list("abcde"), route={"base_url": "http://127.0.0.1/v1"})) == []


def test_stream_request_asks_for_usage() -> None:
    asked = request(stream=True)
    assert dict(encode(CODEC, asked).headers)["accept"] == "text/event-stream"
    assert body(asked) == body(request()) | {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", None),
        ("required", "required"),
        ("none", "none"),
        ("docs.search", {"type": "function", "function": {"name": "docs__search"}}),
        ("hidden", None),
    ],
)
def test_tool_choice_is_sent_only_with_tools(choice: str, sent: Any) -> None:
    assert body(request(tools=(SEARCH, NOW), tool_choice=choice)).get("tool_choice") == sent
    assert "tool_choice" not in body(request(tool_choice=choice))


def test_conversation_is_encoded() -> None:
    calls = (ToolCall("c1.0", "search", '{"q": 1}', "call_a"), ToolCall("c1.1", "read", "{", "call_b"))
    asked = request(
        User((Text("a"), Text("b"))),
        Assistant((Text("c"), Reasoning("{}", "openai/gpt-4.1-mini"), *calls, Text("!"))),
        ToolResult("c1.0", (Text("d"),)),
        ToolResult("c1.1", (Text("e"),)),
        Assistant((Refusal("no"),)),
        Assistant((Reasoning("{}", "x/y"),)),
    )
    assert body(asked)["messages"][1:] == [
        {"role": "user", "content": "ab"},
        {
            "role": "assistant",
            "content": "c!",
            "tool_calls": [
                {"id": "c1_0", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}},
                {"id": "c1_1", "type": "function", "function": {"name": "read", "arguments": '{"INVALID_JSON":"{"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1_0", "content": "d"},
        {"role": "tool", "tool_call_id": "c1_1", "content": "e"},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": ""},
    ]


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ('{"a":  1}', '{"a":  1}'),
        ("", "{}"),
        (" \n", "{}"),
        ("[1]", '{"INVALID_JSON":"[1]"}'),
        ('"x"', '{"INVALID_JSON":"\\"x\\""}'),
        ("{" * 2000, '{"INVALID_JSON":"' + "{" * 2000 + '"}'),
    ],
)
def test_arguments_are_sent_as_an_object(written: str, sent: str) -> None:
    """Servers read them again, and some break over what is none."""
    (call,) = body(request(Assistant((ToolCall("c1.0", "x", written),))))["messages"][1]["tool_calls"]
    assert call["function"]["arguments"] == sent


def test_result_without_its_call_has_a_derived_id() -> None:
    assert body(request(ToolResult("c7.1", ())))["messages"][1]["tool_call_id"] == "c7_1"


@given(st.permutations(["user", "metadata", "store"]))
def test_order_of_options_does_not_change_the_body(names: list[str]) -> None:
    options = {name: {"b": 1, "a": 2} for name in names}
    straight = request(route={"options": dict(sorted(options.items()))})
    assert encode(CODEC, request(route={"options": options})).body == encode(CODEC, straight).body
