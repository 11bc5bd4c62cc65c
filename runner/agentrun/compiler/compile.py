"""From a spec file to a package: read, check, build, sub-agents included.

Nothing is imported, started or fetched here, and all problems of all files are given at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import jsonschema_rs
from msgspec import UNSET, Struct

from agentrun.compiler.abilities import unsupported
from agentrun.compiler.bounds import beyond_bounds
from agentrun.compiler.build import build
from agentrun.compiler.build_tools import Child
from agentrun.compiler.contracts import resolved
from agentrun.compiler.fingerprint import PackageFile, sealed
from agentrun.compiler.lint import lint
from agentrun.compiler.lint_texts import MOST_SECRETS, secret_problems
from agentrun.compiler.lock import Lock, lock_path, read_lock, route_name
from agentrun.compiler.pins import unpinned
from agentrun.compiler.resolve import Read, Spec, read_spec
from agentrun.compiler.salvage import follows
from agentrun.core.package import Package
from agentrun.errors import SpecError
from agentrun.spec.document import MAX_PROBLEMS
from agentrun.spec.files import FileRefused, read_inside
from agentrun.spec.problems import DocumentError, Place, Problem, arrange, did_you_mean, quoted
from agentrun.spec.tree import at, place_of
from agentrun.spec.v1.agent import FallbackModel
from agentrun.spec.v1.tools import AgentTool

MOST_AGENTS = 100
"""Sub-agents below one agent, each counted as often as it is called."""
MOST_TEXT = 3 * 1024 * 1024
"""Characters of a spec with its files, its sub-agents and all its profiles."""


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
    compiler = _Compiler()
    problems = list(compiler.compiled(read, ()).problems)
    if read.spec is not None and not any(problem.severity == "error" for problem in problems):
        for profile in read.profiles:
            if compiler.text > MOST_TEXT:
                place = place_of(read.spec.root, ["profiles", profile], key=True)
                message = "with all its profiles and sub-agents the spec is too large to be checked"
                problems.append(Problem(place, "spec.too_large", message, "use fewer profiles, or smaller files"))
                break
            problems += compiler.compiled(read_spec(path, profile, document=read.document), ()).problems
    return arrange(problems)


class _Trail(NamedTuple):
    """An agent on the way to a sub-agent."""

    path: Path
    depth: int
    """How deep sub-agents may be below it."""
    place: Place | None
    """Where it is called; None for the first."""
    paid: bool
    """Whether what is spent below counts against a budget in dollars."""


class _Compiler:
    """Compiles a spec and its sub-agents."""

    def __init__(self) -> None:
        self.agents = 0
        self.text = 0
        """Characters of all specs that were compiled, each time one was."""
        self._refused: dict[tuple[Path, str | None], Compiled] = {}
        """Sub-agents that cannot be used: what is wrong with one is found once, however often it is called."""

    def compiled(self, read: Read, trail: tuple[_Trail, ...], called_at: Place | None = None) -> Compiled:
        problems = list(read.problems)
        spec = read.spec or read.rest
        if read.spec is None and read.document is not None and read.document.root is not None:
            problems += islice(secret_problems(read.document.root, ""), MOST_SECRETS)
        if spec is None:
            return Compiled(None, None, _foremost(problems))
        self.text += spec.size
        beyond = list(beyond_bounds(spec))
        if beyond:
            return Compiled(read.spec, None, _foremost([*problems, *beyond]))
        problems += lint(spec, read.doubtful)
        paid = spec.agent.budgets.cost is not UNSET or any(step.paid for step in trail)
        children, below = self._children(spec, (*trail, _Trail(spec.path, spec.agent.limits.depth, called_at, paid)))
        lock, damaged = _lock(spec)
        problems += below
        prices = _prices(spec, lock) if paid else ()
        missing = chain(prices, unpinned(spec, lock.servers if lock else {}))
        problems += damaged or [problem for problem in missing if not follows(problem, read.doubtful)]
        foremost = _foremost(problems)
        if read.spec is None or any(problem.severity == "error" for problem in foremost):
            return Compiled(read.spec, None, foremost)
        package = build(spec, lock, children)
        foremost = _foremost([*foremost, *unsupported(spec, package)])
        is_wrong = any(problem.severity == "error" for problem in foremost)
        return Compiled(spec, None if is_wrong else package, foremost)

    def _children(self, spec: Spec, trail: tuple[_Trail, ...]) -> tuple[dict[str, Child], list[Problem]]:
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

    def _child(self, spec: Spec, name: str, tool: AgentTool, trail: tuple[_Trail, ...]) -> Compiled:
        place = place_of(spec.root, ["tools", name, "spec"])
        self.agents += 1
        if self.agents > MOST_AGENTS or self.text > MOST_TEXT:
            message = f"there are more than {MOST_AGENTS} sub-agents in all, or their specs are too large together"
            return Compiled(None, None, (Problem(place, "spec.too_large", message, "use fewer sub-agents"),))
        try:
            path = read_inside(spec.project.root, place.source.path.parent, tool.spec).path
        except FileRefused as refused:
            return Compiled(None, None, (Problem(place, refused.code, refused.message, refused.hint),))
        refusal = _cycle(path, place, trail) or _too_deep(place, trail)
        if refusal is not None:
            return Compiled(None, None, (refusal,))
        profile = None if tool.profile is UNSET else tool.profile
        child = self._refused.get((path, profile)) or self.compiled(read_spec(path, profile), trail, place)
        if child.package is None:
            self._refused[path, profile] = child
        wrong = tuple(_child_params(spec, name, tool, child.spec)) if child.spec else ()
        warnings_left = tuple(problem for problem in child.problems if problem.severity == "error")
        return Compiled(child.spec, child.package, (*warnings_left, *wrong))


def _cycle(path: Path, place: Place, trail: tuple[_Trail, ...]) -> Problem | None:
    """A circle of sub-agents, always told at the same call, whichever of them is looked at first."""
    at = next((index for index, step in enumerate(trail) if step.path == path), None)
    if at is None:
        return None
    around = [step._replace(place=place) if step.path == path else step for step in trail[at:]]
    first = min(range(len(around)), key=lambda index: around[index].path)
    if len(around) == 1:
        return Problem(place, "spec.agent_cycle", "an agent cannot be its own sub-agent", "remove this tool")
    names = [step.path.name for step in around[first:] + around[:first]]
    message = f"sub-agents call each other: {' → '.join([*names, names[0]])}"
    return Problem(around[first].place or place, "spec.agent_cycle", message, "let one do its part without the other")


def _too_deep(place: Place, trail: tuple[_Trail, ...]) -> Problem | None:
    for above, step in enumerate(trail):
        if len(trail) - above > step.depth:
            message = f"sub-agents are nested deeper than limits.depth ({step.depth}) of {step.path.name} allows"
            return Problem(place, "spec.agent_depth", message, "call this agent from one that is higher up")
    return None


def _foremost(problems: list[Problem]) -> tuple[Problem, ...]:
    """The problems in order; of very many only errors, and only the first of them."""
    ordered = arrange(problems)
    errors = [problem for problem in ordered if problem.severity == "error"]
    return tuple(ordered if len(errors) <= MAX_PROBLEMS else errors[:MAX_PROBLEMS])


def _child_params(spec: Spec, name: str, tool: AgentTool, child: Spec) -> Iterator[Problem]:
    for param, value in tool.params.items():
        node = at(child.root, ["params", param])
        if node is None:
            place = place_of(spec.root, ["tools", name, "params", param], key=True)
            hint = did_you_mean(param, child.agent.params)
            yield Problem(place, "spec.unknown_param", f"the sub-agent has no param {quoted(param)}", hint)
            continue
        try:
            validator = jsonschema_rs.Draft202012Validator(
                resolved(node), offline=True, mask="the value", pattern_options=jsonschema_rs.RegexOptions()
            )
        except (jsonschema_rs.ValidationError, ValueError):
            continue  # the child's own problems say so
        for error in islice(validator.iter_errors(value), 1):
            place = place_of(spec.root, ["tools", name, "params", param])
            yield Problem(place, "spec.wrong_value", f"the sub-agent refuses this value: {error.message[:200]}")


def _lock(spec: Spec) -> tuple[Lock | None, list[Problem]]:
    try:
        return read_lock(spec.path), []
    except DocumentError as error:
        return None, error.problems


def _prices(spec: Spec, lock: Lock | None) -> Iterator[Problem]:
    """A budget in dollars needs a price for every route that may be used."""
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
