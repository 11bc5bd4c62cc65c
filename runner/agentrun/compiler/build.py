"""Build the package of a checked spec: with all defaults, with quantities as integers, without references to files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, get_args

from msgspec import UNSET, Struct, UnsetType

from agentrun.compiler.json_schemas import resolve_references
from agentrun.compiler.lint_policy import rule_rulings, rule_targets
from agentrun.compiler.lock_file import Lock, RoutePin, select_pinned_tools
from agentrun.compiler.python_functions import PythonFunction, find_function
from agentrun.compiler.spec_reader import Spec
from agentrun.compiler.template import bundle_template
from agentrun.core import package as made
from agentrun.core import package_tools
from agentrun.core.model_texts import CHILD_MESSAGE
from agentrun.spec.v1 import agent as written
from agentrun.spec.v1 import tools as tool_specs
from agentrun.spec.v1.budgets import BatchGuard, CallGuard, Guard
from agentrun.spec.v1.field_types import micro_dollars, milliseconds, parse_count, parse_size
from agentrun.spec.v1.policy import RuleSpec, parse_until
from agentrun.wire import METADATA_HOSTS

NO_ARGUMENTS: dict[str, Any] = {"additionalProperties": False, "type": "object", "properties": {}}

_HOST = re.compile(r"https?://((\[[^]/?#$]+\]|[^:/?#$]+)(?::\d+)?)(?=[/?#]|$)")
_PackagePart = TypeVar("_PackagePart")
_SINKS: dict[str, type[made.Sink]] = {sink.__struct_config__.tag: sink for sink in get_args(made.Sink)}


class CompiledChild(Struct, frozen=True):
    package: made.Package
    description: str | None


def build_package(spec: Spec, lock: Lock | None, agents: Mapping[str, CompiledChild]) -> made.Package:
    agent = spec.agent
    instructions = agent.instructions if isinstance(agent.instructions, list) else [agent.instructions]
    return made.Package(
        name=agent.name,
        params={name: schema_at_path(spec, "params", name) for name in agent.params},
        model=_model(agent.model, lock),
        instructions=tuple(prompt_text(spec, part) for part in instructions),
        input=None if agent.input is UNSET else prompt_text(spec, agent.input),
        tools={name: build_tool(spec, name, agents, lock) for name in agent.tools},
        agents={name: child.package for name, child in agents.items()},
        policy=_policy(agent),
        budgets=copy_fields(made.Budgets, agent.budgets, tokens=parse_count, cost=micro_dollars, time=milliseconds),
        limits=copy_fields(
            made.Limits, agent.limits, stream_gap=milliseconds, call_time=milliseconds, output_bytes=parse_size
        ),
        guards=_guards(spec),
        retry=copy_fields(
            made.RetrySettings, agent.retry, first_delay=milliseconds, max_delay=milliseconds, max_wait=milliseconds
        ),
        context=copy_fields(
            made.ContextSettings,
            agent.context.compaction,
            {"overflow": agent.context.overflow},
            prompt=partial(prompt_text, spec),
        ),
        admission=copy_fields(made.AdmissionSettings, agent.admission, max_chars=parse_count),
        output=_output(spec),
        sinks={name: _sink(sink) for name, sink in agent.sinks.items()},
        hooks=_hooks(spec),
        session=copy_fields(made.SessionSettings, agent.session),
        replay=_replay(agent),
    )


def prompt_text(spec: Spec, value: Any) -> str:
    """Return a prompt with the files that it includes, without the line ends of its file or YAML block."""
    assert isinstance(value, str)
    return bundle_template(value.rstrip("\n"), {name: source.text for name, source in spec.templates.items()})


def _model(model: written.ModelSpec, lock: Lock | None) -> made.ModelSettings:
    values = {
        "routes": tuple(_route(route, lock) for route in model.routes),
        "stop": () if model.stop is UNSET else tuple(model.stop),
    }
    return copy_fields(made.ModelSettings, model, values, max_output_tokens=parse_count)


def _route(model: written.FallbackModelSpec, lock: Lock | None) -> made.Route:
    row = lock.routes.get(model.route) if lock else None
    pinned = row or RoutePin(price=None, context_window=None)
    values = {
        "price": _price(model.price) if isinstance(model.price, written.PriceSpec) else pinned.price,
        "context_window": pinned.context_window if model.context_window is UNSET else parse_count(model.context_window),
    }
    return copy_fields(made.Route, model, values)


def _price(price: written.PriceSpec) -> made.Price:
    cached = price.input if isinstance(price.cached_input, UnsetType) else price.cached_input
    return made.Price(*map(micro_dollars, (price.input, price.output, cached)))


def _policy(agent: written.Agent) -> made.Policy:
    policy = agent.policy
    return made.Policy(
        default="deny" if policy.default is UNSET else policy.default,
        rules=tuple(sorted((_rule(rule) for rule in policy.rules), key=lambda rule: rule.id)),
        approval_timeout=milliseconds(policy.approval_timeout),
    )


def _rule(rule: RuleSpec) -> made.PolicyRule:
    values: dict[str, Any] = {
        "ruling": rule_rulings(rule)[0],
        "targets": tuple(sorted(set(rule_targets(rule)))),
        "set": rule.set or {},
        "mask": () if rule.mask is UNSET else tuple(rule.mask),
    }
    values |= {"until": UNSET} | ({} if rule.until is UNSET else parse_until(rule.until))
    return copy_fields(made.PolicyRule, rule, values)


def _guards(spec: Spec) -> made.Guards:
    guards = spec.agent.guards
    batch = guards.repeated_batch
    settings = {
        "call_compare": _comparison(guards.repeated_call),
        "cycle_compare": _comparison(guards.cycle),
        "batch_compare": _comparison(batch),
        "batch_scope": batch.scope if isinstance(batch, BatchGuard) else BatchGuard().scope,
    }
    limits = dict.fromkeys(("repeated_call", "cycle", "repeated_batch", "stagnation", "empty_outcome"), _limit)
    return copy_fields(made.Guards, guards, settings, nudge=partial(prompt_text, spec), **limits)


def _comparison(guard: int | str | CallGuard | BatchGuard) -> made.GuardComparison:
    return CallGuard().compare if isinstance(guard, int | str) else guard.compare


def _limit(guard: int | str | Guard | CallGuard | BatchGuard) -> int | None:
    if isinstance(guard, (Guard, CallGuard, BatchGuard)):
        return guard.limit
    return None if isinstance(guard, str) else guard


def _output(spec: Spec) -> made.OutputContract:
    output = spec.agent.output
    schema = None if output.schema is UNSET else schema_at_path(spec, "output", "schema")
    return copy_fields(made.OutputContract, output, {"schema": schema}, max_bytes=parse_size)


def _sink(sink: written.SinkSpec) -> made.Sink:
    kind = str(type(sink).__struct_config__.tag)
    return copy_fields(_SINKS[kind], sink, timeout=milliseconds, auth=build_auth)


def _hooks(spec: Spec) -> tuple[made.Hook, ...]:
    hooks = []
    for hook in spec.agent.hooks:
        function = find_function(spec.project, hook.call)
        values = {"module": function.module, "function": function.name, "source": function.source}
        hooks.append(copy_fields(made.Hook, hook, values, timeout=milliseconds))
    return tuple(sorted(hooks, key=lambda hook: (hook.at, hook.order, hook.id)))


def _replay(agent: written.Agent) -> made.ReplaySettings:
    rules = [copy_fields(made.RedactionRule, one) for one in agent.replay.redact]
    redactions = tuple(sorted(rules, key=lambda one: one.name))
    return made.ReplaySettings(redact=redactions, volatile=tuple(sorted(set(agent.replay.volatile))))


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


# --- tools ---------------------------------------------------------------------------------------------------------


def build_auth(auth: tool_specs.AuthSpec) -> package_tools.Auth:
    return copy_fields(package_tools.Auth, auth)


def _sorted_tuple(values: list[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))


def build_tool(spec: Spec, name: str, agents: Mapping[str, CompiledChild], lock: Lock | None) -> package_tools.Tool:
    tool = spec.agent.tools[name]
    values: dict[str, Any]
    match tool:
        case tool_specs.PythonToolSpec():
            function = find_function(spec.project, tool.call)
            values = {"module": function.module, "function": function.name, "source": function.source}
            values |= _common(spec, tool, function.description) | _arguments(spec, name, tool, function.schema)
            values["defaults"] = _signature_defaults(function, values["args"]) or UNSET
            values["env"] = tool.env or UNSET
            return copy_fields(package_tools.PythonTool, tool, values)
        case tool_specs.HttpToolSpec():
            host = _HOST.match(tool.url)
            # The hosts of metadata services must be listed.
            own = (host[1],) if host and host[2].strip("[]").lower() not in METADATA_HOSTS else ()
            hosts = own if tool.hosts is UNSET else _sorted_tuple(tool.hosts)
            values = {"hosts": hosts, **_arguments(spec, name, tool), **_common(spec, tool)}
            return copy_fields(package_tools.HttpTool, tool, values, auth=build_auth, max_bytes=parse_size)
        case tool_specs.ShellToolSpec():
            values = _arguments(spec, name, tool) | _common(spec, tool)
            return copy_fields(
                package_tools.ShellTool, tool, values, argv=tuple, exits=_sorted_tuple, grace=milliseconds
            )
        case tool_specs.McpToolSpec():
            command = () if tool.command is UNSET else tuple(tool.command)
            pinned = select_pinned_tools(tool, lock.servers.get(name, {}) if lock else {})
            values = {"command": command, "pinned": pinned, **_common(spec, tool)}
            return copy_fields(package_tools.McpTool, tool, values, requests=_sorted_tuple, start_timeout=milliseconds)
        case tool_specs.AgentToolSpec():
            values = {"args": agent_arguments(tool, agents[name]), **_common(spec, tool, agents[name].description)}
            return copy_fields(package_tools.AgentTool, tool, values)


def _common(spec: Spec, tool: tool_specs.ToolSpec, description: str | None = None) -> dict[str, Any]:
    return {
        "description": (description or "") if tool.description is UNSET else tool.description,
        **_effect(tool),
        "timeout": milliseconds(spec.agent.limits.tool_timeout if tool.timeout is UNSET else tool.timeout),
    }


def _effect(tool: tool_specs.ToolSpec) -> dict[str, Any]:
    """Return `effect` and `parallel`. A sub-agent has no effect of its own, only its tools have."""
    if isinstance(tool, tool_specs.AgentToolSpec):
        return {"parallel": tool.parallel is True}
    default = "read" if isinstance(tool, tool_specs.HttpToolSpec) and tool.method in ("GET", "HEAD") else "at_most_once"
    effect = default if tool.effect is UNSET else tool.effect
    return {"effect": effect, "parallel": effect == "read" if tool.parallel is UNSET else tool.parallel}


def _arguments(
    spec: Spec, name: str, tool: tool_specs.ArgsToolSpec, read: dict[str, Any] | None = None
) -> dict[str, Any]:
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


def agent_arguments(tool: tool_specs.AgentToolSpec, child: CompiledChild) -> dict[str, Any]:
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
