"""Match names with patterns, and find the tools and hooks of a package.

Rule 1  A name without `*` matches exactly. `*` matches any text, also an empty one. Matching takes linear time.
Rule 2  What a tool or sink starts and which variables it needs is found by the names of its fields (`argv`, `command`,
        `env`, `headers`, `auth`, `url`), so that it is found for every kind that has such a field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentrun.core.facts import HookPoint
from agentrun.core.package import Hook, Package, Sink
from agentrun.core.package_tools import AgentTool, JsonSchema, McpTool, Tool, ToolEffect

_EFFECTS_BY_HARM: tuple[ToolEffect, ...] = ("read", "idempotent", "at_most_once")


def matches_pattern(target: str, name: str) -> bool:
    if "*" not in target:
        return target == name
    first, *inner = target.split("*")
    last = inner.pop()
    at, end = len(first), len(name) - len(last)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in inner:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def find_tool(package: Package, name: str) -> Tool | None:
    """The tool with a name, as the model writes it. The tools of an MCP server are named server.tool."""
    tool = package.tools.get(name)
    if tool is not None:
        return None if isinstance(tool, McpTool) else tool
    server, _, inner = name.partition(".")
    tool = package.tools.get(server)
    return tool if isinstance(tool, McpTool) and inner in tool.pinned else None


def hooks_at(package: Package, point: HookPoint) -> tuple[Hook, ...]:
    hooks = [hook for hook in package.hooks if hook.at == point]
    return tuple(sorted(hooks, key=lambda hook: (hook.order, hook.id))) if hooks else ()


def argument_schemas(tools: Mapping[str, Tool]) -> dict[str, JsonSchema]:
    schemas: dict[str, JsonSchema] = {}
    for name, tool in tools.items():
        if isinstance(tool, McpTool):
            schemas |= {f"{name}.{inner}": pinned.args for inner, pinned in tool.pinned.items()}
        else:
            schemas[name] = tool.args
    return schemas


def tool_effect(tool: Tool, name: str) -> ToolEffect:
    if isinstance(tool, AgentTool):
        return "idempotent"  # it has its own journal and continues where that ends
    if not isinstance(tool, McpTool):
        return tool.effect
    inner = name.partition(".")[2]
    found = [effect for pattern, effect in tool.effects.items() if matches_pattern(pattern, inner)]
    return max(found, key=_EFFECTS_BY_HARM.index) if found else tool.effect


def tool_command(tool: Tool) -> str | None:
    command: tuple[str, ...] = getattr(tool, "argv", ()) or getattr(tool, "command", ())
    return command[0] if command else None


def credential_texts(part: Tool | Sink) -> Iterator[str]:
    """The texts of a tool or a sink whose environment variables may be secrets: all but addresses."""
    yield from getattr(part, "headers", {}).values()
    if getattr(part, "auth", None) is not None:
        yield part.auth.secret  # type: ignore[union-attr]  # only some kinds have the field
    yield from getattr(part, "env", {}).values()
