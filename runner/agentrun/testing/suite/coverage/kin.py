"""An agent and its sub-agents, each with the spec that it comes from."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, Struct

from agentrun.compiler.resolve import Spec, read_spec
from agentrun.core.package import Package
from agentrun.spec.files import read_inside
from agentrun.spec.tree import place_of
from agentrun.spec.v1.tools import AgentTool
from agentrun.testing.suite.coverage.branching import Branching, branching


class Agent(Struct, frozen=True):
    """A spec under a profile, compiled."""

    spec: Spec
    profile: str | None
    package: Package
    templates: tuple[Branching, ...]
    """Those with more than one way through them."""
    children: dict[str, Agent]
    """Its sub-agents, by the tool that calls them."""

    def all(self) -> Iterator[Agent]:
        """This one, and all below it."""
        yield self
        for child in self.children.values():
            yield from child.all()


def agent_of(spec: Spec, profile: str | None, package: Package) -> Agent:
    """The agent of a spec that was compiled: what it names can be read."""
    children = {
        name: _child(spec, name, tool, package.agents[name])
        for name, tool in spec.agent.tools.items()
        if isinstance(tool, AgentTool)
    }
    return Agent(spec, profile, package, branching(spec), children)


def _child(spec: Spec, name: str, tool: AgentTool, package: Package) -> Agent:
    base = place_of(spec.root, ["tools", name, "spec"]).source.path.parent
    profile = None if tool.profile is UNSET else tool.profile
    read = read_spec(read_inside(spec.project.root, base, tool.spec).path, profile)
    assert read.spec is not None, "it was compiled with its parent"
    return agent_of(read.spec, profile, package)
