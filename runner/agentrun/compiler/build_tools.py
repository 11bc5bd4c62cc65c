"""Build the tools of a package from the tools of a checked spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import UNSET, Struct

from agentrun.compiler.json_schemas import resolve_references
from agentrun.compiler.lock import Lock, select_pinned_tools
from agentrun.compiler.python_functions import find_function
from agentrun.compiler.spec_reader import Spec
from agentrun.core import package_tools as made
from agentrun.core.package import Package
from agentrun.spec.v1 import tools as written
from agentrun.spec.v1.field_types import milliseconds, parse_size
from agentrun.wire import METADATA_HOSTS


class CompiledChild(Struct, frozen=True):
    package: Package
    description: str | None


_PackagePart = TypeVar("_PackagePart")

_HOST = re.compile(r"https?://((\[[^]/?#$]+\]|[^:/?#$]+)(?::\d+)?)(?=[/?#]|$)")


def copy_fields(
    model: type[_PackagePart],
    spec: Struct,
    values: Mapping[str, Any] = {},  # never changed
    **convert: Callable[[Any], Any],
) -> _PackagePart:
    """Build a part of a package. Each field is from `values` or from the spec, converted; an unset field is None."""
    fields = dict(values)
    for name in spec.__struct_fields__:
        if name in model.__struct_fields__ and name not in fields:  # type: ignore[attr-defined]  # a struct
            value = getattr(spec, name)
            fields[name] = None if value is UNSET else convert[name](value) if name in convert else value
    return model(**fields)


def schema_at_path(spec: Spec, *path: str | int) -> dict[str, Any]:
    return resolve_references(spec.at(*path).existing_node)


def build_auth(auth: written.AuthSpec) -> made.Auth:
    return copy_fields(made.Auth, auth)


def _sorted_tuple(values: list[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))


def build_tool(spec: Spec, name: str, agents: Mapping[str, CompiledChild], lock: Lock | None) -> made.Tool:
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
    }


def _effect(tool: written.ToolSpec) -> dict[str, Any]:
    """Return `effect` and `parallel`. A sub-agent has no effect of its own, only its tools have."""
    if isinstance(tool, written.AgentToolSpec):
        return {"parallel": tool.parallel is True}
    default = "read" if isinstance(tool, written.HttpToolSpec) and tool.method in ("GET", "HEAD") else "at_most_once"
    effect = default if tool.effect is UNSET else tool.effect
    return {"effect": effect, "parallel": effect == "read" if tool.parallel is UNSET else tool.parallel}


def _arguments(spec: Spec, name: str, tool: written.ArgsToolSpec, read: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return `args` and `actions` of a tool. Undeclared arguments are refused unless the schema allows them."""
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
    """Return one schema for the model, with the fields of all actions. The schema of the action checks the call."""
    properties: dict[str, Any] = {"action": {"type": "string", "enum": sorted(actions)}}
    for name in sorted(actions):
        for field, schema in actions[name].get("properties", {}).items():
            properties.setdefault(field, schema)
    return {"type": "object", "properties": properties, "required": ["action"], "additionalProperties": False}


def _python(spec: Spec, name: str, tool: written.PythonToolSpec) -> made.PythonTool:
    function = find_function(spec.project, tool.call)
    source = {"module": function.module, "function": function.name, "source": function.source}
    common = _common(spec, tool, function.description)
    return copy_fields(made.PythonTool, tool, source | common | _arguments(spec, name, tool, function.schema))


def _http(spec: Spec, name: str, tool: written.HttpToolSpec) -> made.HttpTool:
    host = _HOST.match(tool.url)
    own = (host[1],) if host and host[2].strip("[]").lower() not in METADATA_HOSTS else ()  # those must be listed
    hosts = own if tool.hosts is UNSET else _sorted_tuple(tool.hosts)
    values = {"hosts": hosts, **_arguments(spec, name, tool), **_common(spec, tool)}
    return copy_fields(made.HttpTool, tool, values, auth=build_auth, max_bytes=parse_size)


def _shell(spec: Spec, name: str, tool: written.ShellToolSpec) -> made.ShellTool:
    values = _arguments(spec, name, tool) | _common(spec, tool)
    return copy_fields(made.ShellTool, tool, values, argv=tuple, exits=_sorted_tuple, grace=milliseconds)


def _mcp(spec: Spec, name: str, tool: written.McpToolSpec, lock: Lock | None) -> made.McpTool:
    assert lock is not None, "an unpinned server is a problem"
    command = () if tool.command is UNSET else tuple(tool.command)
    values = {"command": command, "pinned": select_pinned_tools(tool, lock.servers[name]), **_common(spec, tool)}
    return copy_fields(made.McpTool, tool, values, requests=_sorted_tuple, start_timeout=milliseconds)


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
    return copy_fields(made.AgentTool, tool, {"args": args, **_common(spec, tool, child.description)})
