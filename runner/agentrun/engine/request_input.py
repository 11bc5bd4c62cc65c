"""The history and the attachments that a program passes to a run.

Rule 1  The calls of a history have ids of their own, because a run numbers its calls from the start: r0.c2.1 is the
        second call of the second message with calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

from msgspec.structs import replace

from agentrun.core.messages import Assistant, File, Image, Message, ToolCall, ToolResult, User, message_from_dict
from agentrun.engine.argument_checks import check_type
from agentrun.engine.request import Attachment


def read_history(history: Sequence[Message | Mapping[str, Any]]) -> tuple[Message, ...]:
    """Raises TypeError and ValueError with the place of a message that cannot be read."""
    check_type("history", history, (list, tuple), "a list of messages")
    return tuple(_number_calls([_read_message(index, each) for index, each in enumerate(history)]))


def _read_message(index: int, message: object) -> Message:
    if isinstance(message, User | Assistant | ToolResult):
        return message
    name = f"history[{index}]"
    check_type(name, message, Mapping, "a message, or a dict in OpenAI's chat form")
    try:
        return message_from_dict(message)  # type: ignore[arg-type]  # it is a mapping
    except ValueError as error:
        raise ValueError(f"`{name}`: {error}") from None


def _number_calls(messages: Iterable[Message]) -> Iterable[Message]:
    names: dict[str, str] = {}
    turn = 0
    for message in messages:
        match message:
            case Assistant() if message.calls:
                turn += 1
                names |= {call.id: f"r0.c{turn}.{index}" for index, call in enumerate(message.calls)}
                parts = (replace(p, id=names[p.id]) if isinstance(p, ToolCall) else p for p in message.parts)
                yield Assistant(tuple(parts))
            case ToolResult():
                yield replace(message, call=names.get(message.call, message.call))
            case _:
                yield message


def read_attachments(attachments: Sequence[object]) -> tuple[Image | File | Attachment, ...]:
    """Raises TypeError and ValueError with the place of an attachment, and OSError."""
    check_type("attachments", attachments, (list, tuple), "a list of paths and attachments")
    return tuple(_read_attachment(index, each) for index, each in enumerate(attachments))


def _read_attachment(index: int, attachment: object) -> Image | File | Attachment:
    if isinstance(attachment, Image | File | Attachment):
        return attachment
    check_type(f"attachments[{index}]", attachment, (str, PathLike), "a path or an Attachment")
    return Attachment.from_path(attachment)  # type: ignore[arg-type]  # it is a path
