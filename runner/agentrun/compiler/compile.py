"""From a spec file to a package: read, check, build, sub-agents included.

Nothing is imported, started or fetched here, and all problems of all files are given at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from pathlib import Path

import jsonschema_rs
from msgspec import UNSET, Struct

from agentrun.compiler.build import build
from agentrun.compiler.build_tools import Child
from agentrun.compiler.contracts import resolved
from agentrun.compiler.fingerprint import PackageFile, sealed
from agentrun.compiler.lint import lint
from agentrun.compiler.lock import Lock, lock_path, read_lock, route_name
from agentrun.compiler.resolve import Read, Spec, read_spec
from agentrun.core.package import Package
from agentrun.errors import SpecError
from agentrun.spec.files import FileRefused, read_inside
from agentrun.spec.problems import DocumentError, Problem, arrange, did_you_mean, quoted
from agentrun.spec.tree import at, place_of
from agentrun.spec.v1.agent import FallbackModel
from agentrun.spec.v1.tools import AgentTool


class Compiled(Struct, frozen=True):
    """What came of compiling a spec."""

    spec: Spec | None
    package: Package | None
    """The package; None when there are errors."""
    problems: tuple[Problem, ...]
    """Errors and warnings, sorted."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")


def compile_spec(path: Path, profile: str | None = None, settings: SequenceOf[str] = ()) -> Compiled:
    """Compiles a spec with one profile; problems are collected, not raised."""
    return _Compiler().compiled(read_spec(path, profile, settings), ())


def compiled_or_raise(
    path: Path, profile: str | None = None, settings: SequenceOf[str] = ()
) -> tuple[Spec, PackageFile]:
    """The same for callers that cannot go on without a package."""
    result = compile_spec(path, profile, settings)
    if result.spec is None or result.package is None:
        raise SpecError(result.errors)
    return result.spec, sealed(result.package)


def validate_spec(path: Path) -> list[Problem]:
    """Problems of a spec and of each of its profiles."""
    read = read_spec(path)
    problems = list(_Compiler().compiled(read, ()).problems)
    if not any(problem.severity == "error" for problem in problems):
        for profile in read.profiles:
            problems += compile_spec(path, profile).problems
    return arrange(problems)


class _Compiler:
    """Compiles a spec and its sub-agents."""

    def compiled(self, read: Read, trail: tuple[Path, ...]) -> Compiled:
        problems = list(read.problems)
        if read.spec is None:
            return Compiled(None, None, tuple(arrange(problems)))
        spec = read.spec
        problems += lint(spec)
        children, below = self._children(spec, (*trail, spec.path))
        problems += below
        lock, damaged = _lock(spec)
        problems += damaged or _prices(spec, lock)
        ordered = tuple(arrange(problems))
        if any(problem.severity == "error" for problem in ordered):
            return Compiled(spec, None, ordered)
        return Compiled(spec, build(spec, lock, children), ordered)

    def _children(self, spec: Spec, trail: tuple[Path, ...]) -> tuple[dict[str, Child], list[Problem]]:
        children: dict[str, Child] = {}
        problems: list[Problem] = []
        for name, tool in spec.agent.tools.items():
            if isinstance(tool, AgentTool):
                found = self._child(spec, name, tool, trail)
                problems += found.problems
                if found.spec and found.package:
                    description = found.spec.agent.description
                    children[name] = Child(found.package, None if description is UNSET else description)
        return children, problems

    def _child(self, spec: Spec, name: str, tool: AgentTool, trail: tuple[Path, ...]) -> Compiled:
        place = place_of(spec.root, ["tools", name, "spec"])
        try:
            path = read_inside(spec.project.root, place.source.path.parent, tool.spec).path
        except FileRefused as refused:
            return Compiled(None, None, (Problem(place, refused.code, refused.message, refused.hint),))
        if path in trail:
            loop = " → ".join(one.name for one in [*trail[trail.index(path) :], path])
            return Compiled(None, None, (Problem(place, "spec.agent_cycle", f"sub-agents call each other: {loop}"),))
        if len(trail) > spec.agent.limits.depth:
            message = f"sub-agents are nested deeper than limits.depth ({spec.agent.limits.depth})"
            return Compiled(None, None, (Problem(place, "spec.agent_depth", message),))
        child = self.compiled(read_spec(path, None if tool.profile is UNSET else tool.profile), trail)
        wrong = tuple(_child_params(spec, name, tool, child.spec)) if child.spec else ()
        warnings_left = tuple(problem for problem in child.problems if problem.severity == "error")
        return Compiled(child.spec, child.package, (*warnings_left, *wrong))


def _child_params(spec: Spec, name: str, tool: AgentTool, child: Spec) -> Iterator[Problem]:
    for param, value in tool.params.items():
        node = at(child.root, ["params", param])
        if node is None:
            place = place_of(spec.root, ["tools", name, "params", param], key=True)
            hint = did_you_mean(param, child.agent.params)
            yield Problem(place, "spec.unknown_param", f"the sub-agent has no param {quoted(param)}", hint)
            continue
        try:
            validator = jsonschema_rs.Draft202012Validator(resolved(node), offline=True)
        except (jsonschema_rs.ValidationError, ValueError):
            continue  # the child's own problems say so
        for error in validator.iter_errors(value):
            place = place_of(spec.root, ["tools", name, "params", param])
            yield Problem(place, "spec.wrong_value", f"the sub-agent refuses this value: {error.message[:200]}")


def _lock(spec: Spec) -> tuple[Lock | None, list[Problem]]:
    try:
        return read_lock(spec.path), []
    except DocumentError as error:
        return None, error.problems


def _prices(spec: Spec, lock: Lock | None) -> Iterator[Problem]:
    """A budget in dollars needs a price for every route that may be used."""
    if spec.agent.budgets.cost is UNSET:
        return
    model = spec.agent.model
    for index, one in enumerate([model, *model.fallback]):
        if isinstance(one, FallbackModel) and one.price is not UNSET:
            continue
        route = one if isinstance(one, str) else route_name(one)
        row = lock.routes.get(route) if lock else None
        if row is None or row.price is None:
            where: list[str | int] = ["model", "name"] if index == 0 else ["model", "fallback", index - 1]
            known = f"{lock_path(spec.path).name} has no price for it" if row else "it is not in the lock"
            message = f"budgets.cost needs a price for {quoted(route)}: {known}"
            hint = "give it a `price:`" if row else "run `agentrun lock SPEC`, or give it a `price:`"
            yield Problem(place_of(spec.root, where), "spec.no_price", message, hint)
