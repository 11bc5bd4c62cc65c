"""Which calls can be started now, and the effects that run them.

Rule 1  Calls of tools that may run together are started together; the others after them, one at a time, in call order.
Rule 2  A call that can do harm when it runs twice is never run again by itself: somebody has to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.canon import compact, data_hash
from agentrun.core.budget import carved, in_time
from agentrun.core.effects import Effect, RunChild, RunTool
from agentrun.core.facts import Parent
from agentrun.core.facts_base import Share
from agentrun.core.names import effect_of, find_tool
from agentrun.core.package import Package
from agentrun.core.package_tools import AgentTool, Tool
from agentrun.core.state import CallState, State

OPEN = ("new", "asking", "deferred", "denied", "ready", "started", "lost", "asleep", "abandoned")
"""Statuses of a call that has no result yet."""


def _may_run(call: CallState, tool: Tool) -> bool:
    """Whether a call is ready, or was lost and may run again."""
    if call.status != "lost":
        return call.status == "ready"
    return effect_of(tool, call.call.tool) != "at_most_once"


def ready_calls(package: Package, state: State) -> list[tuple[CallState, Tool]]:
    """The calls that can be started now."""
    if all(call.status not in ("ready", "lost") for call in state.calls):
        return []
    known = [
        (call, tool)
        for call in state.calls
        if call.status in OPEN and (tool := find_tool(package, call.call.tool)) is not None
    ]
    together = [each for each in known if each[1].parallel]
    return [(call, tool) for call, tool in together or known[:1] if _may_run(call, tool)]


def needs_somebody(package: Package, call: CallState) -> bool:
    """Whether a call waits for somebody outside."""
    if call.status != "lost":
        return call.status in ("asleep", "deferred")
    tool = find_tool(package, call.call.tool)
    return tool is None or not _may_run(call, tool)


def effects_of(package: Package, state: State, ready: list[tuple[CallState, Tool]]) -> Iterator[Effect]:
    children = sum(isinstance(tool, AgentTool) and call.share is None for call, tool in ready)
    children += _to_come(package, state) if children else 0
    held: list[Share] = []
    for call, tool in ready:
        if isinstance(tool, AgentTool):
            share = call.share
            if share is None:
                share = in_time(carved(package, state, held, children - len(held)), tool.timeout)
                if not package.agents[call.call.tool].agents:
                    share = replace(share, runs=UNSET)  # it can start nobody
                held.append(share)
            yield _child(package, state, call, tool, share)
        else:
            yield _run(package, state, call, tool)


def _to_come(package: Package, state: State) -> int:
    """Children that may run together with those that are ready, once a hook or a person has let them in."""
    tools = (package.tools.get(call.call.tool) for call in state.calls if call.status in ("new", "asking"))
    return sum(isinstance(tool, AgentTool) and tool.parallel for tool in tools)


def _run(package: Package, state: State, call: CallState, tool: Tool) -> RunTool:
    key = data_hash(compact([state.started.run, call.call.id, call.call.tool, call.arguments]))
    return RunTool(
        id=call.call.id,
        name=call.call.tool,
        tool=tool,
        arguments=call.arguments or {},
        key=key,
        max_lines=package.limits.output_lines,
        max_bytes=package.limits.output_bytes,
        params=state.started.params,
    )


def _child(package: Package, state: State, call: CallState, tool: AgentTool, share: Share) -> RunChild:
    started, arguments = state.started, call.arguments or {}
    depth = started.parent.depth + 1 if started.parent else 1
    return RunChild(
        id=call.call.id,
        name=call.call.tool,
        run=f"{started.run}.{call.call.id}",
        package=package.agents[call.call.tool],
        params={**{name: value for name, value in arguments.items() if name != "message"}, **tool.params},
        message=arguments.get("message"),
        parent=Parent(started.run, call.call.id, depth, share),
        max_lines=package.limits.output_lines,
        max_bytes=package.limits.output_bytes,
        seed=None if started.seed is UNSET else f"{started.seed}.{call.call.id}",
    )
