"""What runs exercised of their agents, read from their journals.

Rule 1  A tool: a call of it was started. A rule: a ruling rests on it; where a stricter one matched too, on that one.
Rule 2  A budget or guard: a run ended over it, was labelled by it, or calls were refused over it.
Rule 3  A hook: it was asked. A code: a run ended with it, or a retry, the model or a person met it on the way.
Rule 4  Templates leave no trace in a journal but their text. They are rendered again with what the run knew: those of a
        tool once for each call that was started, a prompt that was made in advance only if the model was told it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from agentrun.compiler.prompts import rendered_input
from agentrun.compiler.template_language.branches import taken
from agentrun.core.evolve import evolve
from agentrun.core.facts import (
    DeliveryFinished,
    DeliverySkipped,
    Fact,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    ModelTold,
    Record,
    RunStarted,
    RunStopped,
)
from agentrun.core.facts_calls import CallRefused, ChildStarted, ToolFinished, ToolStarted
from agentrun.core.facts_gates import ApprovalAnswered, Continue, HookAnswered, HookAsked, Ruled
from agentrun.core.messages import words
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.engine.begin import start_ruling
from agentrun.testing.suite.coverage.kin import Agent

Mark: TypeAlias = tuple[str, str]
"""What was exercised: a kind of part, and its name. Two kinds are no parts: `asked` (a tool that the model called) and
`answered` (a hook that said more than continue)."""


def exercised(
    agent: Agent, journal: Sequence[Record], children: Mapping[str, Sequence[Record]]
) -> Iterator[tuple[Agent, Mark]]:
    """What a run and those below it exercised, each of its own agent."""
    for record in journal:
        for mark in _marks(agent.package, record.fact):
            yield agent, mark
        if isinstance(record.fact, ChildStarted):
            yield from exercised(agent.children[record.fact.tool], children.get(record.fact.run, ()), children)
    for where, values in _filled_in(agent, journal) if agent.templates else ():
        for template in agent.templates:
            if template.where == where or template.where.startswith(f"{where}/"):
                for way in taken(template.node.text, values):
                    yield agent, ("branch", template.mark(way))


def _marks(package: Package, fact: Fact) -> Iterator[Mark]:
    match fact:
        case RunStarted():
            yield from (("rule", rule) for rule in start_ruling(package, fact).rules)
        case ModelReplied():
            yield from (("asked", call.tool) for call in fact.reply.message.calls)
        case ToolStarted() | ChildStarted():
            yield "tool", fact.tool
        case Ruled():
            yield from (("rule", rule) for rule in fact.rules)
        case HookAsked():
            yield "hook", fact.hook
        case HookAnswered() if not isinstance(fact.answer, Continue):
            yield "answered", fact.hook
        case ApprovalAnswered():
            yield "code", f"approval.{fact.answer}"
        case CallRefused():
            yield "code", fact.code
            if fact.fields.get("reason") == "parallel_tools":
                yield "guard", "parallel_tools"
        case RunStopped(label="budget.turns"):
            yield from of_code("budget.turns")
        case ModelFailed() | ToolFinished() | DeliveryFinished() | DeliverySkipped() | RunStopped():
            if fact.fault is not None:
                yield from of_code(fact.fault.code)


def of_code(code: str) -> Iterator[Mark]:
    """What a code shows to be exercised: itself, and the budget or guard that gives it."""
    yield "code", code
    kind, _, name = code.partition(".")
    if kind in ("budget", "guard"):
        yield kind, name


def _filled_in(agent: Agent, journal: Sequence[Record]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where in the spec a text was filled in, and with which values."""
    state = State()
    for record in journal:
        state = evolve(state, record)
        params = state.started.params
        match record.fact:
            case RunStarted() as started:
                yield "instructions", params
                if started.input is not None and words(started.input.parts) == rendered_input(agent.package, params):
                    yield "input", params
            case ToolStarted() as fact:
                arguments = next(call.arguments for call in state.calls if call.call.id == fact.call)
                yield f"tools/{fact.tool}", {**params, "args": arguments}
            case ModelTold(why="nudge"):
                yield "guards/nudge", params
            case ModelAsked(purpose="compact"):
                yield "context/compaction/prompt", params
