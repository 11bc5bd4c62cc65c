"""What is said between a user, a model and its tools, in no provider's words.

Rule 1  Instructions are not a message: they stand in `RunStarted` and in the request.
Rule 2  Messages and parts are frozen and closed. A new kind of part is a new member of a union here.
Rule 3  What a provider did not say is null. Usage that was not reported is never 0.
Rule 4  A field marked VOLATILE differs between two runs that mean the same; the canonical form leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from agentrun.core.effect_ids import CallId

VOLATILE = Meta(extra={"volatile": True})

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "unknown"]
"""Why a reply ended. `unknown`: the provider gave a reason that is not in this list, or none."""


class _Part(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="kind"):
    """Base of what messages are made of."""


class Text(_Part, frozen=True, tag="text"):
    """Plain text."""

    text: str
    """The text."""


class Refusal(_Part, frozen=True, tag="refusal"):
    """What a model says when it declines to answer."""

    text: str
    """Its words."""


class Reasoning(_Part, frozen=True, tag="reasoning"):
    """What a model thought. It goes back to the route it came from and to no other."""

    opaque: Annotated[str, VOLATILE]
    """The provider's own form of it, as it was sent."""
    route: Annotated[str, VOLATILE]
    """provider/model."""


class Image(_Part, frozen=True, tag="image"):
    """A picture, by the hash of its bytes."""

    media_type: str
    blob: str
    """`sha256:` and the hash; the content port has the bytes."""
    size: int
    """Bytes."""


class File(_Part, frozen=True, tag="file"):
    """A document, by the hash of its bytes."""

    name: str
    media_type: str
    blob: str
    """`sha256:` and the hash; the content port has the bytes."""
    size: int
    """Bytes."""


Content: TypeAlias = Text | Image | File
"""What people and tools say."""


class ToolCall(_Part, frozen=True, tag="tool_call"):
    """A call that the model asks for."""

    id: str
    """Derived: c1.0 is the first call of turn 1."""
    tool: str
    """The tool's name as the model wrote it."""
    arguments: str
    """The arguments as the model wrote them; they may not even be JSON."""
    wire_id: Annotated[str | None, VOLATILE] = None
    """The provider's own id of the call. It goes back to the route that gave it and to no other."""
    route: Annotated[str | None, VOLATILE] = None
    """provider/model that asked for the call."""


class _Message(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="role"):
    """Base of all messages."""


class User(_Message, frozen=True, tag="user"):
    """What the user, or the runtime on the user's behalf, says."""

    parts: tuple[Content, ...]


class Assistant(_Message, frozen=True, tag="assistant"):
    """What the model says."""

    parts: tuple[Text | Refusal | Reasoning | ToolCall, ...]

    @property
    def text(self) -> str:
        """All it says in words."""
        return "".join([part.text for part in self.parts if isinstance(part, _WORDS)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def refused(self) -> bool:
        return any(isinstance(part, Refusal) for part in self.parts)


class ToolResult(_Message, frozen=True, tag="tool"):
    """What a call gave."""

    call: str
    """The derived id of the call."""
    parts: tuple[Content, ...]


_WORDS = (Text, Refusal)
Message: TypeAlias = User | Assistant | ToolResult


def user_message(text: str) -> User:
    """A message of one text."""
    return User((Text(text),))


def words(parts: tuple[Content, ...]) -> str:
    """The texts among parts."""
    return "".join(part.text for part in parts if isinstance(part, Text))


class Usage(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Tokens, as the provider counted them. Null: it did not say."""

    input: int | None = None
    """Tokens read, cached ones included."""
    output: int | None = None
    """Tokens written, reasoning included."""
    cached: int | None = None
    """Tokens of `input` that came from the provider's cache."""
    reasoning: int | None = None
    """Tokens of `output` that were thought and not said."""

    def plus(self, other: Usage | None) -> Usage:
        """The sum. A sum with an unknown part is unknown."""
        if other is None:
            return Usage()
        return Usage(
            input=_plus(self.input, other.input),
            output=_plus(self.output, other.output),
            cached=_plus(self.cached, other.cached),
            reasoning=_plus(self.reasoning, other.reasoning),
        )


ZERO_USAGE = Usage(input=0, output=0, cached=0, reasoning=0)


def _plus(one: int | None, two: int | None) -> int | None:
    return None if one is None or two is None else one + two


class Reply(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One whole answer of a model."""

    message: Assistant
    finish: FinishReason
    usage: Usage | None
    """Null: the provider did not report any."""
    model: str | None
    """The model that the provider says answered."""
    wire_id: Annotated[str | None, VOLATILE]
    """The provider's id of the reply."""

    def with_call_ids(self, turn: int, route: str | None = None) -> Reply:
        """The same with its calls named after the turn, and the route. A codec knows their order only."""
        if not self.message.calls:
            return self
        named, count = [], 0
        for part in self.message.parts:
            if isinstance(part, ToolCall):
                part = replace(part, id=str(CallId(turn, count)), route=route)
                count += 1
            named.append(part)
        return replace(self, message=Assistant(tuple(named)))


class Transcript:
    """Messages in order. Appending gives a new transcript and shares what both have in common.

    All transcripts of one run look at one list, each at its own first part of it: a run of n turns costs n
    appends and not n copies. Only the longest may grow in place; any other copies first.
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
        """The messages from an index on."""
        return tuple(self._messages[start : self._length])

    def until(self, end: int) -> tuple[Message, ...]:
        """The messages before an index."""
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
