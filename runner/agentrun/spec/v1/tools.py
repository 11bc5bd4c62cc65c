"""The five kinds of tools."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from agentrun.spec.v1.field_types import (
    Condition,
    Duration,
    EnvText,
    JsonSchemaField,
    Name,
    Reference,
    SecretRef,
    Size,
    TemplateText,
)

ToolEffectSpec: TypeAlias = Literal["read", "idempotent", "at_most_once"]
"""What running a call twice would do: nothing, the same once more under one key, or harm."""

ENV_NAME_PATTERN = "^[A-Za-z_][A-Za-z0-9_]{0,127}$"
HEADER_NAME_PATTERN = "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$"
HOST_PATTERN = "^(\\*\\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?$"
MCP_TOOL_PATTERN = "^[A-Za-z0-9_.*/-]{1,128}$"

EnvName: TypeAlias = Annotated[str, Meta(pattern=ENV_NAME_PATTERN)]
"""The name of an environment variable."""

HeaderName: TypeAlias = Annotated[str, Meta(pattern=HEADER_NAME_PATTERN)]
"""The name of an HTTP header."""

AllowedHost: TypeAlias = Annotated[str, Meta(pattern=HOST_PATTERN)]
"""A host, optionally with a port, or *.domain for all its sub-domains."""


class ToolSpecBase(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What tools of every kind have in common."""

    description: Annotated[str, Meta(min_length=1, max_length=4096)] | UnsetType = UNSET
    """What the model reads about the tool; about those of an MCP server before what each says itself. Absent: the docstring of a python tool or the sub-agent's own description."""
    parallel: bool | UnsetType = UNSET
    """Whether calls may run together with other calls of the same reply. Absent: yes if `effect` is `read`."""
    timeout: Duration | UnsetType = UNSET
    """How long one call may take. Absent: `limits.tool_timeout`."""
    visible: Condition | UnsetType = UNSET
    """CEL condition over params, spend, calls and session: the model is offered the tool only on turns where it is true."""
    observation: bool = False
    """Whether the tool only looks at something that changes by itself, so that repeating it is normal (a higher guard limit)."""
    terminal: bool = False
    """Whether a successful call ends the run, with its result as the answer."""
    aborts_siblings: bool = False
    """Whether a successful call cancels the other calls of the same reply."""
    on_denied: Literal["tell", "stop"] = "tell"
    """When the policy denies a call: `tell` lets the model read it, `stop` ends the run."""


class PythonToolSpec(ToolSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="python"):
    """A Python function."""

    effect: ToolEffectSpec | UnsetType = UNSET
    """What running it twice would do. Absent: `read` for http GET and HEAD, else `at_most_once`: never run again after a crash."""
    args: JsonSchemaField | UnsetType = UNSET
    """JSON Schema of the arguments (an object). For python tools absent means: read from the function's signature."""
    actions: dict[Name, JsonSchemaField] | UnsetType = UNSET
    """Instead of `args`: several actions under one tool, each with the JSON Schema of its own arguments. The model names one as `action`."""
    call: Reference
    """The function as module:function. The module is a file under the project's import roots."""
    isolation: Literal["thread", "process"] = "thread"
    """`process` runs the function in a child process that can be killed when its time is over."""


class AuthSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A credential for an HTTP endpoint, bound to the origin of the tool's URL."""

    secret: SecretRef
    """The environment variable that holds the credential, as ${NAME}."""
    header: HeaderName = "Authorization"
    """The header it is sent in."""
    scheme: Annotated[str, Meta(max_length=64)] = "Bearer"
    """What is written before it, with a space; empty for nothing."""


