"""Tools: python, http, shell, mcp and agent."""

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
"""What happens if a call runs twice: nothing, the same effect once (with an idempotency key), or harm."""

ENV_NAME_PATTERN = "^[A-Za-z_][A-Za-z0-9_]{0,127}$"
HEADER_NAME_PATTERN = "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$"
HOST_PATTERN = "^(\\*\\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?$"
MCP_TOOL_PATTERN = "^[A-Za-z0-9_.*/-]{1,128}$"

EnvName: TypeAlias = Annotated[str, Meta(pattern=ENV_NAME_PATTERN)]
HeaderName: TypeAlias = Annotated[str, Meta(pattern=HEADER_NAME_PATTERN)]
AllowedHost: TypeAlias = Annotated[str, Meta(pattern=HOST_PATTERN)]
TOOL_TEMPLATE_KEYS: dict[str, tuple[str, ...]] = {
    "http": ("url", "query", "headers", "body"),
    "shell": ("argv", "stdin"),
}
"""The keys of each kind that are templates, which can use `args` too."""


class ToolSpecBase(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Fields that every kind of tool has."""

    description: Annotated[str, Meta(min_length=1, max_length=4096)] | UnsetType = UNSET
    """The description that the model reads. For an MCP server it is put before the description of each of its tools. Default: the docstring of a python tool, or the sub-agent's own description."""
    parallel: bool | UnsetType = UNSET
    """If true, calls may run in parallel with other calls of the same reply. Default: true if `effect` is `read`."""
    timeout: Duration | UnsetType = UNSET
    """The time limit for one call. Default: `limits.tool_timeout`."""
    visible: Condition | UnsetType = UNSET
    """A CEL condition over params, spend, calls and session. The tool is offered to the model only on turns where it is true."""
    observation: bool = False
    """If true, the tool reads something that changes by itself. Repeated calls are normal, so the guards use the higher limit `guards.observation`."""
    terminal: bool = False
    """If true, a successful call ends the run, and its result is the answer."""
    aborts_siblings: bool = False
    """If true, a successful call cancels the other calls of the same reply."""
    on_denied: Literal["tell", "stop"] = "tell"
    """When the policy denies a call: `tell` reports it to the model, `stop` ends the run."""


class PythonToolSpec(ToolSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="python"):
    """A Python function."""

    effect: ToolEffectSpec | UnsetType = UNSET
    """What happens if a call runs twice. Default: `read` for HTTP GET and HEAD, otherwise `at_most_once` (never run again after a crash)."""
    args: JsonSchemaField | UnsetType = UNSET
    """JSON Schema of the arguments (an object). Default for python tools: generated from the function's signature."""
    actions: dict[Name, JsonSchemaField] | UnsetType = UNSET
    """Instead of `args`: several actions in one tool, each with a JSON Schema of its own arguments. The model selects one with `action`."""
    call: Reference
    """The function, as module:function. The module must be a file under the project's import roots."""
    isolation: Literal["thread", "process"] = "thread"
    """`process` runs the function in a child process that can be killed on a timeout."""
    env: dict[EnvName, Annotated[str, Meta(max_length=4096)]] = {}
    """With `isolation: process`: environment variables of the process, as fixed text or ${NAME}. Besides them it gets only those that programs need, such as PATH and HOME."""


class AuthSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A credential for an HTTP endpoint. It is sent only to the origin of the URL."""

    secret: SecretRef
    """The environment variable with the credential, as ${NAME}."""
    header: HeaderName = "Authorization"
    """The header to send it in."""
    scheme: Annotated[str, Meta(max_length=64)] = "Bearer"
    """The word before the credential in the header. Empty: only the credential is sent."""


class HttpToolSpec(ToolSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="http"):
    """An HTTP endpoint."""

    effect: ToolEffectSpec | UnsetType = UNSET
    """What happens if a call runs twice. Default: `read` for HTTP GET and HEAD, otherwise `at_most_once` (never run again after a crash)."""
    args: JsonSchemaField | UnsetType = UNSET
    """JSON Schema of the arguments (an object). Default for python tools: generated from the function's signature."""
    actions: dict[Name, JsonSchemaField] | UnsetType = UNSET
    """Instead of `args`: several actions in one tool, each with a JSON Schema of its own arguments. The model selects one with `action`."""
    url: Annotated[str, Meta(min_length=1, max_length=4096)]
    """The URL to call. {{ args.x }} fills in one path segment or query value, percent-encoded. The host is fixed text or one ${NAME}."""
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    """The HTTP method."""
    query: dict[str, TemplateText] = {}
    """Query parameters. Each value is a template."""
    headers: dict[HeaderName, Annotated[str, Meta(max_length=4096)]] = {}
    """Request headers: fixed text, a template, or text with ${NAME}."""
    body: Any = UNSET
    """The request body: JSON with templates in its strings, or text. Default: no body."""
    auth: AuthSpec | UnsetType = UNSET
    """The credential to send."""
    result: Annotated[str, Meta(min_length=1, max_length=1024)] | UnsetType = UNSET
    """A JMESPath expression that selects the result from a JSON reply. Default: the whole reply."""
    hosts: Annotated[list[AllowedHost], Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """The hosts that a call may connect to. Default: only the host of `url`."""
    private_network: bool = False
    """If true, loopback and private addresses are allowed."""
    max_bytes: Size = "1MiB"
    """The maximum size of the reply."""


class ShellToolSpec(ToolSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="shell"):
    """A command, run without a shell."""

    effect: ToolEffectSpec | UnsetType = UNSET
    """What happens if a call runs twice. Default: `read` for HTTP GET and HEAD, otherwise `at_most_once` (never run again after a crash)."""
    args: JsonSchemaField | UnsetType = UNSET
    """JSON Schema of the arguments (an object). Default for python tools: generated from the function's signature."""
    actions: dict[Name, JsonSchemaField] | UnsetType = UNSET
    """Instead of `args`: several actions in one tool, each with a JSON Schema of its own arguments. The model selects one with `action`."""
    argv: Annotated[list[TemplateText], Meta(min_length=1, max_length=256)]
    """The command and its arguments. {{ args.x }} fills in a whole element; it is never split or interpreted."""
    env: dict[EnvName, Annotated[str, Meta(max_length=4096)]] = {}
    """The environment variables of the command: fixed text or ${NAME}. It gets no others."""
    cwd: Annotated[str, Meta(min_length=1, max_length=1024)] = "."
    """The working directory, relative to the project root. It must be inside the project."""
    stdin: TemplateText | UnsetType = UNSET
    """The standard input of the command. Default: empty."""
    exits: Annotated[list[Annotated[int, Meta(ge=0, le=255)]], Meta(min_length=1, max_length=256)] = field(
        default_factory=lambda: [0]
    )
    """The exit codes that mean success."""
    dash_args: bool = False
    """If true, an argument that a template fills in may begin with a dash, so the command may read it as an option."""
    grace: Duration = "2s"
    """How long the command has to exit after it is asked to stop. After that it is killed."""


class McpToolSpec(ToolSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="mcp"):
    """The tools of an MCP server, named server.tool."""

    effect: ToolEffectSpec | UnsetType = UNSET
    """What happens if a call runs twice. Default: `read` for HTTP GET and HEAD, otherwise `at_most_once` (never run again after a crash)."""
    command: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=4096)]], Meta(min_length=1, max_length=256)]
        | UnsetType
    ) = UNSET
    """The command that starts a server with the stdio transport. Either this or `url`."""
    url: EnvText | UnsetType = UNSET
    """The URL of a server with the streamable HTTP transport. Either this or `command`."""
    env: dict[EnvName, Annotated[str, Meta(max_length=4096)]] = {}
    """The environment variables of the server: fixed text or ${NAME}. It gets no others."""
    headers: dict[HeaderName, Annotated[str, Meta(max_length=4096)]] = {}
    """Headers sent to `url`: fixed text or text with ${NAME}."""
    tools: Annotated[list[Annotated[str, Meta(pattern=MCP_TOOL_PATTERN)]], Meta(min_length=1, max_length=256)] = field(
        default_factory=lambda: ["*"]
    )
    """The tools of the server that the agent can use: names or globs. `agentrun lock` pins them."""
    effects: dict[Annotated[str, Meta(pattern=MCP_TOOL_PATTERN)], ToolEffectSpec] = {}
    """The effect of single tools, by name or glob. Hints from the server are never trusted."""
    private_network: bool = False
    """If true, `url` may be a loopback or private address."""
    requests: list[Literal["sampling", "elicitation", "roots"]] = []
    """Requests that the server may send to the client. `roots` is answered with the project folder, `elicitation` and `sampling` are declined. All other requests get an error."""
    start_timeout: Duration = "10s"
    """The time limit for the answer to `initialize`."""


class AgentToolSpec(ToolSpecBase, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="agent"):
    """Another agent, run as a sub-agent with its own journal and a part of this agent's budget."""

    spec: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The sub-agent's spec file, relative to this document."""
    params: dict[str, Any] = {}
    """Fixed values for the sub-agent's params. The model must provide the params that have no value here and no default."""
    profile: Name | UnsetType = UNSET
    """The profile of the sub-agent to use."""


ArgsToolSpec: TypeAlias = PythonToolSpec | HttpToolSpec | ShellToolSpec

ToolSpec: TypeAlias = PythonToolSpec | HttpToolSpec | ShellToolSpec | McpToolSpec | AgentToolSpec
