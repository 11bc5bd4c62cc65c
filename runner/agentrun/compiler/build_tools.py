"""Tools of a checked spec as tools of a package."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingOf
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from agentrun.compiler.json_schemas import resolve_references
from agentrun.compiler.lock import Lock, select_pinned_tools
from agentrun.compiler.python_functions import find_function
from agentrun.compiler.spec_reader import Spec
from agentrun.core import package_tools as made
from agentrun.core.package import Package
from agentrun.spec.tree import node_at
from agentrun.spec.v1 import tools as written
from agentrun.spec.v1.field_types import milliseconds, parse_size
from agentrun.wire import METADATA_HOSTS


class CompiledChild(Struct, frozen=True):
    """A compiled sub-agent and what it says about itself."""

    package: Package
    description: str | None


_HOST = re.compile(r"https?://((\[[^]/?#$]+\]|[^:/?#$]+)(?::\d+)?)(?=[/?#]|$)")


def schema_at_path(spec: Spec, *path: str | int) -> dict[str, Any]:
    node = node_at(spec.root, path)
    assert node is not None
    return resolve_references(node)


def build_auth(auth: written.AuthSpec | UnsetType) -> made.Auth | None:
    if isinstance(auth, UnsetType):
        return None
    return made.Auth(secret=auth.secret, header=auth.header, scheme=auth.scheme)


def build_tool(spec: Spec, name: str, agents: MappingOf[str, CompiledChild], lock: Lock | None) -> made.Tool:
    """One tool of a spec that was found to be right."""
    tool = spec.agent.tools[name]
    match tool:
        case written.PythonToolSpec():
            return _python(spec, name, tool)
        case written.HttpToolSpec():
            return _http(spec, name, tool)
        case written.ShellToolSpec():
            return _shell(spec, name, tool)
        case written.McpToolSpec():
            return _mcp(spec, name, tool, lock)
        case written.AgentToolSpec():
            return _agent(spec, tool, agents[name])


def _common(spec: Spec, tool: written.ToolSpec, description: str | None = None) -> dict[str, Any]:
    return {
        "description": (description or "") if tool.description is UNSET else tool.description,
        **_effect(tool),
        "timeout": milliseconds(spec.agent.limits.tool_timeout if tool.timeout is UNSET else tool.timeout),
        "visible": None if tool.visible is UNSET else tool.visible,
        "observation": tool.observation,
        "terminal": tool.terminal,
        "aborts_siblings": tool.aborts_siblings,
        "on_denied": tool.on_denied,
    }


def _effect(tool: written.ToolSpec) -> dict[str, Any]:
    """`effect` and `parallel`. A sub-agent has no effect of its own: its tools have."""
    if isinstance(tool, written.AgentToolSpec):
        return {"parallel": tool.parallel is True}
    default = "read" if isinstance(tool, written.HttpToolSpec) and tool.method in ("GET", "HEAD") else "at_most_once"
    effect = default if tool.effect is UNSET else tool.effect
    return {"effect": effect, "parallel": effect == "read" if tool.parallel is UNSET else tool.parallel}


def _arguments(spec: Spec, name: str, tool: written.ArgsToolSpec, read: dict[str, Any] | None = None) -> dict[str, Any]:
    """`args` and `actions` of a tool. Arguments that are not declared are refused unless the schema says otherwise."""
    if tool.actions is not UNSET:
        actions = {
            action: _without_extra_properties(schema_at_path(spec, "tools", name, "actions", action))
            for action in tool.actions
        }
        return {"args": _actions_schema(actions), "actions": actions}
    if tool.args is not UNSET:
        return {"args": _without_extra_properties(schema_at_path(spec, "tools", name, "args")), "actions": {}}
    return {"args": _without_extra_properties(read or {"type": "object", "properties": {}}), "actions": {}}


def _without_extra_properties(schema: dict[str, Any]) -> dict[str, Any]:
    return {"additionalProperties": False, **schema}


def _actions_schema(actions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One schema for the model: an action's name and the fields of all actions; each action's own schema decides."""
    properties: dict[str, Any] = {"action": {"type": "string", "enum": sorted(actions)}}
    for name in sorted(actions):
        for field, schema in actions[name].get("properties", {}).items():
            properties.setdefault(field, schema)
    return {"type": "object", "properties": properties, "required": ["action"], "additionalProperties": False}


def _python(spec: Spec, name: str, tool: written.PythonToolSpec) -> made.PythonTool:
    function = find_function(spec.project, tool.call)
    return made.PythonTool(
        module=function.module,
        function=function.name,
        source=function.source,
        isolation=tool.isolation,
        **_arguments(spec, name, tool, function.schema),
        **_common(spec, tool, function.description),
    )


def _http(spec: Spec, name: str, tool: written.HttpToolSpec) -> made.HttpTool:
    host = _HOST.match(tool.url)
    own = (host[1],) if host and host[2].strip("[]").lower() not in METADATA_HOSTS else ()  # those have to be listed
    return made.HttpTool(
        url=tool.url,
        method=tool.method,
        query=tool.query,
        headers=tool.headers,
        body=None if tool.body is UNSET else tool.body,
        auth=build_auth(tool.auth),
        result=None if tool.result is UNSET else tool.result,
        hosts=own if tool.hosts is UNSET else tuple(sorted(set(tool.hosts))),
        private_network=tool.private_network,
        max_bytes=parse_size(tool.max_bytes),
        **_arguments(spec, name, tool),
        **_common(spec, tool),
    )


def _shell(spec: Spec, name: str, tool: written.ShellToolSpec) -> made.ShellTool:
    return made.ShellTool(
        argv=tuple(tool.argv),
        env=tool.env,
        cwd=tool.cwd,
        stdin=None if tool.stdin is UNSET else tool.stdin,
        exits=tuple(sorted(set(tool.exits))),
        dash_args=tool.dash_args,
        grace=milliseconds(tool.grace),
        **_arguments(spec, name, tool),
        **_common(spec, tool),
    )


def _mcp(spec: Spec, name: str, tool: written.McpToolSpec, lock: Lock | None) -> made.McpTool:
    assert lock is not None, "what is not pinned is a problem"
    return made.McpTool(
        command=() if tool.command is UNSET else tuple(tool.command),
        url=None if tool.url is UNSET else tool.url,
        env=tool.env,
        headers=tool.headers,
        pinned=select_pinned_tools(tool, lock.servers[name]),
        effects=tool.effects,
        private_network=tool.private_network,
        requests=tuple(sorted(set(tool.requests))),
        start_timeout=milliseconds(tool.start_timeout),
        **_common(spec, tool),
    )


def _agent(spec: Spec, tool: written.AgentToolSpec, child: CompiledChild) -> made.AgentTool:
    open_params = {name: schema for name, schema in child.package.params.items() if name not in tool.params}
    needed = [name for name, schema in open_params.items() if "default" not in schema]
    asked = {name: schema for name, schema in open_params.items() if name in needed}
    message = {"type": "string", "description": "What the agent is to do."}
    args = {
        "type": "object",
        "properties": {**asked, "message": message},
        "required": sorted([*needed, "message"]),
        "additionalProperties": False,
    }
    return made.AgentTool(args=args, params=tool.params, **_common(spec, tool, child.description))
