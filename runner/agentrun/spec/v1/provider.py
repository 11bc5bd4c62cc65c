"""The script of `agentrun provider`: the replies of a model, turn by turn, and the faults to inject."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from agentrun.spec.v1.agent import MODEL_NAME_PATTERN
from agentrun.spec.v1.field_types import Duration
from agentrun.spec.v1.tools import HeaderName

ScriptedTokens: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
ScriptedText: TypeAlias = Annotated[str, Meta(max_length=262_144)]
BytePosition: TypeAlias = Annotated[int, Meta(ge=0, le=1_073_741_824)]
RepeatCount: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
SCRIPTED_TOOL_PATTERN = "^[A-Za-z0-9_.-]{1,128}$"
ToolName: TypeAlias = Annotated[str, Meta(pattern=SCRIPTED_TOOL_PATTERN)]


class ScriptedUsage(Struct, frozen=True, forbid_unknown_fields=True):
    """The token usage that a reply reports."""

    input: ScriptedTokens = 10
    """Input tokens, including cached ones."""
    output: ScriptedTokens = 5
    """Output tokens, including reasoning."""
    cached: ScriptedTokens = 0
    """How many of the `input` tokens were read from a cache."""
    reasoning: ScriptedTokens = 0
    """How many of the `output` tokens were reasoning."""


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tool call in the reply."""

    tool: ToolName
    """The name of the tool. A dot is sent as two underscores, because no provider accepts dots."""
    args: dict[str, Any] = {}
    """The arguments of the call."""
    raw: ScriptedText | UnsetType = UNSET
    """Instead of `args`: the arguments as text, which may be invalid JSON."""


class Expectation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the request must contain. Any other request gets status 400 and the reason."""

    model: Annotated[str, Meta(pattern=MODEL_NAME_PATTERN)] | UnsetType = UNSET
    """The exact name of the model."""
    instructions: ScriptedText | UnsetType = UNSET
    """A text that the instructions must contain."""
    contains: list[ScriptedText] = []
    """Texts that the messages since the model's last turn must contain, including tool results."""
    results: list[ScriptedText] = []
    """Texts that the results of the last turn's calls must contain: one for each call, in order."""
    tools: list[ToolName] | UnsetType = UNSET
    """The tools that the request must offer, in any order."""
    reasoning: bool = False
    """If true, the request must contain the model's earlier reasoning. The chat format has no field for it."""


class ScriptedFault(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fault in a reply. Without `status` and `body`, the turn's own reply is sent with this fault."""

    times: RepeatCount = 1
    """How many requests get this fault, over all conversations, before the next fault or the turn's own reply."""
    status: Annotated[int, Meta(ge=200, le=599)] | UnsetType = UNSET
    """The HTTP status of the reply. From 400 on, the body is an error in the provider's format, unless `body` is set."""
    headers: dict[HeaderName, Annotated[str, Meta(max_length=4096)]] = {}
    """Additional headers of the reply: {retry-after: "2"}."""
    body: Any = UNSET
    """The body of the reply: a text, or any value as JSON. Default: a body in the provider's format."""
    content_type: Annotated[str, Meta(min_length=1, max_length=256)] | UnsetType = UNSET
    """The content type of the reply. Default: the correct one."""
    framing: Literal["length", "chunked", "close"] | UnsetType = UNSET
    """How the end of the body is marked. `close`: only by closing the connection. Default: `chunked` for streams, otherwise `length`."""
    delay: Duration | UnsetType = UNSET
    """How long to wait before anything is sent, including the status."""
    gap: Duration | UnsetType = UNSET
    """How long to wait before each further chunk of the body."""
    drip: Annotated[int, Meta(ge=1, le=1_048_576)] | UnsetType = UNSET
    """Send the body in chunks of this many bytes."""
    damage: BytePosition | UnsetType = UNSET
    """The position of a byte of the body that is replaced by a zero byte, which is never valid in JSON."""
    cut: BytePosition | UnsetType = UNSET
    """The connection is closed before this byte of the body. 0: right after the headers."""
    endless: bool = False
    """If true, the reply never ends: empty chunks are sent forever before the last one, each after `gap`, or after 10 ms."""


class ScriptedTurn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One reply of the model."""

    expect: Expectation = Expectation()
    """What the request must contain."""
    reasoning: ScriptedText | UnsetType = UNSET
    """The reasoning of the model."""
    text: ScriptedText | UnsetType = UNSET
    """The text of the reply."""
    refusal: ScriptedText | UnsetType = UNSET
    """The text of a refusal."""
    calls: Annotated[list[ScriptedCall], Meta(max_length=1000)] = []
    """The tool calls of the reply."""
    finish: Literal["stop", "length", "tool_calls", "content_filter", "unknown"] | UnsetType = UNSET
    """Why the reply ends. It is sent as the provider's own word. Default: `tool_calls` if there are calls, otherwise `stop`."""
    usage: ScriptedUsage | Literal["off"] = ScriptedUsage()
    """The token usage that the reply reports. `off`: it reports none."""
    chunk: Annotated[int, Meta(ge=1, le=1_000_000)] = 16
    """How many characters of a text, or of a call's arguments, each chunk of a stream contains."""
    faults: Annotated[list[ScriptedFault], Meta(max_length=100)] = []
    """The faults to send, in order, before the turn is answered correctly."""
    times: RepeatCount = 1
    """How many times in a row this turn is repeated."""


class ProviderFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A script for `agentrun provider`."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    order: Literal["conversation", "arrival"] = "conversation"
    """Which turn answers a request. `conversation`: the turn after those that the request already contains, so that parallel runs and retries do not mix. `arrival`: the next turn, whatever the request is."""
    turns: Annotated[list[ScriptedTurn], Meta(min_length=1, max_length=10_000)]
    """The replies of the model, turn by turn."""
