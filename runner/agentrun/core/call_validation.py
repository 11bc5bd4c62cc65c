"""Whether a tool call is valid. This is checked before hooks, policy and people are asked. Nothing is repaired.

Rule 1  The order: the tool exists, it is offered in this turn, the arguments parse, defaults are filled in, the
        arguments are valid.
Rule 2  The model reads what is wrong in words it can act on: the tool, the action, the argument.
Rule 3  Objects that are present get their defaults at every depth, including in lists. A missing object is not created,
        unless it has a default of its own. `anyOf`, `oneOf` and `allOf` are not searched for defaults.
Rule 4  A default of null is not filled in: it means that there is no value, and `has(args.x)` can ask for that. Nor is
        a default that does not match its own schema.
Rule 5  The signature of a Python function may have further defaults. A default of the schema comes first, and what the
        schema requires is not filled in.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from agentrun.canonical_json import sorted_json
from agentrun.core import model_texts as texts
from agentrun.core.budget import UNCOUNTED_STATUSES, run_limit
from agentrun.core.condition import is_met
from agentrun.core.effects import OfferedTool
from agentrun.core.facts import ArgumentsCompleted, CallRefused
from agentrun.core.json_validation import Invalid, Valid, ValidationResult, parse_strict_json, schema_validator
from agentrun.core.package import Package, find_tool
from agentrun.core.package_tools import AgentTool, JsonSchema, McpTool, PythonTool, Tool
from agentrun.core.policy import condition_variables
from agentrun.core.state import CallState, State

MAX_ARGUMENT_BYTES = 1024 * 1024
MAX_ARGUMENT_DEPTH = 64
MAX_REFUSAL_LENGTH = 300


def parse_arguments(arguments: str) -> dict[str, Any] | None:
    """Parse the arguments of a call. None: they are not a JSON object. An empty text is an empty object."""
    if not arguments.strip():
        return {}
    result = _parse(arguments)
    return result.value if isinstance(result, Valid) and isinstance(result.value, dict) else None


def _parse(arguments: str) -> ValidationResult:
    return parse_strict_json(arguments, max_bytes=MAX_ARGUMENT_BYTES, max_depth=MAX_ARGUMENT_DEPTH)


def hidden_tools(package: Package, state: State) -> tuple[str, ...]:
    """The tools that the model is not offered now. A condition that cannot be evaluated hides its tool."""
    conditions = {name: tool.visible for name, tool in package.tools.items() if tool.visible is not None}
    if not conditions:
        return ()
    variables = condition_variables(state)
    return tuple(sorted(name for name, when in conditions.items() if not is_met(when, variables)))


def offered_tools(package: Package, hidden: tuple[str, ...]) -> tuple[OfferedTool, ...]:
    offered: list[OfferedTool] = []
    for name, tool in package.tools.items():
        if name in hidden:
            continue
        if isinstance(tool, McpTool):
            for inner, pinned in tool.pinned.items():
                description = "\n\n".join(filter(None, (tool.description, pinned.description)))
                offered.append(OfferedTool(f"{name}.{inner}", description, pinned.args))
        else:
            offered.append(OfferedTool(name, tool.description, tool.args))
    return tuple(sorted(offered, key=lambda tool: tool.name))


def validate_call(package: Package, state: State, call: CallState) -> CallRefused | ArgumentsCompleted | None:
    """The refusal of an invalid call, or the arguments of a valid one if defaults are filled in."""
    name, depth = call.tool, package.limits.depth
    tool = find_tool(package, name)
    if tool is None:
        offered = [each.name for each in offered_tools(package, state.requests.hidden)]
        return refuse(call, "tool.unknown", texts.unknown_tool(name, offered))
    if name in state.requests.hidden or name.partition(".")[0] in state.requests.hidden:
        return refuse(call, "tool.hidden", texts.HIDDEN_TOOL.format(name))
    if call.arguments is None:
        result = _parse(call.call.arguments)
        reason = result.errors[0] if isinstance(result, Invalid) else texts.NOT_AN_OBJECT
        return refuse(call, "tool.invalid_arguments", texts.ARGUMENTS_NOT_AN_OBJECT.format(name, reason))
    parent = state.started.parent
    if isinstance(tool, AgentTool) and (parent.depth if parent else 0) >= depth:
        return refuse(call, "tool.invalid_call", texts.NESTED_TOO_DEEP.format(name, depth), reason="depth", limit=depth)
    if isinstance(tool, AgentTool) and _count_runs(package, state, call) >= (runs := run_limit(package, state)):
        return refuse(call, "tool.invalid_call", texts.TOO_MANY_RUNS.format(name, runs), reason="runs", limit=runs)
    schema = _argument_schema(call, tool, call.arguments)
    if isinstance(tool, PythonTool) and tool.defaults is not UNSET:
        schema = _with_signature_defaults(schema, tool.defaults)
    completed = fill_in_defaults(schema, call.arguments)
    refusal = _validate_arguments(call, tool, completed)
    return refusal or (None if completed is call.arguments else ArgumentsCompleted(call.id, completed))


def _count_runs(package: Package, state: State, call: CallState) -> int:
    """Runs that were started, and those that the calls before this one will start."""
    before = itertools.takewhile(lambda each: each.id != call.id, state.calls)
    to_begin = [each for each in before if each.status in UNCOUNTED_STATUSES and not each.counted]
    return state.meter.runs + sum(each.tool in package.agents for each in to_begin)


def _argument_schema(call: CallState, tool: Tool, arguments: Mapping[str, Any]) -> JsonSchema:
    """The schema of the arguments. If the tool has actions, it is that of the action."""
    if isinstance(tool, McpTool):
        return tool.pinned[call.tool.partition(".")[2]].args
    action = arguments.get("action")
    if isinstance(tool, AgentTool) or not isinstance(action, str):
        return tool.args
    return tool.actions.get(action, tool.args)


def _validate_arguments(call: CallState, tool: Tool, arguments: Mapping[str, Any]) -> CallRefused | None:
    actions = {} if isinstance(tool, McpTool | AgentTool) else tool.actions
    schema = _argument_schema(call, tool, arguments)
    value, action, name = dict(arguments), None, call.tool
    if actions:
        action = value.pop("action", None)
        if action is None:
            return refuse(call, "tool.missing_field", texts.MISSING_ARGUMENT.format(name, "action"), field="action")
        if not isinstance(action, str) or action not in actions:
            return refuse(call, "tool.invalid_arguments", texts.unknown_action(name, actions), field="action")
        name = f"{name}.{action}"
    for field in schema.get("required", ()):
        if field not in value:
            message = texts.MISSING_ARGUMENT.format(name, field)
            return refuse(call, "tool.missing_field", message, action=action, field=field)
    validator = schema_validator(sorted_json(schema))
    if validator.is_valid(value):
        return None
    error = next(validator.iter_errors(value))
    path = [str(step) for step in error.instance_path]
    message = texts.invalid_arguments(name, "/".join(path), error.message)[:MAX_REFUSAL_LENGTH]
    return refuse(call, "tool.invalid_arguments", message, action=action, field=path[0] if path else None)


def refuse(call: CallState, code: str, message: str, /, **fields: Any) -> CallRefused:
    present = {key: value for key, value in fields.items() if value is not None}
    return CallRefused(call.id, code, texts.with_code(code, message), {"tool": call.tool, **present})


def fill_in_defaults(schema: Any, value: Any) -> Any:
    """The value with the defaults of its schema. If there is nothing to fill in, it is the same object."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, dict):
        return _complete_object(schema, value)
    if isinstance(value, list) and "items" in schema:
        items = [fill_in_defaults(schema["items"], item) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _with_signature_defaults(schema: JsonSchema, defaults: Mapping[str, Any]) -> JsonSchema:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    added = {
        name: {"default": value, **properties[name]}
        for name, value in defaults.items()
        if isinstance(properties.get(name), Mapping) and name not in required
    }
    return {**schema, "properties": {**properties, **added}}


def _complete_object(schema: Mapping[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    declared, others = schema.get("properties", {}), schema.get("additionalProperties")
    filled: dict[str, Any] = {}
    for name, inner in value.items():
        completed = fill_in_defaults(declared.get(name, others), inner)
        if completed is not inner:
            filled[name] = completed
    for name, inner in declared.items():
        if name not in value and _has_usable_default(inner):
            filled[name] = fill_in_defaults(inner, inner["default"])
    return {**value, **filled} if filled else value


def _has_usable_default(schema: Any) -> bool:
    if not isinstance(schema, dict) or schema.get("default") is None:
        return False
    return schema_validator(sorted_json(schema)).is_valid(schema["default"])