class HttpToolSpec(ToolSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="http"):
    """An HTTP endpoint."""

    effect: ToolEffectSpec | UnsetType = UNSET
    """What running it twice would do. Absent: `read` for http GET and HEAD, else `at_most_once`: never run again after a crash."""
    args: JsonSchemaField | UnsetType = UNSET
    """JSON Schema of the arguments (an object). For python tools absent means: read from the function's signature."""
    actions: dict[Name, JsonSchemaField] | UnsetType = UNSET
    """Instead of `args`: several actions under one tool, each with the JSON Schema of its own arguments. The model names one as `action`."""
    url: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Where the call goes. {{ args.x }} fills one path segment or query value, percent-encoded; the host is fixed text or one ${NAME}."""
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    """The HTTP method."""
    query: dict[str, TemplateText] = {}
    """Query parameters; a template in each value."""
    headers: dict[HeaderName, Annotated[str, Meta(max_length=4096)]] = {}
    """Request headers: fixed text, a template, or text with ${NAME}."""
    body: Any = UNSET
    """The request body: JSON with templates in its strings, or text. Absent: none."""
    auth: AuthSpec | UnsetType = UNSET
    """The credential to send."""
    result: Annotated[str, Meta(min_length=1, max_length=1024)] | UnsetType = UNSET
    """JMESPath expression that picks the result out of a JSON reply. Absent: the whole reply."""
    hosts: Annotated[list[AllowedHost], Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """The hosts a call may reach. Absent: the host of `url` only."""
    private_network: bool = False
    """Whether loopback and private addresses may be reached."""
    max_bytes: Size = "1MiB"
    """The largest reply that is read."""


class ShellToolSpec(ToolSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="shell"):
    """A command, run without a shell."""

    effect: ToolEffectSpec | UnsetType = UNSET
    """What running it twice would do. Absent: `read` for http GET and HEAD, else `at_most_once`: never run again after a crash."""
    args: JsonSchemaField | UnsetType = UNSET
    """JSON Schema of the arguments (an object). For python tools absent means: read from the function's signature."""
    actions: dict[Name, JsonSchemaField] | UnsetType = UNSET
    """Instead of `args`: several actions under one tool, each with the JSON Schema of its own arguments. The model names one as `action`."""
    argv: Annotated[list[TemplateText], Meta(min_length=1, max_length=256)]
    """The command and its arguments. {{ args.x }} fills a whole element and is never split or interpreted."""
    env: dict[EnvName, Annotated[str, Meta(max_length=4096)]] = {}
    """Environment variables the command sees, and no others: fixed text or ${NAME}."""
    cwd: Annotated[str, Meta(min_length=1, max_length=1024)] = "."
    """The working directory, inside the project, relative to its root."""
    stdin: TemplateText | UnsetType = UNSET
    """What the command reads on standard input. Absent: nothing."""
    exits: Annotated[list[Annotated[int, Meta(ge=0, le=255)]], Meta(min_length=1, max_length=256)] = field(
        default_factory=lambda: [0]
    )
    """The exit codes that mean success."""
    dash_args: bool = False
    """Whether an argument filled in by a template may begin with a dash (and so be read as an option)."""
    grace: Duration = "2s"
    """How long the command may take to end by itself when it is stopped, before it is killed."""


class McpToolSpec(ToolSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="mcp"):
    """The tools of an MCP server, named server.tool."""

    effect: ToolEffectSpec | UnsetType = UNSET
    """What running it twice would do. Absent: `read` for http GET and HEAD, else `at_most_once`: never run again after a crash."""
    command: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=4096)]], Meta(min_length=1, max_length=256)]
        | UnsetType
    ) = UNSET
    """The command that starts a server on standard input and output. Either this or `url`."""
    url: EnvText | UnsetType = UNSET
    """The address of a server that speaks streamable HTTP. Either this or `command`."""
    env: dict[EnvName, Annotated[str, Meta(max_length=4096)]] = {}
    """Environment variables the server sees, and no others: fixed text or ${NAME}."""
    headers: dict[HeaderName, Annotated[str, Meta(max_length=4096)]] = {}
    """Headers sent to `url`: fixed text or text with ${NAME}."""
    tools: Annotated[list[Annotated[str, Meta(pattern=MCP_TOOL_PATTERN)]], Meta(min_length=1, max_length=256)] = field(
        default_factory=lambda: ["*"]
    )
    """Which of the server's tools the agent may see: names or globs. `agentrun lock` pins them."""
    effects: dict[Annotated[str, Meta(pattern=MCP_TOOL_PATTERN)], ToolEffectSpec] = {}
    """The effect of single tools, by name or glob; hints of the server are never trusted."""
    private_network: bool = False
    """Whether `url` may be a loopback or private address."""
    requests: list[Literal["sampling", "elicitation", "roots"]] = []
    """Requests the server may make of its client: `roots` is answered with the project's folder, `elicitation` and `sampling` as by a person who says no. All others are refused."""
    start_timeout: Duration = "10s"
    """How long the server may take to answer `initialize`."""


class AgentToolSpec(ToolSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="agent"):
    """Another agent, run as a child with its own journal and a part of this agent's budget."""

    spec: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The sub-agent's spec file, relative to this document."""
    params: dict[str, Any] = {}
    """Values for the sub-agent's params, as fixed values. Params without a value here and without a default are asked of the model."""
    profile: Name | UnsetType = UNSET
    """The sub-agent's profile to use."""


ArgsToolSpec: TypeAlias = PythonToolSpec | HttpToolSpec | ShellToolSpec
"""A tool whose arguments are declared in the spec."""

ToolSpec: TypeAlias = PythonToolSpec | HttpToolSpec | ShellToolSpec | McpToolSpec | AgentToolSpec
"""A tool of one of the five kinds."""
