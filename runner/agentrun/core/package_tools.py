"""The tools of a compiled agent."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

JsonSchema: TypeAlias = dict[str, Any]
ToolEffect: TypeAlias = Literal["read", "idempotent", "at_most_once"]


class PackagePart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all parts of a package: frozen, closed, fields by name."""


class _ToolBase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """What tools of every kind have in common."""

    description: str
    """What the model reads about the tool."""
    parallel: bool
    """Whether calls may run together with others."""
    timeout: int
    """How long one call may take, in milliseconds."""
    visible: str | None
    """CEL condition under which the model is offered the tool. Null: always."""
    observation: bool
    """Whether repeating it is normal."""
    terminal: bool
    """Whether a successful call ends the run."""
    aborts_siblings: bool
    """Whether a successful call cancels its siblings."""
    on_denied: Literal["tell", "stop"]
    """What a denial does."""


class PythonTool(_ToolBase, frozen=True, tag="python"):
    """A Python function."""

    effect: ToolEffect
    """What running it twice would do."""
    args: JsonSchema
    """JSON Schema of the arguments, without references."""
    actions: dict[str, JsonSchema]
    """The arguments of each action, when the tool has actions."""
    module: str
    """The module."""
    function: str
    """The function in it."""
    source: str
    """Hash of the module's source."""
    isolation: Literal["thread", "process"]
    """Where it runs."""


class Auth(PackagePart, frozen=True):
    """A credential for an HTTP endpoint."""

    secret: str
    """The environment variable as ${NAME}."""
    header: str
    """The header it is sent in."""
    scheme: str
    """What is written before it."""


class HttpTool(_ToolBase, frozen=True, tag="http"):
    """An HTTP endpoint."""

    effect: ToolEffect
    """What running it twice would do."""
    args: JsonSchema
    """JSON Schema of the arguments, without references."""
    actions: dict[str, JsonSchema]
    """The arguments of each action, when the tool has actions."""
    url: str
    """Where the call goes, with templates."""
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
    """JMESPath expression that picks the result."""
    hosts: tuple[str, ...]
    """The hosts a call may reach."""
    private_network: bool
    """Whether loopback and private addresses may be reached."""
    max_bytes: int
    """The largest reply that is read."""


class ShellTool(_ToolBase, frozen=True, tag="shell"):
    """A command, run without a shell."""

    effect: ToolEffect
    """What running it twice would do."""
    args: JsonSchema
    """JSON Schema of the arguments, without references."""
    actions: dict[str, JsonSchema]
    """The arguments of each action, when the tool has actions."""
    argv: tuple[str, ...]
    """The command and its arguments, with templates."""
    env: dict[str, str]
    """Environment variables the command sees."""
    cwd: str
    """The working directory, relative to the project's root."""
    stdin: str | None
    """What it reads on standard input, with templates."""
    exits: tuple[int, ...]
    """The exit codes that mean success."""
    dash_args: bool
    """Whether a filled-in argument may begin with a dash."""
    grace: int
    """How long it may take to end by itself, in milliseconds."""


class PinnedTool(PackagePart, frozen=True):
    """One tool of an MCP server as it was when the spec was locked. The model reads this, never what a server says."""

    description: str
    """What the model reads about it."""
    args: JsonSchema
    """JSON Schema of its arguments, without references."""
    digest: str
    """Hash of the tool's name, description and schema as the server gave them."""


class McpTool(_ToolBase, frozen=True, tag="mcp"):
    """The tools of an MCP server."""

    effect: ToolEffect
    """What running it twice would do."""
    command: tuple[str, ...]
    """The command that starts the server; empty when `url` is used."""
    url: str | None
    """The server's address."""
    env: dict[str, str]
    """Environment variables the server sees."""
    headers: dict[str, str]
    """Headers sent to `url`."""
    pinned: dict[str, PinnedTool]
    """The tools that the agent may see, by their names on the server."""
    effects: dict[str, ToolEffect]
    """The effect of single tools."""
    private_network: bool
    """Whether `url` may be a private address."""
    requests: tuple[str, ...]
    """Requests the server may make of its client."""
    start_timeout: int
    """How long it may take to answer `initialize`, in milliseconds."""


class AgentTool(_ToolBase, frozen=True, tag="agent"):
    """Another agent; its package is in the section `agents`."""

    args: JsonSchema
    """JSON Schema of the arguments, made of the sub-agent's open params."""
    params: dict[str, Any]
    """Fixed values for its params."""


Tool: TypeAlias = PythonTool | HttpTool | ShellTool | McpTool | AgentTool
