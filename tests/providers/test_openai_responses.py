"""OpenAI Responses: encoding of requests."""

import json
from typing import Any

import pytest

from agentrun.core.effects import ModelRequest
from agentrun.core.messages import (
    Assistant,
    Message,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    User,
    user_message,
)
from agentrun.errors import PackageError
from agentrun.providers.openai_responses import RESPONSES_FIELDS, OpenAIResponses
from agentrun.wire import HttpAuth

from ..packages import TRIAGE
from . import exchange
from .exchange import NOW, PICTURE, SEARCH, encode, problems

CODEC = OpenAIResponses()
THIS_ROUTE = "openai-responses/gpt-5.4-mini"
THOUGHT = '{"encrypted_content":"gAAAA==","id":"rs_1","summary":[],"type":"reasoning"}'


def request(*messages: Message, **more: Any) -> ModelRequest:
    return exchange.request("openai-responses", "gpt-5.4-mini", *messages, **more)


def body(asked: ModelRequest) -> dict[str, Any]:
    return exchange.body(CODEC, asked)


def items(*messages: Message) -> list[Any]:
    return list(body(request(*messages))["input"])


def test_request_bytes_are_exact() -> None:
    call = encode(CODEC, request())
    assert (call.method, call.url) == ("POST", "https://api.openai.com/v1/responses")
    assert call.auth == HttpAuth("authorization", "Bearer ", "OPENAI_API_KEY")
    assert call.body == (
        b'{"input":[{"content":"Hi","role":"user","type":"message"}],"instructions":"Be brief.",'
        b'"model":"gpt-5.4-mini","store":false}'
    )


def test_empty_instructions_are_not_sent() -> None:
    assert "instructions" not in body(request(instructions=""))


@pytest.mark.parametrize("key", sorted(RESPONSES_FIELDS))
def test_options_cannot_override_fields_of_the_codec(key: str) -> None:
    asked = request(route={"options": {key: "x", "user": "u"}})
    assert problems(CODEC, asked) == [f"model.options cannot set {key}"]
    with pytest.raises(PackageError) as caught:
        encode(CODEC, asked)
    assert caught.value.fields["pointer"] == f"/model/options/{key}"


def test_every_sent_field_is_reserved() -> None:
    asked = request(
        temperature=1.0,
        top_p=1.0,
        max_output_tokens=1,
        reasoning="high",
        output=TRIAGE,
        tools=(NOW,),
        tool_choice="required",
        stream=True,
    )
    assert body(asked).keys() == RESPONSES_FIELDS - {"previous_response_id", "conversation", "background", "prompt"}


def test_seed_and_stop_are_problems() -> None:
    assert problems(CODEC, request(output=TRIAGE, reasoning="low", tools=(NOW,))) == []
    assert problems(CODEC, request(seed=0, stop=["END"])) == ["model.seed", "model.stop"]


@pytest.mark.parametrize(("reasoning", "asks"), [(None, False), ("none", False), ("low", True), ("high", True)])
def test_encrypted_reasoning_is_requested_only_with_reasoning(reasoning: str | None, asks: bool) -> None:
    sent = body(request(reasoning=reasoning))
    assert sent.get("reasoning") == ({"effort": reasoning} if reasoning else None)
    assert sent.get("include") == (["reasoning.encrypted_content"] if asks else None)


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", None),
        ("required", "required"),
        ("none", "none"),
        ("docs.search", {"type": "function", "name": "docs__search"}),
        ("hidden", None),
    ],
)
def test_tool_choice_is_sent_only_with_tools(choice: str, sent: Any) -> None:
    assert body(request(tools=(SEARCH, NOW), tool_choice=choice)).get("tool_choice") == sent
    assert "tool_choice" not in body(request(tool_choice=choice))


def test_conversation_parts_become_items_in_order() -> None:
    call = ToolCall("c1.0", "docs.search", '{"q": 1}', "call_a", THIS_ROUTE)
    found = items(
        user_message("Hi"),
        Assistant((Reasoning(THOUGHT, THIS_ROUTE), Text("I look."), call, Text("Wait."))),
        ToolResult("c1.0", (Text("Nothing."),)),
        Assistant((Refusal("No."),)),
    )
    assert found[1:] == [
        json.loads(THOUGHT),
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "call_a", "name": "docs__search", "arguments": '{"q": 1}'},
        {"type": "message", "role": "assistant", "content": "Wait."},
        {"type": "function_call_output", "call_id": "call_a", "output": "Nothing."},
        {"type": "message", "role": "assistant", "content": "No."},
    ]


@pytest.mark.parametrize("route", ["openai/gpt-5.4-mini", "openai-responses/gpt-5.4", "anthropic/claude-haiku-4-5"])
def test_another_route_gets_no_reasoning_and_derived_ids(route: str) -> None:
    """Neither what it thought nor its ids."""
    call = ToolCall("c1.0", "now", "", "call_a", route)
    assert items(Assistant((Reasoning(THOUGHT, route), call)), ToolResult("c1.0", ())) == [
        {"type": "function_call", "call_id": "c1_0", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1_0", "output": ""},
    ]


def test_message_with_only_foreign_reasoning_is_left_out() -> None:
    assert items(User((Text("Hi"),)), Assistant((Reasoning(THOUGHT, "x/y"),))) == [
        {"type": "message", "role": "user", "content": "Hi"}
    ]


def test_results_may_contain_images() -> None:
    (gave,) = items(ToolResult("c1.0", (Text("See:"), PICTURE)))
    assert gave["output"] == [
        {"type": "input_text", "text": "See:"},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw=="},
    ]
