"""Messages in OpenAI's chat form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentrun.core.messages import (
    Assistant,
    File,
    Image,
    Message,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    User,
    message_from_dict,
)

CALL = {"id": "c1.0", "type": "function", "function": {"name": "look", "arguments": '{"n": 1}'}}
FORMS: list[tuple[Message, dict[str, Any]]] = [
    (User((Text("Hi."),)), {"role": "user", "content": "Hi."}),
    (Assistant((Text("Hello."),)), {"role": "assistant", "content": "Hello."}),
    (
        Assistant((ToolCall("c1.0", "look", '{"n": 1}'),)),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
    ),
    (
        Assistant((Text("I look."), ToolCall("c1.0", "look", '{"n": 1}'))),
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    ),
    (Assistant((Refusal("No."),)), {"role": "assistant", "content": None, "refusal": "No."}),
    (ToolResult("c1.0", (Text("found"),)), {"role": "tool", "tool_call_id": "c1.0", "content": "found"}),
]


@pytest.mark.parametrize(("message", "chat"), FORMS, ids=range(len(FORMS)))
def test_message_has_a_chat_form_and_is_read_back(message: Message, chat: dict[str, Any]) -> None:
    assert message.to_dict() == chat
    assert message_from_dict(json.loads(json.dumps(chat))) == message
    assert type(message).from_dict(chat) == message


def test_empty_answer_has_a_content() -> None:
    """The API refuses a message with neither content nor calls."""
    assert Assistant(()).to_dict() == {"role": "assistant", "content": ""}


def test_reasoning_has_no_place_in_the_chat_form() -> None:
    assert Assistant((Reasoning("opaque", "a/b"), Text("Hi."))).to_dict() == {"role": "assistant", "content": "Hi."}


def test_parts_with_text_are_joined() -> None:
    parts = [{"type": "text", "text": "One "}, {"type": "text", "text": "two."}]
    assert message_from_dict({"role": "user", "content": parts}) == User((Text("One two."),))


def test_images_and_files_need_their_bytes() -> None:
    message = User((Text("Look:"), Image("image/png", "sha256:1", 3), File("a.pdf", "application/pdf", "sha256:2", 3)))
    with pytest.raises(ValueError, match="`read` must return its bytes"):
        message.to_dict()
    assert message.to_dict({"sha256:1": b"one", "sha256:2": b"two"}.__getitem__)["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,b25l"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,dHdv"}},
    ]


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        ({}, "the role of a message must be user, assistant or tool, not None"),
        ({"role": "developer"}, "a message with the role developer is not part of a history"),
        ({"role": "user", "content": 5}, "the content of a message must be a text or a list of parts, not int"),
        ({"role": "user", "content": ["Hi."]}, "a part of a message must be a dict with a `type`"),
        ({"role": "user", "content": [{"type": "audio"}]}, "a part of the type 'audio' cannot be read"),
        ({"role": "tool", "content": "x"}, "needs a `tool_call_id`"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "a tool call needs `id`, and in `function`"),
    ],
)
def test_other_forms_are_refused(chat: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        message_from_dict(chat)


def test_class_refuses_the_role_of_another() -> None:
    with pytest.raises(ValueError, match="the role of this message must be user, not 'tool'"):
        User.from_dict({"role": "tool", "content": "x"})
