"""Compile a spec file and its sub-agents to a package: read, check, build.

Nothing is imported, started or fetched. The problems of all files are reported together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import jsonschema_rs
from msgspec import UNSET, Struct

from agentrun.compiler.build import CompiledChild, build_package
from agentrun.compiler.json_schemas import first_error, resolve_references
from agentrun.compiler.lint import lint_spec
from agentrun.compiler.lint_texts import MAX_SECRETS, default_render_problems, secrets_in_node
from agentrun.compiler.lock_file import LOCK_AGAIN_HINT, Lock, lock_path, read_lock, unpinned_problems
from agentrun.compiler.package_file import PackageFile, read_package, seal_package
from agentrun.compiler.size_limits import exceeded_limits
from agentrun.compiler.spec_reader import Spec, SpecReadResult, is_consequence, read_spec
from agentrun.core.package import Package
from agentrun.errors import SpecError
from agentrun.providers.codec import CODECS, codec_for
from agentrun.spec.problems import (
    DocumentError,
    Problem,
    ProblemError,
    SourcePlace,
    did_you_mean,
    quote_text,
    sort_problems,
)
from agentrun.spec.source_files import FileRefused
from agentrun.spec.tree import DocumentPath
from agentrun.spec.v1.tools import AgentToolSpec
from agentrun.spec.yaml_parser import MAX_PROBLEMS

MAX_SUB_AGENTS = 100
"""The maximum number of sub-agents below one agent. Each call site counts."""
MAX_SPEC_TEXT = 3 * 1024 * 1024
"""The maximum number of characters in a spec with its files, sub-agents and profiles."""


class CompileResult(Struct, frozen=True):
    spec: Spec | None
    package: Package | None
    """The package; None if there are errors."""
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        return _errors(self.problems)


def compile_spec(
    path: Path, profile: str | None = None, settings: Sequence[str] = (), *, needs_lock: bool = True
) -> CompileResult:
    """Compile a spec with one profile. Problems are returned, not raised.

    `needs_lock`: whether it is an error that the lock file lacks something. A package that lacks it cannot be run.
    """
    return _Compiler(needs_lock=needs_lock).compile(read_spec(path, profile, settings), ())


def compile_or_raise(
    path: Path, profile: str | None = None, settings: Sequence[str] = (), *, needs_lock: bool = True
) -> tuple[Spec, PackageFile]:
    result = compile_spec(path, profile, settings, needs_lock=needs_lock)
    if result.spec is None or result.package is None:
        raise SpecError(result.errors)
    return result.spec, seal_package(result.package)


def validate_spec(path: Path) -> list[Problem]:
    read = read_spec(path)
    compiler = _Compiler(renders=True)
    problems = list(compiler.compile(read, ()).problems)
    if read.spec is not None and not _errors(problems):
        for profile in read.profiles:
            if compiler.text > MAX_SPEC_TEXT:
                message = "with all its profiles and sub-agents the spec is too large to check"
                hint = "use fewer profiles, or smaller files"
                problems.append(read.spec.at("profiles", profile).key_problem("spec.too_large", message, hint))
                break
            problems += compiler.compile(read_spec(path, profile, document=read.document), ()).problems
    return sort_problems(problems)


class _CallingAgent(NamedTuple):
    path: Path
    depth: int
    """How deep sub-agents may be nested below it."""
    place: SourcePlace | None
    """The place of the call; None for the first agent."""
    paid: bool
    """Whether there is a budget in dollars for everything below."""


class _Compiler:
    def __init__(self, *, renders: bool = False, needs_lock: bool = True) -> None:
        self._renders = renders
        """Whether the prompts are rendered too, with the default params."""
        self._needs_lock = needs_lock
        self.agents = 0
        self.text = 0
        """The characters of all compiled specs. A spec counts each time it is compiled."""
        self._failed_children: dict[tuple[Path, str | None], CompileResult] = {}
        """Sub-agents with errors, so that each is compiled only once."""

    def compile(
        self,
        read: SpecReadResult,
        trail: tuple[_CallingAgent, ...],
        called_at: SourcePlace | None = None,
        tool: AgentToolSpec | None = None,
    ) -> CompileResult:
        """`called_at`, `tool`: the call of a sub-agent."""
        problems = list(read.problems)
        spec = read.spec or read.partial_spec
        if read.spec is None and read.document is not None and read.document.root is not None:
            problems += islice(secrets_in_node(read.document.root), MAX_SECRETS)
        if spec is None:
            return CompileResult(None, None, _first_problems(problems))
        self.text += spec.size
        beyond = list(exceeded_limits(spec))
        if beyond:
            return CompileResult(read.spec, None, _first_problems([*problems, *beyond]))
        paid = spec.agent.budgets.cost is not UNSET or any(step.paid for step in trail)
        children, below = self._children(
            spec, (*trail, _CallingAgent(spec.path, spec.agent.limits.depth, called_at, paid))
        )
        lock, damaged = None, list[Problem]()
        try:
            lock = read_lock(spec.path)
        except DocumentError as error:
            damaged = error.problems
        problems += lint_spec(spec, read.incomplete_sections, children, lock)
        problems += below
        prices = _missing_prices(spec, lock) if paid else ()
        missing = chain(prices, unpinned_problems(spec, lock.servers if lock else {})) if self._needs_lock else ()
        problems += damaged or [problem for problem in missing if not is_consequence(problem, read.incomplete_sections)]
        foremost = _first_problems(problems)
        if read.spec is None or _errors(foremost):
            return CompileResult(read.spec, None, foremost)
        try:
            package = build_package(spec, lock, children)
        except ProblemError as changed:  # a file that was there a moment ago
            return CompileResult(spec, None, (changed.problem(spec.at().place),))
        renders = default_render_problems(spec, tool.params if tool else {}) if self._renders else ()
        foremost = _first_problems([*foremost, *unsupported_features(spec, package), *renders])
        return CompileResult(spec, None if _errors(foremost) else package, foremost)

    def _children(self, spec: Spec, trail: tuple[_CallingAgent, ...]) -> tuple[dict[str, CompiledChild], list[Problem]]:
        children: dict[str, CompiledChild] = {}
        problems: list[Problem] = []
        for name, tool in spec.agent.tools.items():
            if isinstance(tool, AgentToolSpec):
                found = self._child(spec, name, tool, trail)
                problems += found.problems
                if found.spec and found.package:
                    description = found.spec.agent.description
                    children[name] = CompiledChild(found.package, None if description is UNSET else description)
        return children, problems

    def _child(self, spec: Spec, name: str, tool: AgentToolSpec, trail: tuple[_CallingAgent, ...]) -> CompileResult:
        place = spec.at("tools", name, "spec").place
        self.agents += 1
        if self.agents > MAX_SUB_AGENTS or self.text > MAX_SPEC_TEXT:
            message = f"there are more than {MAX_SUB_AGENTS} sub-agents, or their specs are too large together"
            return CompileResult(None, None, (Problem(place, "spec.too_large", message, "use fewer sub-agents"),))
        try:
            path = spec.sub_agent_path(name, tool.spec)
        except FileRefused as refused:
            return CompileResult(None, None, (refused.problem(place),))
        refusal = _cycle_problem(path, place, trail) or _depth_problem(place, trail)
        if refusal is not None:
            return CompileResult(None, None, (refusal,))
        profile = None if tool.profile is UNSET else tool.profile
        child = self._failed_children.get((path, profile)) or self.compile(read_spec(path, profile), trail, place, tool)
        if child.package is None:
            self._failed_children[path, profile] = child
        wrong = _child_param_problems(spec.at("tools", name, "params"), tool, child.spec) if child.spec else ()
        return CompileResult(child.spec, child.package, (*child.errors, *wrong))


def _cycle_problem(path: Path, place: SourcePlace, trail: tuple[_CallingAgent, ...]) -> Problem | None:
    """Find a cycle of sub-agents. It is always reported at the same call, whichever agent is compiled first."""
    at = next((index for index, step in enumerate(trail) if step.path == path), None)
    if at is None:
        return None
    around = [step._replace(place=place) if step.path == path else step for step in trail[at:]]
    first = min(range(len(around)), key=lambda index: around[index].path)
    if len(around) == 1:
        return Problem(place, "spec.agent_cycle", "an agent cannot be its own sub-agent", "remove this tool")
    names = [step.path.name for step in around[first:] + around[:first]]
    message = f"sub-agents call each other: {' → '.join([*names, names[0]])}"
    return Problem(around[first].place or place, "spec.agent_cycle", message, "remove one of these calls")


def _depth_problem(place: SourcePlace, trail: tuple[_CallingAgent, ...]) -> Problem | None:
    for above, step in enumerate(trail):
        if len(trail) - above > step.depth:
            message = f"sub-agents are nested deeper than limits.depth ({step.depth}) of {step.path.name} allows"
            return Problem(place, "spec.agent_depth", message, "call this agent from an agent further up")
    return None


def _errors(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(problem for problem in problems if problem.severity == "error")


def _first_problems(problems: list[Problem]) -> tuple[Problem, ...]:
    """Sort the problems. If there are very many, keep only the first errors."""
    ordered = sort_problems(problems)
    errors = _errors(ordered)
    return tuple(ordered) if len(errors) <= MAX_PROBLEMS else errors[:MAX_PROBLEMS]


def _child_param_problems(params: DocumentPath, tool: AgentToolSpec, child: Spec) -> Iterator[Problem]:
    for param, value in tool.params.items():
        node = child.at("params", param).node
        if node is None:
            message = f"the sub-agent has no param {quote_text(param)}"
            hint = did_you_mean(param, child.agent.params)
            yield params.at(param).key_problem("spec.unknown_param", message, hint)
            continue
        try:
            error = first_error(resolve_references(node), value)
        except (DocumentError, jsonschema_rs.ValidationError, ValueError):
            continue  # reported with the sub-agent's own problems
        if error is not None:
            message = f"the sub-agent does not accept this value: {error[:200]}"
            yield params.at(param).problem("spec.wrong_value", message)


def _missing_prices(spec: Spec, lock: Lock | None) -> Iterator[Problem]:
    """A budget in dollars needs a price for every route."""
    for index, model in enumerate(spec.agent.model.routes):
        row = lock.routes.get(model.route) if lock else None
        if model.price is UNSET and (row is None or row.price is None):
            path = spec.at("model", "name") if index == 0 else spec.at("model", "fallback", index - 1)
            reason = f"{lock_path(spec.path).name} has none" if row else "it is not in the lock file"
            message = f"budgets.cost needs a price for {quote_text(model.route)}, but {reason}"
            hint = "add a `price:`" if row else f"{LOCK_AGAIN_HINT}, or add a `price:`"
            yield path.problem("spec.no_price", message, hint)


def unsupported_features(spec: Spec, package: Package) -> Iterator[Problem]:
    """Yield each setting that a provider does not support, at its key, once for each route."""
    for index, route in enumerate(package.model.routes):
        if route.provider not in CODECS:
            continue
        codec = codec_for(route.provider)
        for sentence in codec.problems(package.model, route, package.tools, package.output.schema is not None):
            hint = "remove it, or use another route" if index == 0 else "remove it, or this fallback"
            yield Problem(_feature_place(spec, sentence, index), "spec.unsupported", sentence, hint)


def _feature_place(spec: Spec, sentence: str, index: int) -> SourcePlace:
    """Return the place of the key at the start of a sentence; for a fallback, of the fallback itself."""
    if index > 0:
        return spec.at("model", "fallback", index - 1).place
    path = sentence.partition(":")[0].partition(" ")[0].split(".")
    while len(path) > 1 and spec.at(*path).node is None:
        path.pop()
    return spec.at(*path).key_place if spec.at(*path).node is not None else spec.at("model").key_place


def compile(path: str | Path, *, profile: str | None = None, settings: Sequence[str] = ()) -> PackageFile:
    """Compile a spec. Raises SpecError with all its problems."""
    return compile_or_raise(Path(path), profile, settings)[1]


def load(path: str | Path) -> PackageFile:
    """Load a compiled package and verify it. Raises PackageError."""
    return read_package(Path(path))
