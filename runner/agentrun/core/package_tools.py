"""The tools of a compiled agent."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from msgspec import UNSET, Struct, UnsetType

JsonSchema: TypeAlias = dict[str, Any]
ToolEffect: TypeAlias = Literal["read", "idempotent", "at_most_once"]


class PackagePart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all parts of a package: frozen, closed, fields by name."""


class _ToolBase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """What tools of every kind have in common."""

    description: str
    """The description that the model reads."""
    parallel: bool
    """Whether calls may run in parallel with others."""
    timeout: int
    """How long one call may take, in milliseconds."""
    visible: str | None
    """CEL condition under which the tool is offered to the model. Null: always."""
    observation: bool
    """Whether repeated calls are normal. Guards then use a higher limit."""
    terminal: bool
    """Whether a successful call ends the run."""
    aborts_siblings: bool
    """Whether a successful call cancels the other calls of its reply."""
    on_denied: Literal["tell", "stop"]
    """What happens when a call is denied: the model reads it, or the run stops."""


class PythonTool(_ToolBase, frozen=True, tag="python"):
    """A Python function."""

    effect: ToolEffect
    """What happens if a call runs twice."""
    args: JsonSchema
    """JSON Schema of the arguments, without references."""
    actions: dict[str, JsonSchema]
    """The arguments of each action, if the tool has actions."""
    module: str
    """The module."""
    function: str
    """The function in it."""
    source: str
    """Hash of the module's source."""
    isolation: Literal["thread", "process"]
    """Where it runs: in a thread, or in its own process."""
    defaults: dict[str, Any] | UnsetType = UNSET
    """Defaults of optional arguments that only the signature of the function has, and not the schema."""
    env: dict[str, str] | UnsetType = UNSET
    """The environment variables of its own process, besides those that programs need."""


class Auth(PackagePart, frozen=True):
    """A credential for an HTTP endpoint."""

    secret: str
    """The environment variable as ${NAME}."""
    header: str
    """The header that contains it."""
    scheme: str
    """The word before it, such as `Bearer`."""


class HttpTool(_ToolBase, frozen=True, tag="http"):
    """An HTTP endpoint."""

    effect: ToolEffect
    """What happens if a call runs twice."""
    args: JsonSchema
    """JSON Schema of the arguments, without references."""
    actions: dict[str, JsonSchema]
    """The arguments of each action, if the tool has actions."""
    url: str
    """The address, with templates."""
    method: str
    """The HTTP method."""
    query: dict[str, str]
    """Query parameters, with templates."""
    headers: dict[str, str]
    """Request headers, with templates or ${NAME}."""
    body: Any
    """The request body, with templates. Null: none."""
    auth: Auth | None
    """The credential to send."""
    result: str | None
    """JMESPath expression that selects the result."""
    hosts: tuple[str, ...]
    """The hosts that a call may reach."""
    private_network: bool
    """Whether loopback and private addresses may be reached."""
    max_bytes: int
    """The size limit of a reply."""


class ShellTool(_ToolBase, frozen=True, tag="shell"):
    """A command, run without a shell."""

    effect: ToolEffect
    """What happens if a call runs twice."""
    args: JsonSchema
    """JSON Schema of the arguments, without references."""
    actions: dict[str, JsonSchema]
    """The arguments of each action, if the tool has actions."""
    argv: tuple[str, ...]
    """The command and its arguments, with templates."""
    env: dict[str, str]
    """The environment variables of the command."""
    cwd: str
    """The working directory, relative to the project root."""
    stdin: str | None
    """The text on standard input, with templates."""
    exits: tuple[int, ...]
    """The exit codes that mean success."""
    dash_args: bool
    """Whether a rendered argument may begin with a dash."""
    grace: int
    """Milliseconds between asking the command to end and killing it."""


class PinnedTool(PackagePart, frozen=True):
    """One tool of an MCP server, as it was when the spec was locked. The model reads this, never the server's text."""

    description: str
    """The description that the model reads."""
    args: JsonSchema
    """JSON Schema of its arguments, without references."""
    digest: str
    """Hash of the name, description and schema that the server reported."""


class McpTool(_ToolBase, frozen=True, tag="mcp"):
    """The tools of an MCP server."""

    effect: ToolEffect
    """What happens if a call runs twice."""
    command: tuple[str, ...]
    """The command that starts the server. Empty if `url` is used."""
    url: str | None
    """The address of the server."""
    env: dict[str, str]
    """The environment variables of the server."""
    headers: dict[str, str]
    """Headers sent to `url`."""
    pinned: dict[str, PinnedTool]
    """The tools that the agent may use, by their names on the server."""
    effects: dict[str, ToolEffect]
    """The effect of single tools."""
    private_network: bool
    """Whether `url` may be a private address."""
    requests: tuple[str, ...]
    """The requests that the server may send to its client."""
    start_timeout: int
    """How long the server may take to answer `initialize`, in milliseconds."""


class AgentTool(_ToolBase, frozen=True, tag="agent"):
    """A sub-agent. Its package is in the section `agents`."""

    args: JsonSchema
    """JSON Schema of the arguments: the params of the sub-agent that are not fixed."""
    params: dict[str, Any]
    """Fixed values for its params."""


Tool: TypeAlias = PythonTool | HttpTool | ShellTool | McpTool | AgentTool

TOOL_KINDS: tuple[str, ...] = tuple(tool.__struct_config__.tag for tool in get_args(Tool) if tool is not AgentTool)
"""The kinds of tools that need an executor: all but sub-agents."""
