"""The parts of an agent that cases can exercise, each with its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from agentrun.core.names import schemas_of
from agentrun.core.package import Package
from agentrun.spec.problems import Place
from agentrun.spec.tree import place_of
from agentrun.testing.suite.coverage.branching import Branching
from agentrun.testing.suite.coverage.codes import Path, budgets_of, codes_of, guards_of
from agentrun.testing.suite.coverage.kin import Agent

Kind: TypeAlias = Literal["tool", "rule", "budget", "guard", "hook", "branch", "code"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Part(Struct, frozen=True):
    """Something that is written in a spec."""

    kind: Kind
    name: str
    """For people."""
    mark: str
    """The name by which journals know it."""
    place: Place

    @property
    def identity(self) -> tuple[object, ...]:
        """What is the same with and without a profile. Templates are, if they stand in the same place."""
        if self.kind == "branch":
            return self.kind, self.mark, self.place.source.path, self.place.line, self.place.column
        return self.kind, self.mark


def parts_of(agent: Agent) -> Iterator[Part]:
    """The parts, kind by kind, in the order of the spec."""
    package, written = agent.package, agent.spec.agent
    callable_tools = schemas_of({name: package.tools[name] for name in written.tools})
    for name in callable_tools:
        owner = name if name in package.tools else name.partition(".")[0]
        yield _part(agent, "tool", name, ("tools", owner))
    for index, rule in enumerate(written.policy.rules):
        yield _part(agent, "rule", rule.id, ("policy", "rules", index))
    for name, path in budgets_of(agent):
        yield _part(agent, "budget", name, path)
    for name, path in guards_of(agent):
        yield _part(agent, "guard", name, path)
    for index, hook in enumerate(written.hooks):
        yield _part(agent, "hook", hook.id, ("hooks", index))
    for template in agent.templates:
        yield from _branches(template, package)
    for name, path in codes_of(agent):
        yield _part(agent, "code", name, path)


def _part(agent: Agent, kind: Kind, name: str, path: Path) -> Part:
    return Part(kind, name, name, place_of(agent.spec.root, path, key=True))


def _branches(template: Branching, package: Package) -> Iterator[Part]:
    for branch in template.branches:
        schema = package.params.get(branch.over, {})
        if branch.way == "none" and schema.get("minItems", 0) > 0:
            continue  # it can never be empty
        place = template.node.place_in(branch.line, branch.column)
        yield Part("branch", branch.text, template.mark(branch.mark), place)
