"""The names that a cases file can use: tools, sinks, stages, hooks and rules of an agent and its sub-agents.

Rule 1  The tools of a sub-agent are written after the name of the sub-agent's tool: `read/library.search`.
Rule 2  A name that cannot be checked (a tool of a server, a sub-agent that cannot be read) is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import get_args

from msgspec import UNSET

from agentrun.compiler.lint_policy import ToolTargets, overlaps_any
from agentrun.compiler.lint_tools import KnownArguments, ToolLint
from agentrun.compiler.spec_reader import Spec, read_spec
from agentrun.core.package import matches_pattern
from agentrun.spec.source_files import FileRefused
from agentrun.spec.v1.policy import StageSpec
from agentrun.spec.v1.tools import AgentToolSpec, ToolSpec

STAGE_NAMES: tuple[str, ...] = get_args(StageSpec)
ASKING_STAGES = ("input", "output")
"""Stages, besides tool calls and deliveries, at which a person may be asked for approval."""

MAX_AGENT_DEPTH = 6


class AgentNames:
    def __init__(self, spec: Spec, above: tuple[Path, ...] = ()) -> None:
        self.spec = spec
        self._subjects = ToolTargets(spec.agent.tools)
        self._trail = (*above, spec.path)
        self._known: dict[str, bool] = {}
        self.rules = [rule.id for rule in spec.agent.policy.rules]

    @cached_property
    def children(self) -> dict[str, AgentNames | None]:
        """The sub-agents by the names of their tools. None: the spec cannot be read; its own check reports that."""
        found: dict[str, AgentNames | None] = {}
        for name, tool in self.spec.agent.tools.items():
            if not isinstance(tool, AgentToolSpec) or len(self._trail) == MAX_AGENT_DEPTH:
                continue
            try:
                path = self.spec.sub_agent_path(name, tool.spec)
            except FileRefused:
                found[name] = None
                continue
            if path not in self._trail:  # the check of the spec reports a cycle
                read = read_spec(path, None if tool.profile is UNSET else tool.profile)
                spec = read.spec or read.partial_spec  # the check of that spec reports its problems
                found[name] = None if spec is None else AgentNames(spec, self._trail)
        return found

    def has_own_tool(self, target: str) -> bool:
        return bool(self._subjects.matching_patterns(target))

    def has_tool(self, target: str) -> bool:
        """Return whether a target can mean a tool of the agent or, with a slash, of a sub-agent."""
        if target not in self._known:
            self._known[target] = self.has_own_tool(target) or self._below(target, AgentNames.has_tool)
        return self._known[target]

    def _below(self, target: str, has: Callable[[AgentNames, str], bool]) -> bool:
        return any(child is None or has(child, rest) for child, rest in self._matching_children(target))

    def _matching_children(self, target: str) -> Iterator[tuple[AgentNames | None, str]]:
        """Yield the sub-agents that `head/rest` can mean, each with the rest of the target."""
        head, slash, rest = target.partition("/")
        for name, child in self.children.items() if slash else ():
            if matches_pattern(head, name):
                yield child, rest

    def has_target(self, target: str, stages: tuple[str, ...] = STAGE_NAMES) -> bool:
        is_own = self.has_tool(target) or overlaps_any(target, (*stages, *self.spec.agent.sinks))
        return is_own or self._below(target, lambda child, rest: child.has_target(rest, stages))

    def any_agent(self, has: Callable[[AgentNames], bool], *, unknown: bool = True) -> bool:
        """Return whether `has` is true for the agent or a sub-agent. `unknown`: the value for an unreadable one."""
        return has(self) or any(
            unknown if child is None else child.any_agent(has, unknown=unknown) for child in self.children.values()
        )

    def any_sub_agent(self, has: Callable[[AgentNames], bool]) -> bool:
        return any(child is None or child.any_agent(has) for child in self.children.values())

    def has_sink(self, target: str) -> bool:
        return overlaps_any(target, self.spec.agent.sinks) or self._below(target, AgentNames.has_sink)

    def has_hook(self, target: str) -> bool:
        own = [hook.id for hook in self.spec.agent.hooks]
        return overlaps_any(target, own) or self._below(target, AgentNames.has_hook)

    def matching_tools(self, target: str) -> Iterator[ToolSpec | None]:
        """Yield the tools that a target may mean. None: an unknown tool."""
        for name in self._subjects.matching_tools([target]):
            yield self.spec.agent.tools[name]
        for child, rest in self._matching_children(target):
            yield from child.matching_tools(rest) if child is not None else [None]

    def args_of(self, target: str) -> Collection[str] | None:
        """Return the arguments of a tool. None: they are unknown, or the target may mean several tools."""
        head, slash, rest = target.partition("/")
        if not slash:
            return self._args.get(target)
        child = self.children.get(head)
        return None if child is None else child.args_of(rest)

    @cached_property
    def _args(self) -> KnownArguments:
        tools = ToolLint(self.spec, {}, None)
        for _ in tools.problems():
            pass  # the check of the spec reports them
        return tools.args

    def is_only_agents(self, target: str) -> bool:
        meant = list(self.matching_tools(target))
        return bool(meant) and all(isinstance(tool, AgentToolSpec) for tool in meant)

    @cached_property
    def tool_names(self) -> list[str]:
        own = list(self._subjects.patterns)
        below = [f"{name}/{each}" for name, child in self.children.items() if child for each in child.tool_names]
        return [*own, *below]

    def targets(self, stages: tuple[str, ...] = STAGE_NAMES) -> list[str]:
        return [*self.tool_names, *self.spec.agent.sinks, *stages]
