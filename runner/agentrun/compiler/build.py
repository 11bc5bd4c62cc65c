"""Build the package of a checked spec: with all defaults, with quantities as integers, without references to files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

from msgspec import UNSET, UnsetType

from agentrun.compiler.build_tools import CompiledChild, build_auth, build_tool, copy_fields, schema_at_path
from agentrun.compiler.lint_policy import rule_rulings, rule_targets
from agentrun.compiler.lock_file import Lock, RoutePin
from agentrun.compiler.python_functions import find_function
from agentrun.compiler.spec_reader import Spec
from agentrun.compiler.template import bundle_template
from agentrun.core import package as made
from agentrun.spec.v1 import agent as written
from agentrun.spec.v1.budgets import BatchGuard, CallGuard, Guard
from agentrun.spec.v1.field_types import micro_dollars, milliseconds, parse_count, parse_size
from agentrun.spec.v1.policy import RuleSpec

_SINKS: dict[str, type[made.Sink]] = {sink.__struct_config__.tag: sink for sink in get_args(made.Sink)}


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
    values = {
        "ruling": rule_rulings(rule)[0],
        "targets": tuple(sorted(set(rule_targets(rule)))),
        "set": rule.set or {},
        "mask": () if rule.mask is UNSET else tuple(rule.mask),
    }
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
