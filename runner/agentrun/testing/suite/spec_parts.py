"""The parts of a spec that cases can exercise, with their places.

What the spec declares counts. A code counts if something in the spec can cause it. `budget.*` and `guard.*` are not
codes here: budgets and guards are parts of their own. Failures of the provider and the default of a budget are listed
apart. Codes that depend only on the code of a tool, a crash, a damaged file or the machine are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

from msgspec import UNSET, Struct

from agentrun.compiler.lint_texts import PROMPT_PATHS
from agentrun.compiler.spec_reader import Spec, read_spec
from agentrun.compiler.template import bundle_template, is_template
from agentrun.compiler.template_branches import Branch, find_branches
from agentrun.core.package import BUDGET_KINDS, Package, argument_schemas, matches_pattern
from agentrun.spec.problems import Source, SourcePlace
from agentrun.spec.source_files import read_project_file
from agentrun.spec.tree import MappingNode, Node, ScalarNode, SequenceNode, node_at, place_at_path
from agentrun.spec.v1.tools import TOOL_TEMPLATE_KEYS, AgentToolSpec

SpecPath: TypeAlias = tuple[str | int, ...]
NamedPaths: TypeAlias = Iterator[tuple[str, SpecPath]]
PROVIDER_CODES = ("rate_limited", "overloaded", "transient", "timeout", "zero_output", "empty", "fatal")
GUARD_NAMES = ("repeated_call", "cycle", "repeated_batch", "stagnation", "empty_outcome")
STOPPING_POINTS = ("on_input", "before_model", "after_model", "on_output")
PartKind: TypeAlias = Literal[
    "prompt", "tool", "rule", "budget", "guard", "hook", "branch", "code", "provider fault", "default budget"
]
PART_KINDS: tuple[PartKind, ...] = get_args(PartKind)
APART_KINDS: tuple[PartKind, ...] = ("provider fault", "default budget")
"""Parts that every agent has without declaring them. They are listed, but do not count."""


class BranchingTemplate(Struct, frozen=True):
    where: str
    """Its path in the spec: `instructions/0`, `tools/fetch/url`."""
    node: ScalarNode
    source: str
    """Its text, with the files that it includes."""
    branches: tuple[Branch, ...]
    files: dict[str, Source]
    """The files by the names that it uses."""

    def mark(self, branch: str) -> str:
        """The name of a branch within the spec. A branch of an included file has one name in all templates."""
        file, _, own = branch.rpartition("@")
        return f"{self.files[file].path if file else self.where}@{own}"

    def place(self, branch: Branch) -> SourcePlace:
        if branch.file:
            return SourcePlace(self.files[branch.file], branch.line, branch.column)
        return self.node.place_at_line(branch.line, branch.column)


def find_branching_templates(spec: Spec) -> tuple[BranchingTemplate, ...]:
    """In the order of the keys of the spec."""
    files = {name: source.text for name, source in spec.templates.items()}
    bundles = ((where, node, bundle_template(node.text, files)) for where, node in _templates(spec))
    return tuple(
        BranchingTemplate(where, node, source, tuple(branches), spec.templates)
        for where, node, source in bundles
        if is_template(source) and (branches := find_branches(source))
    )


def _templates(spec: Spec) -> Iterator[tuple[str, ScalarNode]]:
    for path in PROMPT_PATHS:
        yield from _scalars("/".join(path), node_at(spec.root, path))
    for name, tool in spec.agent.tools.items():
        for key in TOOL_TEMPLATE_KEYS.get(str(tool.__struct_config__.tag), ()):
            yield from _scalars(f"tools/{name}/{key}", node_at(spec.root, ["tools", name, key]))


def _scalars(where: str, node: Node | None) -> Iterator[tuple[str, ScalarNode]]:
    match node:
        case ScalarNode() if isinstance(node.value, str):
            yield where, node
        case SequenceNode():
            for index, item in enumerate(node.items):
                yield from _scalars(f"{where}/{index}", item)
        case MappingNode():
            for key, entry in node.entries.items():
                yield from _scalars(f"{where}/{key}", entry.node)


class AgentTree(Struct, frozen=True):
    spec: Spec
    profile: str | None
    package: Package
    templates: tuple[BranchingTemplate, ...]
    children: dict[str, AgentTree]

    def all(self) -> Iterator[AgentTree]:
        yield self
        for child in self.children.values():
            yield from child.all()


def build_agent_tree(spec: Spec, profile: str | None, package: Package) -> AgentTree:
    children = {
        name: _child_tree(spec, name, tool, package.agents[name])
        for name, tool in spec.agent.tools.items()
        if isinstance(tool, AgentToolSpec)
    }
    return AgentTree(spec, profile, package, find_branching_templates(spec), children)


def _child_tree(spec: Spec, name: str, tool: AgentToolSpec, package: Package) -> AgentTree:
    base = place_at_path(spec.root, ["tools", name, "spec"]).source.path.parent
    profile = None if tool.profile is UNSET else tool.profile
    read = read_spec(read_project_file(spec.project.root, base, tool.spec).path, profile)
    assert read.spec is not None, "compiled with its parent"
    return build_agent_tree(read.spec, profile, package)


def codes_of(agent: AgentTree) -> NamedPaths:
    """The codes, each with the path of its cause in the spec."""
    if agent.package.tools:
        yield from _tool_codes(agent)
    yield from _policy_codes(agent)
    yield from _text_codes(agent)


def guards_of(agent: AgentTree) -> NamedPaths:
    """The guards in the spec that are not off. The limit `parallel_tools` counts as a guard."""
    for name in GUARD_NAMES:
        if _is_written(agent, "guards", name) and getattr(agent.package.guards, name) is not None:
            yield name, ("guards", name)
    if _is_written(agent, "limits", "parallel_tools") and agent.package.tools:
        yield "parallel_tools", ("limits", "parallel_tools")


def _tool_codes(agent: AgentTree) -> NamedPaths:
    package = agent.package
    for name in ("unknown", "execution", "timeout"):
        yield f"tool.{name}", ("tools",)
    schemas = argument_schemas(package.tools)
    arguments = [name for name, schema in schemas.items() if schema.get("properties")]
    required = [name for name, schema in schemas.items() if schema.get("required")]
    hidden = [name for name, tool in package.tools.items() if tool.visible is not None]
    for code, names in (("invalid_arguments", arguments), ("missing_field", required), ("hidden", hidden)):
        if names:
            owner = names[0] if names[0] in package.tools else names[0].partition(".")[0]
            yield f"tool.{code}", ("tools", owner)
    if package.limits.on_oversize_batch != "fail":
        yield "tool.invalid_call", ("limits", "on_oversize_batch")
    elif package.agents and _is_written(agent, "limits", "runs"):
        yield "tool.invalid_call", ("limits", "runs")
    if (path := _denial_path(agent)) is not None:
        yield "tool.denied", path


def _denial_path(agent: AgentTree) -> SpecPath | None:
    """The part of the spec that can deny a call or its result."""
    for index, rule in enumerate(agent.spec.agent.policy.rules):
        ruling = _ruling(agent.package, rule.id)
        if rule.on in ("tool_call", "tool_result") and ruling in ("deny", "ask"):
            return "policy", "rules", index
    for index, hook in enumerate(agent.spec.agent.hooks):
        if hook.at in ("before_tool", "after_tool"):
            return "hooks", index
    always = [rule for rule in agent.package.policy.rules if rule.on == "tool_call" and rule.when is None]
    names = argument_schemas(agent.package.tools)
    sure = {name for name in names for rule in always if any(matches_pattern(target, name) for target in rule.targets)}
    return ("policy", "default") if agent.package.policy.default != "allow" and len(sure) < len(names) else None


def _policy_codes(agent: AgentTree) -> NamedPaths:
    denied: SpecPath | None = None
    asked: SpecPath | None = None
    for index, rule in enumerate(agent.spec.agent.policy.rules):
        path: SpecPath = ("policy", "rules", index)
        match _ruling(agent.package, rule.id):
            case "interrupt":
                yield "policy.interrupted", path
            case "deny" if rule.on not in ("tool_call", "tool_result"):
                denied = denied or path
            case "ask":
                asked = asked or path
    for index, hook in enumerate(agent.spec.agent.hooks):
        if hook.at in STOPPING_POINTS:
            denied = denied or ("hooks", index)
    if agent.package.policy.default == "ask" and agent.package.tools:
        asked = asked or ("policy", "default")
    if denied:
        yield "policy.denied", denied
    if asked:
        yield "approval.denied", asked
        yield "approval.timed_out", asked


def _text_codes(agent: AgentTree) -> NamedPaths:
    package = agent.package
    if _is_written(agent, "context") or _is_written(agent, "model", "context_window"):
        place: SpecPath = ("context",) if _is_written(agent, "context") else ("model", "context_window")
        yield "context.overflow", place
        if package.context.overflow == "compact":
            yield "context.failed", place
    if package.admission.max_chars is not None:
        yield "input.rejected", ("admission", "max_chars")
    if package.output.schema is not None:
        yield "output.invalid", ("output", "schema")
    if open_sinks := [name for name, sink in package.sinks.items() if sink.delivery != "disabled"]:
        yield "delivery.failed", ("sinks", open_sinks[0])


def _ruling(package: Package, rule: str) -> str:
    return next(each.ruling for each in package.policy.rules if each.id == rule)


def _is_written(agent: AgentTree, *path: str) -> bool:
    node = node_at(agent.spec.root, path)
    return node is not None and not (isinstance(node, MappingNode) and not node.entries)


class SpecPart(Struct, frozen=True):
    kind: PartKind
    name: str
    """For people."""
    mark: str
    place: SourcePlace

    @property
    def identity(self) -> tuple[object, ...]:
        """The same with and without a profile. Branches of a template are the same if they have the same place."""
        if self.kind == "branch":
            return self.kind, self.mark, self.place.source.path, self.place.line, self.place.column
        return self.kind, self.mark


def list_spec_parts(agent: AgentTree) -> Iterator[SpecPart]:
    """The parts, kind by kind, in the order of the spec."""
    package, written = agent.package, agent.spec.agent
    for prompt in PROMPT_PATHS:
        if _is_written(agent, *prompt):
            yield SpecPart(
                "prompt", ".".join(prompt), "/".join(prompt), place_at_path(agent.spec.root, prompt, key=True)
            )
    callable_tools = argument_schemas({name: package.tools[name] for name in written.tools})
    for name in callable_tools:
        owner = name if name in package.tools else name.partition(".")[0]
        yield _make_part(agent, "tool", name, ("tools", owner))
    for index, rule in enumerate(written.policy.rules):
        yield _make_part(agent, "rule", rule.id, ("policy", "rules", index))
    for name in BUDGET_KINDS:
        if _is_written(agent, "budgets", name):
            yield _make_part(agent, "budget", name, ("budgets", name))
    for name, path in guards_of(agent):
        yield _make_part(agent, "guard", name, path)
    for index, hook in enumerate(written.hooks):
        yield _make_part(agent, "hook", hook.id, ("hooks", index))
    for template in agent.templates:
        yield from _branch_parts(template, package)
    for name, path in codes_of(agent):
        yield _make_part(agent, "code", name, path)
    for name in PROVIDER_CODES:
        yield _make_part(agent, "provider fault", f"provider.{name}", ("model",))
    if not _is_written(agent, "budgets", "turns"):
        yield _make_part(agent, "default budget", "turns", ("model",))


def _make_part(agent: AgentTree, kind: PartKind, name: str, path: SpecPath) -> SpecPart:
    return SpecPart(kind, name, name, place_at_path(agent.spec.root, path, key=True))


def _branch_parts(template: BranchingTemplate, package: Package) -> Iterator[SpecPart]:
    for branch in template.branches:
        schema = package.params.get(branch.over, {})
        if branch.way == "none" and schema.get("minItems", 0) > 0:
            continue  # the list is never empty
        yield SpecPart("branch", branch.text, template.mark(branch.mark), template.place(branch))
