"""Which codes runs of an agent can end with, or meet on their way, given what its spec declares.

A code counts if something that is written in the spec can bring it about:

    provider.*                what a model's service does wrong: always, for there is always a model
    tool.unknown, .execution, .timeout, .invalid_arguments        the agent has tools (the last one: with arguments)
    tool.missing_field        a tool has arguments that are required
    tool.hidden               a tool has `visible`
    tool.invalid_call         too many calls are refused (`on_oversize_batch`), or sub-agents beyond `limits.runs`
    tool.denied               the policy, a hook or a person can say no to a call, or to its result
    policy.denied             a rule denies at another stage, or a hook stands where its no ends the run
    policy.interrupted        a rule interrupts
    approval.denied, .timed_out       a rule, or the default, asks a person
    context.overflow, .failed         `context` or the window of the model is written; the history is summed up
    input.rejected            `admission.max_chars` is written
    output.invalid            the answer has a schema
    delivery.failed           there are sinks

`budget.*` and `guard.*` are not told twice: budgets and guards are parts of their own, exercised when their code is.
What only the code of a tool, a crash, a damaged file or the machine decides is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from agentrun.core.names import matches, schemas_of
from agentrun.core.package import Package
from agentrun.spec.tree import Mapping, at
from agentrun.testing.suite.coverage.kin import Agent

Path: TypeAlias = tuple[str | int, ...]
Found: TypeAlias = Iterator[tuple[str, Path]]

PROVIDER = ("rate_limited", "overloaded", "transient", "timeout", "zero_output", "empty", "fatal")
BUDGETS = ("turns", "tokens", "cost", "time", "tool_calls")
GUARDS = ("repeated_call", "cycle", "repeated_batch", "stagnation", "empty_outcome")
STOPPING_POINTS = ("on_input", "before_model", "after_model", "on_output")


def codes_of(agent: Agent) -> Found:
    """The codes, each with the path in the spec of what brings it about."""
    for name in PROVIDER:
        yield f"provider.{name}", ("model",)
    if agent.package.tools:
        yield from _of_tools(agent)
    yield from _of_policy(agent)
    yield from _of_texts(agent)


def budgets_of(agent: Agent) -> Found:
    """The budgets that are written."""
    for name in BUDGETS:
        if _written(agent, "budgets", name):
            yield name, ("budgets", name)


def guards_of(agent: Agent) -> Found:
    """The guards that are written and not off. Too many calls at once are a limit, and told as a guard."""
    for name in GUARDS:
        if _written(agent, "guards", name) and getattr(agent.package.guards, name) is not None:
            yield name, ("guards", name)
    if _written(agent, "limits", "parallel_tools") and agent.package.tools:
        yield "parallel_tools", ("limits", "parallel_tools")


def _of_tools(agent: Agent) -> Found:
    package = agent.package
    for name in ("unknown", "execution", "timeout"):
        yield f"tool.{name}", ("tools",)
    schemas = schemas_of(package.tools)
    arguments = [name for name, schema in schemas.items() if schema.get("properties")]
    required = [name for name, schema in schemas.items() if schema.get("required")]
    hidden = [name for name, tool in package.tools.items() if tool.visible is not None]
    for code, names in (("invalid_arguments", arguments), ("missing_field", required), ("hidden", hidden)):
        if names:
            owner = names[0] if names[0] in package.tools else names[0].partition(".")[0]
            yield f"tool.{code}", ("tools", owner)
    if package.limits.on_oversize_batch != "fail":
        yield "tool.invalid_call", ("limits", "on_oversize_batch")
    elif package.agents and _written(agent, "limits", "runs"):
        yield "tool.invalid_call", ("limits", "runs")
    if (path := _denial(agent)) is not None:
        yield "tool.denied", path


def _denial(agent: Agent) -> Path | None:
    """What can say no to a call, or to its result."""
    for index, rule in enumerate(agent.spec.agent.policy.rules):
        ruling = _ruling(agent.package, rule.id)
        if rule.on in ("tool_call", "tool_result") and ruling in ("deny", "ask"):
            return "policy", "rules", index
    for index, hook in enumerate(agent.spec.agent.hooks):
        if hook.at in ("before_tool", "after_tool"):
            return "hooks", index
    always = [rule for rule in agent.package.policy.rules if rule.on == "tool_call" and rule.when is None]
    names = schemas_of(agent.package.tools)
    sure = {name for name in names for rule in always if any(matches(target, name) for target in rule.targets)}
    return ("policy", "default") if agent.package.policy.default != "allow" and len(sure) < len(names) else None


def _of_policy(agent: Agent) -> Found:
    denied: Path | None = None
    asked: Path | None = None
    for index, rule in enumerate(agent.spec.agent.policy.rules):
        path: Path = ("policy", "rules", index)
        match _ruling(agent.package, rule.id):
            case "interrupt":
                yield "policy.interrupted", path
            case "deny" if rule.on not in ("tool_call", "tool_result"):
                denied = denied or path
            case "ask":
                asked = asked or path
    for index, hook in enumerate(agent.spec.agent.hooks):
        if hook.at in STOPPING_POINTS:
            denied = denied or ("hooks", index)
    if agent.package.policy.default == "ask" and agent.package.tools:
        asked = asked or ("policy", "default")
    if denied:
        yield "policy.denied", denied
    if asked:
        yield "approval.denied", asked
        yield "approval.timed_out", asked


def _of_texts(agent: Agent) -> Found:
    package = agent.package
    if _written(agent, "context") or _written(agent, "model", "context_window"):
        place: Path = ("context",) if _written(agent, "context") else ("model", "context_window")
        yield "context.overflow", place
        if package.context.overflow == "compact":
            yield "context.failed", place
    if package.admission.max_chars is not None:
        yield "input.rejected", ("admission", "max_chars")
    if package.output.schema is not None:
        yield "output.invalid", ("output", "schema")
    if open_sinks := [name for name, sink in package.sinks.items() if sink.delivery != "disabled"]:
        yield "delivery.failed", ("sinks", open_sinks[0])


def _ruling(package: Package, rule: str) -> str:
    return next(each.ruling for each in package.policy.rules if each.id == rule)


def _written(agent: Agent, *path: str) -> bool:
    found = at(agent.spec.root, path)
    return found is not None and not (isinstance(found, Mapping) and not found.entries)
