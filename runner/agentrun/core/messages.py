"""Messages between a user, a model and its tools, independent of the provider.

Rule 1  Instructions are not a message. They are in `RunStarted` and in the request.
Rule 2  Messages and parts are frozen and closed. A new kind of part is a new member of a union here.
Rule 3  What a provider did not report is null. Usage that was not reported is never 0.
Rule 4  A field marked VOLATILE may differ between two equivalent runs. The canonical form leaves it out.
Rule 5  `to_dict` and `from_dict` use the form of OpenAI's Chat Completions, which other programs can read and write.
        Reasoning has no place in it, and images and files are there only as their bytes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import astuple, replace

from agentrun.canonical_json import text_hash
from agentrun.core.effect_ids import CallId

VOLATILE = Meta(extra={"volatile": True})

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "unknown"]
"""Why a reply ended. `unknown`: the provider gave a reason that is not in this list, or none."""


class _Part(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="kind"):
    """Base of what messages are made of."""


class Text(_Part, frozen=True, tag="text"):
    """Plain text."""

    text: str


class Refusal(_Part, frozen=True, tag="refusal"):
    """The text of a model that refuses to answer."""

    text: str


class Reasoning(_Part, frozen=True, tag="reasoning"):
    """Reasoning of a model. It is sent back only to the route it came from."""

    opaque: Annotated[str, VOLATILE]
    """The data of the provider, as it was received."""
    route: Annotated[str, VOLATILE]
    """provider/model."""


class Image(_Part, frozen=True, tag="image"):
    """A picture, by the hash of its bytes."""

    media_type: str
    blob: str
    """`sha256:` and the hash of the bytes, which are stored separately."""
    size: int
    """Bytes."""


class File(_Part, frozen=True, tag="file"):
    """A document, by the hash of its bytes."""

    name: str
    media_type: str
    blob: str
    """`sha256:` and the hash of the bytes, which are stored separately."""
    size: int
    """Bytes."""


Content: TypeAlias = Text | Image | File


class ToolCall(_Part, frozen=True, tag="tool_call"):
    """A call that the model requests."""

    id: str
    """Derived from the position: c1.0 is the first call of turn 1."""
    tool: str
    """The name of the tool, as the model wrote it."""
    arguments: str
    """The arguments, as the model wrote them. They may not even be JSON."""
    wire_id: Annotated[str | None, VOLATILE] = None
    """The id that the provider gave the call. It is sent back only to the route it came from."""
    route: Annotated[str | None, VOLATILE] = None
    """provider/model that requested the call."""


ReplyPart: TypeAlias = Text | Refusal | Reasoning | ToolCall


class _Message(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="role"):
    """Base of all messages."""


ReadBytes: TypeAlias = Callable[[str], bytes]
"""Returns the bytes of an image or a file by their hash."""


class User(_Message, frozen=True, tag="user"):
    """A message from the user, or from the runtime on behalf of the user."""

    parts: tuple[Content, ...]

    @property
    def text(self) -> str:
        return text_of(self.parts)

    def to_dict(self, read: ReadBytes | None = None) -> dict[str, Any]:
        """The message in OpenAI's chat form. `read` is needed for images and files."""
        return {"role": "user", "content": _chat_content(self.parts, read)}

    @classmethod
    def from_dict(cls, chat: Mapping[str, Any]) -> User:
        """Read a message in OpenAI's chat form. Raises ValueError."""
        _check_role(chat, "user")
        return cls((Text(_chat_text(chat.get("content"))),))


class Assistant(_Message, frozen=True, tag="assistant"):
    """A message from the model."""

    parts: tuple[ReplyPart, ...]

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts if isinstance(part, _WORDS)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def refused(self) -> bool:
        return any(isinstance(part, Refusal) for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """The message in OpenAI's chat form."""
        text = "".join([part.text for part in self.parts if isinstance(part, Text)])
        refusal = "".join([part.text for part in self.parts if isinstance(part, Refusal)])
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
            for call in self.calls
        ]
        chat: dict[str, Any] = {"role": "assistant", "content": text or (None if calls or refusal else "")}
        return chat | ({"refusal": refusal} if refusal else {}) | ({"tool_calls": calls} if calls else {})

    @classmethod
    def from_dict(cls, chat: Mapping[str, Any]) -> Assistant:
        """Read a message in OpenAI's chat form. Raises ValueError."""
        _check_role(chat, "assistant")
        text, refusal = _chat_text(chat.get("content")), chat.get("refusal")
        parts: list[ReplyPart] = [Text(text)] if text else []
        parts += [Refusal(_chat_text(refusal))] if refusal else []
        return cls((*parts, *(_chat_call(call) for call in chat.get("tool_calls") or ())))


class ToolResult(_Message, frozen=True, tag="tool"):
    """The result of a call."""

    call: str
    """The derived id of the call."""
    parts: tuple[Content, ...]

    @property
    def text(self) -> str:
        return text_of(self.parts)

    def to_dict(self, read: ReadBytes | None = None) -> dict[str, Any]:
        """The message in OpenAI's chat form. `read` is needed for images and files."""
        return {"role": "tool", "tool_call_id": self.call, "content": _chat_content(self.parts, read)}

    @classmethod
    def from_dict(cls, chat: Mapping[str, Any]) -> ToolResult:
        """Read a message in OpenAI's chat form. Raises ValueError."""
        _check_role(chat, "tool")
        call = chat.get("tool_call_id")
        if not isinstance(call, str):
            raise ValueError("a message with the role tool needs a `tool_call_id`")  # noqa: TRY004  # as for the other fields
        return cls(call, (Text(_chat_text(chat.get("content"))),))


