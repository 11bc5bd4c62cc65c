"""A checked spec as a package: every default written out, every quantity an integer, every reference inside."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from agentrun.compiler.build_tools import CompiledChild, build_auth, build_tool, schema_at_path
from agentrun.compiler.lint_policy import rule_rulings, rule_targets
from agentrun.compiler.lock import Lock, RoutePin, model_route
from agentrun.compiler.python_functions import find_function
from agentrun.compiler.spec_reader import Spec
from agentrun.core import package as made
from agentrun.core import package as sinks
from agentrun.spec.v1 import agent as written
from agentrun.spec.v1.budgets import BatchGuard, Guard
from agentrun.spec.v1.field_types import micro_dollars, milliseconds, parse_count, parse_size
from agentrun.spec.v1.policy import RuleSpec

_T = TypeVar("_T")


def build_package(spec: Spec, lock: Lock | None, agents: MappingOf[str, CompiledChild]) -> made.Package:
    """The package of a spec that was found to be right."""
    agent = spec.agent
    return made.Package(
        name=agent.name,
        params={name: schema_at_path(spec, "params", name) for name in agent.params},
        model=_model(agent.model, lock),
        instructions=_instructions(agent),
        input=None if agent.input is UNSET else prompt_text(agent.input),
        tools={name: build_tool(spec, name, agents, lock) for name in agent.tools},
        agents={name: child.package for name, child in agents.items()},
        policy=_policy(agent),
        budgets=_budgets(agent),
        limits=_limits(agent),
        guards=_guards(agent),
        retry=_retry(agent),
        context=_context(agent),
        admission=made.AdmissionSettings(
            max_chars=_convert_if_set(agent.admission.max_chars, parse_count), dedupe=agent.admission.dedupe
        ),
        output=_output(spec),
        sinks={name: _sink(sink) for name, sink in agent.sinks.items()},
        hooks=_hooks(spec),
        session=made.SessionSettings(history=agent.session.history, max_runs=_or_none(agent.session.max_runs)),
        replay=_replay(agent),
    )


def _or_none(value: _T | UnsetType) -> _T | None:
    return None if isinstance(value, UnsetType) else value


def _convert_if_set(value: Any, convert: Any) -> Any:
    return None if value is UNSET else convert(value)


def prompt_text(value: Any) -> str:
    """A prompt after inlining; how it ends in its file or YAML block does not matter."""
    assert isinstance(value, str)
    return value.rstrip("\n")


def _instructions(agent: written.Agent) -> tuple[str, ...]:
    parts = agent.instructions if isinstance(agent.instructions, list) else [agent.instructions]
    return tuple(prompt_text(part) for part in parts)


def _model(model: written.ModelSpec, lock: Lock | None) -> made.ModelSettings:
    fallbacks = [_fallback(one) if isinstance(one, str) else one for one in model.fallback]
    return made.ModelSettings(
        routes=tuple(_route(route, lock) for route in [model, *fallbacks]),
        temperature=_or_none(model.temperature),
        top_p=_or_none(model.top_p),
        seed=_or_none(model.seed),
        stop=() if model.stop is UNSET else tuple(model.stop),
        max_output_tokens=_convert_if_set(model.max_output_tokens, parse_count),
        reasoning=_or_none(model.reasoning),
        tool_choice=model.tool_choice,
        stream=model.stream,
    )


def _fallback(route: str) -> written.FallbackModelSpec:
    provider, _, name = route.partition("/")
    return written.FallbackModelSpec(provider=provider, name=name)


def _route(model: written.FallbackModelSpec, lock: Lock | None) -> made.Route:
    row = lock.routes.get(model_route(model)) if lock else None
    pinned = row or RoutePin(price=None, context_window=None)
    return made.Route(
        provider=model.provider,
        name=model.name,
        base_url=_or_none(model.base_url),
        api_key=_or_none(model.api_key),
        headers=model.headers,
        price=_price(model.price) if isinstance(model.price, written.PriceSpec) else pinned.price,
        context_window=pinned.context_window if model.context_window is UNSET else parse_count(model.context_window),
        options=model.options,
    )


def _price(price: written.PriceSpec) -> made.Price:
    cached = price.input if isinstance(price.cached_input, UnsetType) else price.cached_input
    return made.Price(
        input=micro_dollars(price.input),
        output=micro_dollars(price.output),
        cached_input=micro_dollars(cached),
    )


def _policy(agent: written.Agent) -> made.Policy:
    policy = agent.policy
    return made.Policy(
        default="deny" if policy.default is UNSET else policy.default,
        rules=tuple(sorted((_rule(rule) for rule in policy.rules), key=lambda rule: rule.id)),
        approval_timeout=milliseconds(policy.approval_timeout),
    )


def _rule(rule: RuleSpec) -> made.PolicyRule:
    ruling: Any = rule_rulings(rule)[0]
    return made.PolicyRule(
        id=rule.id,
        ruling=ruling,
        targets=tuple(sorted(set(rule_targets(rule)))),
        on=rule.on,
        when=_or_none(rule.when),
        set=rule.set or {},
        mask=() if rule.mask is UNSET else tuple(rule.mask),
        reason=_or_none(rule.reason),
    )


def _budgets(agent: written.Agent) -> made.Budgets:
    budgets = agent.budgets
    return made.Budgets(
        turns=budgets.turns,
        tokens=_convert_if_set(budgets.tokens, parse_count),
        cost=_convert_if_set(budgets.cost, micro_dollars),
        time=_convert_if_set(budgets.time, milliseconds),
        tool_calls=_or_none(budgets.tool_calls),
        on_turns=budgets.on_turns,
        grace=_or_none(budgets.grace),
    )


def _limits(agent: written.Agent) -> made.Limits:
    limits = agent.limits
    return made.Limits(
        parallel_tools=limits.parallel_tools,
        on_oversize_batch=limits.on_oversize_batch,
        stream_gap=milliseconds(limits.stream_gap),
        call_time=milliseconds(limits.call_time),
        on_truncated=limits.on_truncated,
        truncations=limits.truncations,
        output_lines=limits.output_lines,
        output_bytes=parse_size(limits.output_bytes),
        depth=limits.depth,
        runs=limits.runs,
    )


def _guards(agent: written.Agent) -> made.Guards:
    guards = agent.guards
    batch = guards.repeated_batch
    return made.Guards(
        repeated_call=_limit(guards.repeated_call),
        cycle=_limit(guards.cycle),
        repeated_batch=_limit(batch),
        batch_scope=batch.scope if isinstance(batch, BatchGuard) else BatchGuard().scope,
        stagnation=_limit(guards.stagnation),
        empty_outcome=None if isinstance(guards.empty_outcome, str) else guards.empty_outcome,
        nudge=prompt_text(guards.nudge),
        observation=guards.observation,
    )


def _limit(guard: int | str | Guard | BatchGuard) -> int | None:
    if isinstance(guard, (Guard, BatchGuard)):
        return guard.limit
    return None if isinstance(guard, str) else guard


def _retry(agent: written.Agent) -> made.RetrySettings:
    retry = agent.retry
    return made.RetrySettings(
        attempts=retry.attempts,
        first_delay=milliseconds(retry.first_delay),
        max_delay=milliseconds(retry.max_delay),
        max_wait=milliseconds(retry.max_wait),
    )


def _context(agent: written.Agent) -> made.ContextSettings:
    compaction = agent.context.compaction
    return made.ContextSettings(
        overflow=agent.context.overflow,
        prompt=prompt_text(compaction.prompt),
        keep=compaction.keep,
        failures=compaction.failures,
    )


def _output(spec: Spec) -> made.OutputContract:
    output = spec.agent.output
    return made.OutputContract(
        schema=None if output.schema is UNSET else schema_at_path(spec, "output", "schema"),
        repairs=output.repairs,
        max_bytes=parse_size(output.max_bytes),
        max_depth=output.max_depth,
    )


def _sink(sink: written.SinkSpec) -> sinks.Sink:
    common: dict[str, Any] = {"delivery": sink.delivery, "timeout": milliseconds(sink.timeout)}
    match sink:
        case written.FileSinkSpec():
            return sinks.FileSink(path=sink.path, **common)
        case written.JsonlSinkSpec():
            return sinks.JsonlSink(path=sink.path, **common)
        case written.StdoutSinkSpec():
            return sinks.StdoutSink(**common)
        case written.HttpSinkSpec():
            return sinks.HttpSink(
                url=sink.url,
                headers=sink.headers,
                auth=build_auth(sink.auth),
                private_network=sink.private_network,
                **common,
            )


def _hooks(spec: Spec) -> tuple[made.Hook, ...]:
    hooks = []
    for hook in spec.agent.hooks:
        function = find_function(spec.project, hook.call)
        hooks.append(
            made.Hook(
                id=hook.id,
                at=hook.at,
                module=function.module,
                function=function.name,
                source=function.source,
                order=hook.order,
                timeout=milliseconds(hook.timeout),
                on_failure=hook.on_failure,
            )
        )
    return tuple(sorted(hooks, key=lambda hook: (hook.at, hook.order, hook.id)))


def _replay(agent: written.Agent) -> made.ReplaySettings:
    redactions = [
        made.RedactionRule(name=one.name, path=_or_none(one.path), pattern=_or_none(one.pattern))
        for one in agent.replay.redact
    ]
    redactions.sort(key=lambda one: one.name)
    return made.ReplaySettings(redact=tuple(redactions), volatile=tuple(sorted(set(agent.replay.volatile))))
