"""Read a spec file with its files, profile and settings, check it against its schema, and convert it to models.

The steps are: text → tree → schema → files → profile and settings → schema again → models. The problems of all steps
are collected. Invalid parts are removed and the steps continue with the rest, so that a misspelt key does not hide a
mistake in a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from agentrun.compiler.file_references import FileInliner
from agentrun.spec.document_loader import Document, apply_overlay, load_document, parse_setting
from agentrun.spec.problems import DocumentError, Problem, Source, SourcePlace, did_you_mean, quote_text
from agentrun.spec.project import Project, find_project
from agentrun.spec.schema_check import SchemaProblem, find_schema_problems
from agentrun.spec.source_files import read_referenced_file, read_source
from agentrun.spec.tree import DocumentPath, MappingEntry, MappingNode, Node, SequenceNode, make_mapping, plain_data
from agentrun.spec.v1.agent import SHARED_KEYS, Agent
from agentrun.spec.yaml_parser import MAX_DOCUMENT_DEPTH

AGENT_SECTIONS = frozenset(Agent.__struct_fields__)
_LISTS = (("tools",), ("params",), ("sinks",), ("profiles",), ("hooks",), ("policy", "rules"), ("replay", "redact"))
"""Sections whose entries can be removed one by one."""
SECTIONS_BEHIND_PROBLEM: dict[str, frozenset[str]] = {
    "spec.template_unknown_name": frozenset({"params"}),
    "spec.unknown_tool": frozenset({"tools"}),
    "spec.unknown_arg": frozenset({"tools"}),
    "spec.unknown_param": frozenset({"params"}),
    "spec.no_budget": frozenset({"budgets"}),
    "spec.no_price": frozenset({"model", "budgets"}),
    "spec.no_schema": frozenset({"output"}),
    "spec.unknown_provider": frozenset({"model"}),
    "spec.env_here": frozenset({"params"}),
}
"""Problems that can be a consequence of an incomplete section, with these sections. `lint_policy.py` does the same for
the policy."""
_PLACEHOLDERS = {"agentrun": "1", "name": "x", "model": {"provider": "x", "name": "x"}, "instructions": "x"}
"""Values for missing required keys."""


class Spec(Struct, frozen=True):
    """A spec that matches its schema. The semantic checks run when it is compiled."""

    source: Source
    project: Project
    root: MappingNode
    """The whole document, with all files inlined."""
    agent: Agent
    files: tuple[Source, ...] = ()
    templates: dict[str, Source] = {}
    """The files that its prompts include or import, by the name they use."""

    @property
    def path(self) -> Path:
        return self.source.path

    @property
    def size(self) -> int:
        return sum(len(source.text) for source in (self.source, *self.files))

    def at(self, *path: str | int) -> DocumentPath:
        return DocumentPath(self.root, path)

    def sub_agent_path(self, tool: str, written: str) -> Path:
        """Return the path of the spec that a tool names. Raises `FileRefused`."""
        folder = self.at("tools", tool, "spec").place.source.path.parent
        return read_referenced_file(self.project.root, folder, written).path


class SpecReadResult(Struct, frozen=True):
    spec: Spec | None
    problems: tuple[Problem, ...]
    profiles: tuple[str, ...] = ()
    partial_spec: Spec | None = None
    """The valid parts of a spec with problems. Use it only to find more problems."""
    incomplete_sections: frozenset[str] = frozenset()
    document: Document | None = None
    """The complete document, as it was written."""


def read_spec(
    path: Path, profile: str | None = None, settings: Sequence[str] = (), document: Document | None = None
) -> SpecReadResult:
    """Read a spec file with a profile and `--set` values. `document`: the file, if it was read before."""
    try:
        project = find_project(path)
        document = document or load_document(read_source(path, root=project.root), "agent")
    except DocumentError as error:
        return SpecReadResult(None, tuple(error.problems))
    source = document.source
    if document.root is None:
        return SpecReadResult(None, document.problems)
    problems = list(document.problems)
    root, doubtful = remove_problems(document.root, document.schema_problems)
    inliner = FileInliner(project, source.path.parent)
    root = inliner.inline(root)
    profiles = root.get("profiles")
    named = tuple(profiles.entries) if isinstance(profiles, MappingNode) else ()
    try:
        root = _with_overlays(root, profile, settings, inliner)
    except DocumentError as error:
        problems += error.problems
    has_shared_lists = any(isinstance(document.root.get(key), SequenceNode) for key in SHARED_KEYS)
    is_same = not (document.schema_problems or inliner.sources or profile or settings or has_shared_lists)
    found = [] if is_same else find_schema_problems(root, "agent")  # an unchanged document was already checked
    templates = inliner.read_includes(root)
    problems += [*inliner.problems, *(each.problem for each in found)]
    files = tuple(inliner.sources.values())
    if not problems:
        return SpecReadResult(
            Spec(source, project, root, _to_models(root), files, templates), (), named, document=document
        )
    root, more = remove_problems(root, found)
    whole = not find_schema_problems(root, "agent")
    rest = Spec(source, project, root, _to_models(root), files, templates) if whole else None
    return SpecReadResult(None, tuple(problems), named, rest, doubtful | more | inliner.incomplete_sections, document)


def _with_overlays(
    root: MappingNode, profile: str | None, settings: Sequence[str], inliner: FileInliner
) -> MappingNode:
    if profile is not None:
        root = apply_overlay(root, inliner.inline(_profile(root, profile)))
    for text in settings:
        if text.partition("=")[0].count(".") > MAX_DOCUMENT_DEPTH:
            place = SourcePlace(Source(Path("--set"), "--set", ""), 1, 1)
            message = f"the key of --set is nested deeper than {MAX_DOCUMENT_DEPTH} levels"
            raise DocumentError([Problem(place, "spec.setting", message)])
        root = apply_overlay(root, inliner.inline(parse_setting(text)))
    return root


def _profile(root: MappingNode, name: str) -> MappingNode:
    profiles = root.get("profiles")
    found = profiles.get(name) if isinstance(profiles, MappingNode) else None
    if isinstance(found, MappingNode):
        return found
    known = list(profiles.entries) if isinstance(profiles, MappingNode) else []
    hint = did_you_mean(name, known) or (f"profiles: {', '.join(known)}" if known else "the spec has no profiles")
    place = root.entries["profiles"].key_place if known else root.place
    raise DocumentError([Problem(place, "spec.unknown_profile", f"profile {quote_text(name)} is not declared", hint)])


def _to_models(root: MappingNode) -> Agent:
    """Convert a document to models. This cannot fail, because the schema is generated from the models."""
    return msgspec.convert(plain_data(root), Agent)


def is_consequence(problem: Problem, doubtful: frozenset[str]) -> bool:
    return not doubtful.isdisjoint(SECTIONS_BEHIND_PROBLEM.get(problem.code, frozenset()))


def remove_problems(root: MappingNode, problems: Iterable[SchemaProblem]) -> tuple[MappingNode, frozenset[str]]:
    """Return the document without its invalid parts, and the sections that are incomplete now."""
    doubtful: set[str] = set()
    removed: set[tuple[str | int, ...]] = set()
    for each in problems:
        path = each.path
        top = path[0] if path else None
        # An unknown or missing key may be any section under a wrong name.
        doubtful |= {top} if isinstance(top, str) and top in AGENT_SECTIONS else AGENT_SECTIONS
        depth = next((len(above) for above in _LISTS if path[: len(above)] == above and len(path) > len(above)), 0)
        removed.add(path[: depth + 1])
    rest = _without_paths(root, removed, ())
    assert isinstance(rest, MappingNode)
    missing = {key: value for key, value in _PLACEHOLDERS.items() if key not in rest.entries}
    return MappingNode(rest.entries | make_mapping(missing, root.place).entries, root.place), frozenset(doubtful)


def _without_paths(node: Node, removed: set[tuple[str | int, ...]], path: tuple[str | int, ...]) -> Node:
    if len(path) > 3:
        return node
    match node:
        case MappingNode():
            entries = {
                key: MappingEntry(entry.key_place, _without_paths(entry.node, removed, (*path, key)))
                for key, entry in node.entries.items()
                if (*path, key) not in removed
            }
            return MappingNode(entries, node.place)
        case SequenceNode():
            items = [
                _without_paths(item, removed, (*path, index))
                for index, item in enumerate(node.items)
                if (*path, index) not in removed
            ]
            return SequenceNode(tuple(items), node.place)
        case _:
            return node
