"""Which tools a target of a rule names.

The tools of an MCP server are not known here. What is known is which of them the agent may see (its `tools:`), as names
or globs; a target names them if the two have a tool in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentrun.core.names import matches
from agentrun.spec.v1.tools import McpTool, Tool


def meet(one: str, other: str) -> bool:
    """Whether some name matches both. Between two globs only what stands before the first and after the last star
    can disagree: everything else finds room in a star of the other."""
    if "*" not in other:
        return matches(one, other)
    if "*" not in one:
        return matches(other, one)
    (start, *_, end), (other_start, *_, other_end) = one.split("*"), other.split("*")
    begins = start.startswith(other_start) or other_start.startswith(start)
    return begins and (end.endswith(other_end) or other_end.endswith(end))


def covers(target: str, pattern: str) -> bool:
    """Whether a target matches every name that a pattern matches."""
    return matches(target, pattern.replace("*", "\0"))


class Subjects:
    """What can be called: the tools of an agent, those of its servers as far as they are known."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.tools = tools
        self.servers = [name for name, tool in tools.items() if isinstance(tool, McpTool)]
        self.patterns: dict[str, str] = {}
        """Name or glob of what can be called → the tool or server it belongs to."""
        for name, tool in tools.items():
            if isinstance(tool, McpTool):
                self.patterns.update({f"{name}.{inner}": name for inner in tool.tools})
            else:
                self.patterns[name] = name
        self._globs = [pattern for pattern in self.patterns if "*" in pattern]
        self._found: dict[str, tuple[str, ...]] = {}

    def named(self, target: str) -> tuple[str, ...]:
        """The patterns that a target has something in common with."""
        if target not in self._found:
            exact = [target] if target in self.patterns else []
            among = self.patterns if "*" in target else dict.fromkeys([*exact, *self._globs])
            self._found[target] = tuple(pattern for pattern in among if meet(target, pattern))
        return self._found[target]

    def tools_named(self, targets: Iterable[str]) -> set[str]:
        """The tools and servers that targets name something of."""
        return {self.patterns[pattern] for target in targets for pattern in self.named(target)}
