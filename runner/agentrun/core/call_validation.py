"""Whether a call can be made at all: before hooks, policy and people are asked.

Rule 1  The order: known, visible this turn, arguments that parse, arguments that are valid.
Rule 2  What is wrong is told to the model in words it can act on: the tool, the action, the field.
Rule 3  Nothing is repaired. A call that cannot be made is not made.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from agentrun.canonical_json import sorted_json
from agentrun.core.budget import UNCOUNTED_STATUSES, run_limit
from agentrun.core.condition import is_met
from agentrun.core.effects import OfferedTool
from agentrun.core.facts import CallRefused
from agentrun.core.json_validation import Invalid, Valid, parse_strict_json, schema_validator
from agentrun.core.package import Package
from agentrun.core.package_lookup import find_tool
from agentrun.core.package_tools import AgentTool, McpTool, Tool
from agentrun.core.policy import condition_variables
from agentrun.core.state import CallState, State

MAX_ARGUMENT_BYTES = 1024 * 1024
MAX_ARGUMENT_DEPTH = 64
MAX_REFUSAL_LENGTH = 300
MAX_NAMED_TOOLS = 100
"""Of tools that the model is reminded of."""


def parse_arguments(arguments: str) -> dict[str, Any] | None:
    """The arguments as a model wrote them; None when they are no JSON object. Nothing at all is an empty object."""
    if not arguments.strip():
        return {}
    found = parse_strict_json(arguments, max_bytes=MAX_ARGUMENT_BYTES, max_depth=MAX_ARGUMENT_DEPTH)
    return found.value if isinstance(found, Valid) and isinstance(found.value, dict) else None


def hidden_tools(package: Package, state: State) -> tuple[str, ...]:
    """The tools that the model is not offered now. A condition that cannot be evaluated hides."""
    conditions = {name: tool.visible for name, tool in package.tools.items() if tool.visible is not None}
    if not conditions:
        return ()
    variables = condition_variables(state)
    return tuple(sorted(name for name, when in conditions.items() if not is_met(when, variables)))


def offered_tools(package: Package, hidden: tuple[str, ...]) -> tuple[OfferedTool, ...]:
    """The tools as the model sees them, by name."""
    offered: list[OfferedTool] = []
    for name, tool in package.tools.items():
        if name in hidden:
            continue
        if isinstance(tool, McpTool):
            for inner, pinned in tool.pinned.items():
                words = "\n\n".join(filter(None, (tool.description, pinned.description)))
                offered.append(OfferedTool(f"{name}.{inner}", words, pinned.args))
        else:
            offered.append(OfferedTool(name, tool.description, tool.args))
    return tuple(sorted(offered, key=lambda tool: tool.name))


def validate_call(package: Package, state: State, call: CallState) -> CallRefused | None:
    """Why a call cannot be made."""
    name, id = call.call.tool, call.call.id
    tool = find_tool(package, name)
    if tool is None:
        known = [each.name for each in offered_tools(package, state.requests.hidden)]
        more = f" and {len(known) - MAX_NAMED_TOOLS} more" if len(known) > MAX_NAMED_TOOLS else ""
        message = f"there is no tool {name!r}; tools: {', '.join(known[:MAX_NAMED_TOOLS]) or 'none'}{more}"
        return _refusal(id, "tool.unknown", message, {"tool": name})
    if name in state.requests.hidden or name.partition(".")[0] in state.requests.hidden:
        return _refusal(id, "tool.hidden", f"the tool {name!r} is not available now", {"tool": name})
    if call.arguments is None:
        why = parse_strict_json(call.call.arguments, max_bytes=MAX_ARGUMENT_BYTES, max_depth=MAX_ARGUMENT_DEPTH)
        said = why.errors[0].replace("the answer", "the text") if isinstance(why, Invalid) else "it is not an object"
        message = f"the arguments of {name!r} are not a JSON object: {said}"
        return _refusal(id, "tool.invalid_arguments", message, {"tool": name})
    if isinstance(tool, AgentTool) and _nesting_depth(state) >= package.limits.depth:
        message = f"{name!r} would be nested deeper than {package.limits.depth} agents"
        return _refusal(
            id, "tool.invalid_call", message, {"tool": name, "reason": "depth", "limit": package.limits.depth}
        )
    if isinstance(tool, AgentTool) and _count_runs(package, state, call) >= (limit := run_limit(package, state)):
        message = f"{name!r} would be one more than the {limit} agents that may be started"
        return _refusal(id, "tool.invalid_call", message, {"tool": name, "reason": "runs", "limit": limit})
    return _validate_arguments(id, name, tool, call.arguments)


def _count_runs(package: Package, state: State, call: CallState) -> int:
    """Runs that were started, and those that calls before this one will start."""
    before = itertools.takewhile(lambda each: each.call.id != call.call.id, state.calls)
    to_begin = (
        each.status in UNCOUNTED_STATUSES and not each.counted and each.call.tool in package.agents for each in before
    )
    return state.meter.runs + sum(to_begin)


def _nesting_depth(state: State) -> int:
    return state.started.parent.depth if state.started.parent else 0


def _validate_arguments(id: str, name: str, tool: Tool, arguments: Mapping[str, Any]) -> CallRefused | None:
    actions = {} if isinstance(tool, McpTool | AgentTool) else tool.actions
    schema = tool.pinned[name.partition(".")[2]].args if isinstance(tool, McpTool) else tool.args
    value, action = dict(arguments), None
    if actions:
        action = value.pop("action", None)
        if action is None:
            return _missing_field(id, name, None, "action")
        if not isinstance(action, str) or action not in actions:
            message = f"{name!r} has no such action; actions: {', '.join(sorted(actions))}"
            return _refusal(id, "tool.invalid_arguments", message, {"tool": name, "field": "action"})
        schema = actions[action]
    for field in schema.get("required", ()):
        if field not in value:
            return _missing_field(id, name, action, field)
    judge = schema_validator(sorted_json(schema))
    if judge.is_valid(value):
        return None
    error = next(judge.iter_errors(value))
    field = str(error.instance_path[0]) if error.instance_path else None
    where = "/".join(str(step) for step in error.instance_path) or "the arguments"
    message = f"the arguments of {_action_name(name, action)} are not valid: {where}: {error.message}"[
        :MAX_REFUSAL_LENGTH
    ]
    return _refusal(id, "tool.invalid_arguments", message, {"tool": name, "action": action, "field": field})


def _missing_field(id: str, name: str, action: str | None, field: str) -> CallRefused:
    message = f"{_action_name(name, action)} needs {field!r}"
    return _refusal(id, "tool.missing_field", message, {"tool": name, "action": action, "field": field})


def _action_name(name: str, action: str | None) -> str:
    return f"{name}.{action}" if action else name


def _refusal(id: str, code: str, message: str, fields: dict[str, Any]) -> CallRefused:
    return CallRefused(
        id, code, f"{code}: {message}", {key: value for key, value in fields.items() if value is not None}
    )
