"""A checked spec as a package: every default written out, every quantity an integer, every reference inside."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from agentrun.compiler.build_tools import Child, build_auth, build_tool, schema_at
from agentrun.compiler.lint_policy import rulings_of, targets_of
from agentrun.compiler.lock import Lock, Row, route_name
from agentrun.compiler.quantities import count, micro_dollars, milliseconds, size
from agentrun.compiler.resolve import Spec
from agentrun.compiler.signatures import find_function
from agentrun.core import package as made
from agentrun.core import package_sinks as sinks
from agentrun.spec.v1 import agent as written
from agentrun.spec.v1.budgets import BatchGuard, Guard
from agentrun.spec.v1.policy import Rule

T = TypeVar("T")


def build(spec: Spec, lock: Lock | None, agents: MappingOf[str, Child]) -> made.Package:
    """The package of a spec that was found to be right."""
    agent = spec.agent
    return made.Package(
        name=agent.name,
        params={name: schema_at(spec, "params", name) for name in agent.params},
        model=_model(agent.model, lock),
        instructions=_instructions(agent),
        input=None if agent.input is UNSET else text_of(agent.input),
        tools={name: build_tool(spec, name, agents, lock) for name in agent.tools},
        agents={name: child.package for name, child in agents.items()},
        policy=_policy(agent),
        budgets=_budgets(agent),
        limits=_limits(agent),
        guards=_guards(agent),
        retry=_retry(agent),
        context=_context(agent),
        admission=made.Admission(max_chars=_maybe(agent.admission.max_chars, count), dedupe=agent.admission.dedupe),
        output=_output(spec),
        sinks={name: _sink(sink) for name, sink in agent.sinks.items()},
        hooks=_hooks(spec),
        session=made.Session(history=agent.session.history, max_runs=_or_none(agent.session.max_runs)),
        replay=_replay(agent),
    )


def _or_none(value: T | UnsetType) -> T | None:
    return None if isinstance(value, UnsetType) else value


def _maybe(value: Any, convert: Any) -> Any:
    return None if value is UNSET else convert(value)


def text_of(value: Any) -> str:
    """A prompt after inlining; how it ends in its file or YAML block does not matter."""
    assert isinstance(value, str)
    return value.rstrip("\n")


def _instructions(agent: written.Agent) -> tuple[str, ...]:
    parts = agent.instructions if isinstance(agent.instructions, list) else [agent.instructions]
    return tuple(text_of(part) for part in parts)


def _model(model: written.Model, lock: Lock | None) -> made.Model:
    fallbacks = [_fallback(one) if isinstance(one, str) else one for one in model.fallback]
    return made.Model(
        routes=tuple(_route(route, lock) for route in [model, *fallbacks]),
        temperature=_or_none(model.temperature),
        top_p=_or_none(model.top_p),
        seed=_or_none(model.seed),
        stop=() if model.stop is UNSET else tuple(model.stop),
        max_output_tokens=_maybe(model.max_output_tokens, count),
        reasoning=_or_none(model.reasoning),
        tool_choice=model.tool_choice,
        stream=model.stream,
    )


def _fallback(route: str) -> written.FallbackModel:
    provider, _, name = route.partition("/")
    return written.FallbackModel(provider=provider, name=name)


def _route(model: written.FallbackModel, lock: Lock | None) -> made.Route:
    row = lock.routes.get(route_name(model)) if lock else None
    pinned = row or Row(price=None, context_window=None)
    return made.Route(
        provider=model.provider,
        name=model.name,
        base_url=_or_none(model.base_url),
        api_key=_or_none(model.api_key),
        headers=model.headers,
        price=_price(model.price) if isinstance(model.price, written.Price) else pinned.price,
        context_window=pinned.context_window if model.context_window is UNSET else count(model.context_window),
        options=model.options,
    )


def _price(price: written.Price) -> made.Price:
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


def _rule(rule: Rule) -> made.Rule:
    ruling: Any = rulings_of(rule)[0]
    return made.Rule(
        id=rule.id,
        ruling=ruling,
        targets=tuple(sorted(set(targets_of(rule)))),
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
        tokens=_maybe(budgets.tokens, count),
        cost=_maybe(budgets.cost, micro_dollars),
        time=_maybe(budgets.time, milliseconds),
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
        output_bytes=size(limits.output_bytes),
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
        nudge=text_of(guards.nudge),
        observation=guards.observation,
    )


def _limit(guard: int | str | Guard | BatchGuard) -> int | None:
    if isinstance(guard, (Guard, BatchGuard)):
        return guard.limit
    return None if isinstance(guard, str) else guard


def _retry(agent: written.Agent) -> made.Retry:
    retry = agent.retry
    return made.Retry(
        attempts=retry.attempts,
        first_delay=milliseconds(retry.first_delay),
        max_delay=milliseconds(retry.max_delay),
        max_wait=milliseconds(retry.max_wait),
    )


def _context(agent: written.Agent) -> made.Context:
    compaction = agent.context.compaction
    return made.Context(
        overflow=agent.context.overflow,
        prompt=text_of(compaction.prompt),
        keep=compaction.keep,
        failures=compaction.failures,
    )


def _output(spec: Spec) -> made.Output:
    output = spec.agent.output
    return made.Output(
        schema=None if output.schema is UNSET else schema_at(spec, "output", "schema"),
        repairs=output.repairs,
        max_bytes=size(output.max_bytes),
        max_depth=output.max_depth,
    )


def _sink(sink: written.Sink) -> sinks.Sink:
    common: dict[str, Any] = {"delivery": sink.delivery, "timeout": milliseconds(sink.timeout)}
    match sink:
        case written.FileSink():
            return sinks.FileSink(path=sink.path, **common)
        case written.JsonlSink():
            return sinks.JsonlSink(path=sink.path, **common)
        case written.StdoutSink():
            return sinks.StdoutSink(**common)
        case written.HttpSink():
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


def _replay(agent: written.Agent) -> made.Replay:
    redactions = [
        made.Redaction(name=one.name, path=_or_none(one.path), pattern=_or_none(one.pattern))
        for one in agent.replay.redact
    ]
    redactions.sort(key=lambda one: one.name)
    return made.Replay(redact=tuple(redactions), volatile=tuple(sorted(set(agent.replay.volatile))))