_WORDS = (Text, Refusal)
Message: TypeAlias = User | Assistant | ToolResult
"""A message of a conversation."""


def message_from_dict(chat: Mapping[str, Any]) -> Message:
    """Read a message in OpenAI's chat form: of the role user, assistant or tool. Raises ValueError."""
    match chat.get("role"):
        case "user":
            return User.from_dict(chat)
        case "assistant":
            return Assistant.from_dict(chat)
        case "tool":
            return ToolResult.from_dict(chat)
        case "system" | "developer" as role:
            raise ValueError(f"a message with the role {role} is not part of a history: the spec has the instructions")
        case role:
            raise ValueError(f"the role of a message must be user, assistant or tool, not {role!r}")


def _check_role(chat: Mapping[str, Any], role: str) -> None:
    if chat.get("role", role) != role:
        raise ValueError(f"the role of this message must be {role}, not {chat['role']!r}")


def _chat_text(content: object) -> str:
    """The text of `content`: a string, null, or a list of parts with text."""
    match content:
        case None:
            return ""
        case str():
            return content
        case list() | tuple():
            return "".join(map(_part_text, content))
    raise ValueError(f"the content of a message must be a text or a list of parts, not {type(content).__name__}")


def _part_text(part: object) -> str:
    match part:
        case {"type": "text", "text": str() as text} | {"type": "refusal", "refusal": str() as text}:
            return text
        case {"type": kind}:
            raise ValueError(f"a part of the type {kind!r} cannot be read: pass images and files as `attachments`")
    raise ValueError("a part of a message must be a dict with a `type`")


def _chat_call(call: object) -> ToolCall:
    match call:
        case {"id": str() as id, "function": {"name": str() as name, "arguments": str() as arguments}}:
            return ToolCall(id, name, arguments)
    raise ValueError("a tool call needs `id`, and in `function` the texts `name` and `arguments`")


def _chat_content(parts: tuple[Content, ...], read: ReadBytes | None) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in parts):
        return text_of(parts)
    return [_chat_part(part, read) for part in parts]


def _chat_part(part: Content, read: ReadBytes | None) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if read is None:
        raise ValueError("this message has an image or a file: `read` must return its bytes")
    url = f"data:{part.media_type};base64,{b64encode(read(part.blob)).decode()}"
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": part.name, "file_data": url}}


def user_message(text: str) -> User:
    return User((Text(text),))


def message_hash(text: str) -> str:
    """The same for two texts that differ only in the space around them."""
    return text_hash(text.strip())


def text_of(parts: tuple[Content, ...]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


class Usage(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Tokens, as the provider counted them. Null: not reported."""

    input: int | None = None
    """Tokens read, including cached ones."""
    output: int | None = None
    """Tokens written, including reasoning."""
    cached: int | None = None
    """Tokens of `input` that came from the provider's cache."""
    reasoning: int | None = None
    """Tokens of `output` that are reasoning."""

    def plus(self, other: Usage | None) -> Usage:
        """The sum. A sum with an unknown part is unknown."""
        if other is None:
            return Usage()
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Usage(*(None if one is None or two is None else one + two for one, two in pairs))


ZERO_USAGE = Usage(input=0, output=0, cached=0, reasoning=0)


class Reply(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One complete reply of a model."""

    message: Assistant
    finish: FinishReason
    usage: Usage | None
    """Null: the provider reported none."""
    model: str | None
    """The model that replied, as reported by the provider."""
    wire_id: Annotated[str | None, VOLATILE]
    """The provider's id of the reply."""

    def with_call_ids(self, turn: int, route: str | None = None) -> Reply:
        """The reply with ids for its calls, and their route. A codec only knows the order of calls."""
        if not self.message.calls:
            return self
        index = count()
        parts = [
            replace(part, id=str(CallId(turn, next(index))), route=route) if isinstance(part, ToolCall) else part
            for part in self.message.parts
        ]
        return replace(self, message=Assistant(tuple(parts)))


class Transcript:
    """Messages in order. Appending returns a new transcript that shares the common messages.

    All transcripts of a run use one list, each a prefix of it. Only the longest grows in place; any other is copied.
    """

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages = list(messages)
        self._length = len(self._messages)

    def plus(self, *messages: Message) -> Transcript:
        longer = Transcript()
        whole = len(self._messages) == self._length
        longer._messages = self._messages if whole else self._messages[: self._length]
        longer._messages.extend(messages)
        longer._length = self._length + len(messages)
        return longer

    def since(self, start: int) -> tuple[Message, ...]:
        return tuple(self._messages[start : self._length])

    def until(self, end: int) -> tuple[Message, ...]:
        return tuple(self._messages[: min(end, self._length)])

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        for index in range(self._length):
            yield self._messages[index]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Transcript) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # equal by content, and the content is long

    def __repr__(self) -> str:
        return f"Transcript({tuple(self)!r})"
