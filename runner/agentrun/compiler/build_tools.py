"""Build the tools of a package from the tools of a checked spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import UNSET, Struct

from agentrun.compiler.json_schemas import resolve_references
from agentrun.compiler.lock_file import Lock, select_pinned_tools
from agentrun.compiler.python_functions import PythonFunction, find_function
from agentrun.compiler.spec_reader import Spec
from agentrun.core import package_tools as made
from agentrun.core.model_texts import CHILD_MESSAGE
from agentrun.core.package import Package
from agentrun.spec.v1 import tools as written
from agentrun.spec.v1.field_types import milliseconds, parse_size
from agentrun.wire import METADATA_HOSTS

_PackagePart = TypeVar("_PackagePart")
_HOST = re.compile(r"https?://((\[[^]/?#$]+\]|[^:/?#$]+)(?::\d+)?)(?=[/?#]|$)")


NO_ARGUMENTS: dict[str, Any] = {"additionalProperties": False, "type": "object", "properties": {}}


class CompiledChild(Struct, frozen=True):
    package: Package
    description: str | None


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
            if name in convert and value is not UNSET:
                value = convert[name](value)
            fields[name] = None if value is UNSET else value
    return model(**fields)


def schema_at_path(spec: Spec, *path: str | int) -> dict[str, Any]:
    return resolve_references(spec.at(*path).existing_node)


def build_auth(auth: written.AuthSpec) -> made.Auth:
    return copy_fields(made.Auth, auth)


def _sorted_tuple(values: list[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))


def build_tool(spec: Spec, name: str, agents: Mapping[str, CompiledChild], lock: Lock | None) -> made.Tool:
    tool = spec.agent.tools[name]
    values: dict[str, Any]
    match tool:
        case written.PythonToolSpec():
            function = find_function(spec.project, tool.call)
            values = {"module": function.module, "function": function.name, "source": function.source}
            values |= _common(spec, tool, function.description) | _arguments(spec, name, tool, function.schema)
            values["defaults"] = _signature_defaults(function, values["args"]) or UNSET
            return copy_fields(made.PythonTool, tool, values)
        case written.HttpToolSpec():
            host = _HOST.match(tool.url)
            # The hosts of metadata services must be listed.
            own = (host[1],) if host and host[2].strip("[]").lower() not in METADATA_HOSTS else ()
            hosts = own if tool.hosts is UNSET else _sorted_tuple(tool.hosts)
            values = {"hosts": hosts, **_arguments(spec, name, tool), **_common(spec, tool)}
            return copy_fields(made.HttpTool, tool, values, auth=build_auth, max_bytes=parse_size)
        case written.ShellToolSpec():
            values = _arguments(spec, name, tool) | _common(spec, tool)
            return copy_fields(made.ShellTool, tool, values, argv=tuple, exits=_sorted_tuple, grace=milliseconds)
        case written.McpToolSpec():
            command = () if tool.command is UNSET else tuple(tool.command)
            pinned = select_pinned_tools(tool, lock.servers.get(name, {}) if lock else {})
            values = {"command": command, "pinned": pinned, **_common(spec, tool)}
            return copy_fields(made.McpTool, tool, values, requests=_sorted_tuple, start_timeout=milliseconds)
        case written.AgentToolSpec():
            values = {"args": agent_arguments(tool, agents[name]), **_common(spec, tool, agents[name].description)}
            return copy_fields(made.AgentTool, tool, values)


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
        actions = {action: argument_schema(spec, "tools", name, "actions", action) for action in tool.actions}
        return {"args": _actions_schema(actions), "actions": actions}
    if tool.args is not UNSET:
        return {"args": argument_schema(spec, "tools", name, "args"), "actions": {}}
    return {"args": _without_extra_properties(read) if read else NO_ARGUMENTS, "actions": {}}


def _signature_defaults(function: PythonFunction, args: dict[str, Any]) -> dict[str, Any]:
    """The defaults of optional arguments that only the function has, and not the schema."""
    properties, required = args.get("properties", {}), args.get("required", ())
    return {
        name: default
        for name, default in function.defaults.items()
        if isinstance(schema := properties.get(name), dict) and "default" not in schema and name not in required
    }


def argument_schema(spec: Spec, *path: str | int) -> dict[str, Any]:
    """Return the schema of arguments that a spec declares."""
    return _without_extra_properties(schema_at_path(spec, *path))


def _without_extra_properties(schema: dict[str, Any]) -> dict[str, Any]:
    return {"additionalProperties": False, **schema}


def _actions_schema(actions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return one schema for the model, with the fields of all actions. The schema of the action checks the call."""
    properties: dict[str, Any] = {"action": {"type": "string", "enum": sorted(actions)}}
    for name in sorted(actions):
        for field, schema in actions[name].get("properties", {}).items():
            properties.setdefault(field, schema)
    return {"type": "object", "properties": properties, "required": ["action"], "additionalProperties": False}


def agent_arguments(tool: written.AgentToolSpec, child: CompiledChild) -> dict[str, Any]:
    """Return the schema of the arguments of a sub-agent: the params without a value and without a default."""
    open_params = {name: schema for name, schema in child.package.params.items() if name not in tool.params}
    needed = [name for name, schema in open_params.items() if "default" not in schema]
    asked = {name: schema for name, schema in open_params.items() if name in needed}
    message = {"type": "string", "description": CHILD_MESSAGE}
    return {
        "type": "object",
        "properties": {**asked, "message": message},
        "required": sorted([*needed, "message"]),
        "additionalProperties": False,
    }
