"""Gemini: encoding of conversations."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core.effects import ModelRequest
from agentrun.core.messages import (
    Assistant,
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
from agentrun.providers.codec import ConversationEncoder
from agentrun.providers.gemini import UNSIGNED_CALL, GeminiGenerate

from . import exchange
from .exchange import BLOBS, NOTE, NOW, PDF, PICTURE, SEARCH, check_golden_file, encode, request_json

CODEC = GeminiGenerate()
FLASH, FLASH_3 = "gemini-2.5-flash", "gemini-3-flash-preview"
THIS_ROUTE = f"gemini/{FLASH}"


def request(*messages: Message, name: str = FLASH, **more: Any) -> ModelRequest:
    return exchange.request("gemini", name, *messages, **more)


def contents(*history: Message, **more: Any) -> list[Any]:
    return list(exchange.body(CODEC, request(*history, **more))["contents"])


SIGNATURE = '{"thoughtSignature":"c2ln"}'
CALLS = (
    ToolCall("c1.0", "docs.search", '{"q": "a"}', None, THIS_ROUTE),
    ToolCall("c1.1", "now", "{}", "id-2", THIS_ROUTE),
)
CONVERSATION = (
    User((Text("Look at this."), PICTURE, PDF, NOTE)),
    Assistant((Text("I look."), Reasoning(SIGNATURE, THIS_ROUTE), *CALLS)),
    ToolResult("c1.0", (Text("Nothing."), PICTURE)),
    ToolResult("c1.1", (Text("Noon."),)),
    user_message("Hurry."),
    Assistant((Text("Done."), Reasoning('{"text":"","thoughtSignature":"ZW5k"}', THIS_ROUTE))),
    user_message("Thanks."),
)


@pytest.mark.parametrize(("story", "name"), [("conversation", FLASH), ("fallback", FLASH_3)])
def test_conversation_matches_the_golden_file(story: str, name: str) -> None:
    asked = request(*CONVERSATION, tools=(SEARCH, NOW), name=name)
    check_golden_file(exchange.GOLDEN / "gemini" / f"{story}.request.json", request_json(encode(CODEC, asked)))


def reply_parts(*said_by_model: Any, name: str = FLASH) -> list[Any]:
    return list(contents(user_message("Hi"), Assistant(said_by_model), name=name)[1]["parts"])


def test_all_results_of_a_batch_are_one_message() -> None:
    late = (*CONVERSATION[:2], user_message("Hurry."), *CONVERSATION[2:4])
    for history in (CONVERSATION[:5], late):
        roles = [(item["role"], [next(iter(part)) for part in item["parts"]]) for item in contents(*history)[2:]]
        assert roles[0] == ("user", ["functionResponse", "functionResponse"])
        assert [role for role, _ in roles] == ["user", "user"]


def test_signatures_are_sent_back_with_their_parts() -> None:
    sign, whole = Reasoning(SIGNATURE, THIS_ROUTE), Reasoning('{"thought":true,"text":"Hm"}', THIS_ROUTE)
    assert reply_parts(Text("a"), sign, Text("b"), whole, sign, *CALLS) == [
        {"text": "a"},
        {"text": "b", "thoughtSignature": "c2ln"},
        {"thought": True, "text": "Hm"},
        {
            "functionCall": {"name": "docs__search", "args": {"q": "a"}},
            "thoughtSignature": "c2ln",
        },
        {"functionCall": {"id": "id-2", "name": "now", "args": {}}},
    ]


def test_another_route_gets_no_signatures_and_derived_ids() -> None:
    history = contents(*CONVERSATION[:4], name="gemini-2.0-flash")
    assert history[1]["parts"] == [
        {"text": "I look."},
        {"functionCall": {"id": "c1_0", "name": "docs__search", "args": {"q": "a"}}},
        {"functionCall": {"id": "c1_1", "name": "now", "args": {}}},
    ]
    assert [part["functionResponse"]["id"] for part in history[2]["parts"]] == ["c1_0", "c1_1"]


def test_first_call_of_another_route_is_marked_as_unsigned() -> None:
    """Generation 3 refuses a first call without a signature."""
    found = reply_parts(*CALLS, name=FLASH_3)
    assert [part.get("thoughtSignature") for part in found] == [UNSIGNED_CALL, None]
    own = tuple(replace(call, route=f"gemini/{FLASH_3}") for call in CALLS)
    assert [part.get("thoughtSignature") for part in reply_parts(*own, name=FLASH_3)] == [None, None]


def test_a_signature_without_its_part_is_left_out() -> None:
    sign = Reasoning(SIGNATURE, THIS_ROUTE)
    assert reply_parts(Text("a"), sign) == [{"text": "a"}]
    assert reply_parts(Text("a"), Reasoning("[]", THIS_ROUTE), Reasoning("{", THIS_ROUTE)) == [{"text": "a"}]


def test_results_are_function_responses() -> None:
    results = contents(*CONVERSATION[:4])
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    assert results[2:] == [
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "docs__search", "response": {"output": "Nothing."}}},
                {"functionResponse": {"id": "id-2", "name": "now", "response": {"output": "Noon."}}},
            ],
        },
        {"role": "user", "parts": [picture]},
    ]
    current = contents(*CONVERSATION[:4], name=FLASH_3)
    assert current[2]["parts"][0]["functionResponse"]["parts"] == [picture]
    assert len(current) == 3


def test_result_without_its_call_has_no_id() -> None:
    found = contents(user_message("Hi"), ToolResult("c9.0", (Text("x"),)))[0]["parts"][0]["functionResponse"]
    assert found.keys() == {"name", "response"}


def test_media_parts_are_inline_data() -> None:
    kinds = [part["inlineData"]["mimeType"] for part in contents(CONVERSATION[0])[0]["parts"][1:]]
    assert kinds == ["image/png", "application/pdf", "text/plain"]


def test_empty_messages_are_left_out() -> None:
    history = (User((Text(""), Text("a"))), Assistant((Text(""), Reasoning("{}", "x/y"))), user_message("b"))
    assert contents(*history) == [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "user", "parts": [{"text": "b"}]},
    ]


def test_refusals_are_sent_as_text() -> None:
    assert reply_parts(Refusal("No.")) == [{"text": "No."}]


def test_arguments_that_are_no_object_are_wrapped() -> None:
    call = replace(CALLS[1], arguments="[1]")
    assert reply_parts(call)[0]["functionCall"]["args"] == {"INVALID_JSON": "[1]"}


@given(st.lists(st.sampled_from(CONVERSATION[:1] + CONVERSATION[4:]), min_size=1, max_size=6), st.integers(0, 6))
def test_a_conversation_that_grows_is_encoded_like_a_new_one(history: list[Message], first: int) -> None:
    grown = ConversationEncoder(CODEC, BLOBS.__getitem__)
    transcript = Transcript([user_message("Hi"), *history[:first]])
    asked = replace(request(), messages=transcript)
    grown.encode(asked)
    whole = replace(asked, messages=transcript.plus(*history[first:]))
    assert grown.encode(whole) == encode(CODEC, whole)
