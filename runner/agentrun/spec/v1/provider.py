"""The script of `agentrun provider`: what a model says, turn by turn, and what goes wrong on the way."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from agentrun.spec.v1.agent import MODEL_NAME_PATTERN
from agentrun.spec.v1.field_types import Duration
from agentrun.spec.v1.tools import HeaderName

ScriptedTokens: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
"""A number of tokens."""

ScriptedText: TypeAlias = Annotated[str, Meta(max_length=262_144)]
"""A text as it is sent."""

BytePosition: TypeAlias = Annotated[int, Meta(ge=0, le=1_073_741_824)]
"""A byte of the reply's body, counted from 0."""

RepeatCount: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
"""How often something happens."""

SCRIPTED_TOOL_PATTERN = "^[A-Za-z0-9_.-]{1,128}$"
ToolName: TypeAlias = Annotated[str, Meta(pattern=SCRIPTED_TOOL_PATTERN)]
"""A tool as the spec names it."""


class ScriptedUsage(Struct, frozen=True, forbid_unknown_fields=True):
    """The tokens that a reply says it took."""

    input: ScriptedTokens = 10
    """Tokens read, cached ones included."""
    output: ScriptedTokens = 5
    """Tokens written, reasoning included."""
    cached: ScriptedTokens = 0
    """Tokens of `input` that came from a cache."""
    reasoning: ScriptedTokens = 0
    """Tokens of `output` that were thought and not said."""


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call that the model asks for."""

    tool: ToolName
    """The tool. A dot is sent as two underscores, as all providers want it."""
    args: dict[str, Any] = {}
    """The arguments, as JSON."""
    raw: ScriptedText | UnsetType = UNSET
    """Instead of `args`: the arguments as text, which need not be JSON."""


class Expectation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a request must hold. Any other is answered with status 400 and the reason."""

    model: Annotated[str, Meta(pattern=MODEL_NAME_PATTERN)] | UnsetType = UNSET
    """The model's name, exactly."""
    instructions: ScriptedText | UnsetType = UNSET
    """A text inside the instructions."""
    contains: list[ScriptedText] = []
    """Texts inside what was said since the model's last turn, results of tools included."""
    results: list[ScriptedText] = []
    """Texts inside the results of the last turn's calls, one for each call, in order."""
    tools: list[ToolName] | UnsetType = UNSET
    """The tools that are offered, in any order."""
    reasoning: bool = False
    """Whether all that the model thought must come back, in formats that have a place for it (all but chat)."""


class ScriptedFault(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What goes wrong with a reply. With neither `status` nor `body` it is the turn's own reply, disturbed."""

    times: RepeatCount = 1
    """How many requests it happens to, over all conversations, before the next fault or the turn itself."""
    status: Annotated[int, Meta(ge=200, le=599)] | UnsetType = UNSET
    """The status that is answered. From 400 on the body is the provider's own kind of error, unless there is a `body`."""
    headers: dict[HeaderName, Annotated[str, Meta(max_length=4096)]] = {}
    """Further headers of the reply: {retry-after: "2"}."""
    body: Any = UNSET
    """The body instead of the provider's own: a text, or JSON."""
    content_type: Annotated[str, Meta(min_length=1, max_length=256)] | UnsetType = UNSET
    """The content type instead of the right one."""
    framing: Literal["length", "chunked", "close"] | UnsetType = UNSET
    """How the end of the body is marked. `close`: by nothing but the end of the connection. Absent: `chunked` for streams, else `length`."""
    delay: Duration | UnsetType = UNSET
    """How long nothing is sent, not even a status."""
    gap: Duration | UnsetType = UNSET
    """How long to wait before each further piece of the body."""
    drip: Annotated[int, Meta(ge=1, le=1_048_576)] | UnsetType = UNSET
    """The body comes in pieces of so many bytes."""
    damage: BytePosition | UnsetType = UNSET
    """This byte of the body becomes a zero byte, which is nowhere right in JSON."""
    cut: BytePosition | UnsetType = UNSET
    """The connection ends before this byte of the body. 0: after the headers."""
    endless: bool = False
    """Whether the reply never ends: before its last piece come empty pieces for ever, each after `gap`, or after 10 ms."""


class ScriptedTurn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One reply of the model."""

    expect: Expectation = Expectation()
    """What the request must hold."""
    reasoning: ScriptedText | UnsetType = UNSET
    """What the model thinks before it speaks."""
    text: ScriptedText | UnsetType = UNSET
    """What it says in words."""
    refusal: ScriptedText | UnsetType = UNSET
    """What it says when it declines."""
    calls: Annotated[list[ScriptedCall], Meta(max_length=1000)] = []
    """The calls it asks for."""
    finish: Literal["stop", "length", "tool_calls", "content_filter", "unknown"] | UnsetType = UNSET
    """Why the reply ends, in the provider's own word for it. Absent: `tool_calls` with calls, else `stop`."""
    usage: ScriptedUsage | Literal["off"] = ScriptedUsage()
    """The tokens it takes; `off`: the provider does not say."""
    chunk: Annotated[int, Meta(ge=1, le=1_000_000)] = 16
    """How many characters of a text, or of a call's arguments, each piece of a stream brings."""
    faults: Annotated[list[ScriptedFault], Meta(max_length=100)] = []
    """What goes wrong before the turn is answered as it should be, in order."""
    times: RepeatCount = 1
    """How many turns in a row are like this."""


class ProviderFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A script for `agentrun provider`."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    order: Literal["conversation", "arrival"] = "conversation"
    """Which turn answers a request. `conversation`: the one after those that the request already holds, so several runs and their retries do not mix. `arrival`: the next one, whatever is asked."""
    turns: Annotated[list[ScriptedTurn], Meta(min_length=1, max_length=10_000)]
    """What the model says, turn by turn."""
