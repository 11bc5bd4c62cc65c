"""What a reader hears of single calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from agentrun.canon import compact
from agentrun.core.arguments import parsed
from agentrun.core.facts_base import Fault, Share
from agentrun.core.facts_calls import (
    CallCancelled,
    CallFact,
    CallRefused,
    CallSettled,
    ChildStarted,
    ChildSuspended,
    ResultsGiven,
    Spent,
    ToolFinished,
    ToolStarted,
)
from agentrun.core.messages import Content, File, Image, Text, ToolCall
from agentrun.core.names import find_tool
from agentrun.core.package import Package
from agentrun.core.package_tools import HttpTool
from agentrun.core.state import State, find_call
from agentrun.report.amounts import dollars, magnitude
from agentrun.report.line import Line, gist, told
from agentrun.spec.text import plural, short

MANY = 160
"""Characters of arguments that are shown."""
NAME = 60
"""Characters of a name: a model may call a tool by a name of any length."""


def tell_call(package: Package, state: State, fact: CallFact) -> tuple[Line, ...]:
    if isinstance(fact, ResultsGiven):
        return ()
    name = name_of(state, fact.call)
    match fact:
        case CallRefused():
            return _refused(name, fact)
        case CallCancelled():
            why = f"{name_of(state, fact.by)} made it unnecessary" if fact.by else "not waited for, the run ends"
            return (told(f"✗ {name}: {why}", "warn", 1),)
        case ToolStarted():
            return (told(f"→ {name} runs again", "warn", 1),) if _ran(state, fact.call) else ()
        case ChildStarted():
            return (_child(package, state, fact),)
        case ToolFinished():
            return (_finished(state, fact),)
        case ChildSuspended():
            waits_for = ", ".join(short(each, NAME) for each in fact.waits_for)
            return (told(f"{name}: the agent waits for somebody ({waits_for})", "warn", 1),)
        case CallSettled():
            return (_settled(name, fact),)
        case _:
            assert_never(fact)


def called(calls: Sequence[ToolCall], call: ToolCall) -> Line:
    """A call that the model asks for."""
    return told(f"→ {_name(calls, call)} {arguments(call.arguments)}", indent=1)


def arguments(text: str) -> str:
    """Arguments as the model wrote them, if it wrote them in one line."""
    if "\n" in text and (found := parsed(text)) is not None:
        text = compact(found).decode()
    return short(text.strip(), MANY)


def gave(state: State, call: str, parts: Iterable[Content], spent: Spent | None = None) -> Line:
    """A result."""
    cost = "" if spent is None else f" [{_spent(spent)}]"
    return told(f"← {name_of(state, call)}: {_contents(parts)}{cost}", "dim", 1)


def missed(package: Package, state: State, call: str, parts: Iterable[Content]) -> tuple[Line, ...]:
    """That `result` of an HTTP tool picked nothing out of its reply: a null is a result, but seldom what is meant."""
    tool = find_tool(package, tool_of(state, call))
    if not isinstance(tool, HttpTool) or tool.result is None or tuple(parts) != (Text("null"),):
        return ()
    return (told(f"`result` of {name_of(state, call)} found nothing in the reply", "warn", 1),)


def name_of(state: State, call: str) -> str:
    """What a call is called: by its tool, and by its id as well where another call has the same tool."""
    found = find_call(state, call)
    return short(call, NAME) if found is None else _name([each.call for each in state.calls], found.call)


def tool_of(state: State, call: str) -> str:
    found = find_call(state, call)
    return "" if found is None else found.call.tool


def _name(calls: Sequence[ToolCall], call: ToolCall) -> str:
    name = short(call.tool, NAME)
    return name if [each.tool for each in calls].count(call.tool) < 2 else f"{name} {short(call.id, NAME)}"


def _ran(state: State, call: str) -> bool:
    found = find_call(state, call)
    return found is not None and found.counted


def _contents(parts: Iterable[Content]) -> str:
    texts, others = [], []
    for part in parts:
        match part:
            case Text():
                texts.append(part.text)
            case Image():
                others.append(f"[{short(part.media_type, NAME)}, {magnitude(part.size)}B]")
            case File():
                others.append(f"[{short(part.name, NAME)}, {magnitude(part.size)}B]")
            case _:
                assert_never(part)
    return " ".join([gist("".join(texts)), *others] if texts or not others else others)


def _finished(state: State, fact: ToolFinished) -> Line:
    if fact.fault is None:
        return gave(state, fact.call, fact.parts, fact.spent)
    fault = f"{short(fact.fault.code)}: {gist(fact.fault.message)}{place_of(fact.fault)}"
    return told(f"← {name_of(state, fact.call)} failed: {fault}", "bad", 1)


def place_of(fault: Fault) -> str:
    """Where in the project's code something was raised."""
    at = fault.fields.get("at")
    return f" ({short(at, NAME)})" if isinstance(at, str) else ""


def _refused(name: str, fact: CallRefused) -> tuple[Line, ...]:
    if fact.code == "tool.denied":
        return ()  # who denied it, and why, was told already
    text = gist(fact.told)
    return (told(f"✗ {name}: {text if text.startswith(fact.code) else f'{short(fact.code)}: {text}'}", "warn", 1),)


def _settled(name: str, fact: CallSettled) -> Line:
    by = short(fact.by, NAME)
    match fact.how:
        case "retry":
            return told(f"{name}: {by} wants it to run again", "warn", 1)
        case "result":
            return told(f"← {name}, given by {by}: {_contents(fact.parts)}", "warn", 1)
        case "stop":
            return told(f"{name}: {by} wants the run to stop over it", "warn", 1)
        case _:
            assert_never(fact.how)


def _child(package: Package, state: State, fact: ChildStarted) -> Line:
    agent = package.agents.get(fact.tool)
    name = name_of(state, fact.call)
    who = f"the agent {short(agent.name, NAME)}" if agent else "an agent"
    return told(
        f"{name}: {who} {'goes on' if _ran(state, fact.call) else 'begins'}{_share(fact.share, agent)}", "plain", 1
    )


def _share(share: Share, agent: Package | None) -> str:
    """What a child may spend: its part of its parent's budget, or its own if that is less."""
    found = []
    own = agent.budgets if agent else share
    share = Share(
        tokens=_least(share.tokens, own.tokens),
        cost=_least(share.cost, own.cost),
        tool_calls=_least(share.tool_calls, own.tool_calls),
    )
    if share.tokens is not None:
        found.append(f"{magnitude(share.tokens)} tokens")
    if share.cost is not None:
        found.append(dollars(share.cost))
    if share.tool_calls is not None:
        found.append(plural(share.tool_calls, "call"))
    return f", with at most {', '.join(found)}" if found else ""


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _spent(spent: Spent) -> str:
    found = [f"{magnitude(spent.tokens)} tokens"]
    if spent.cost:
        found.append(dollars(spent.cost))
    if spent.tool_calls:
        found.append(plural(spent.tool_calls, "call"))
    return ", ".join(found)
