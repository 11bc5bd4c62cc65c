"""Replace the file references of a document by the files: shared parts, prompts, schemas.

Rule 1  Only files inside the project are read, and only as text. Nothing is imported, started or fetched.
Rule 2  A node from a file keeps its place in that file, so problems are reported there.
Rule 3  Two parts with the same key are a problem. No part silently wins.
Rule 4  The result has the same size limits as a document, because a small spec can name a large file a thousand times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from agentrun.compiler.template import included_files
from agentrun.spec.document_loader import Document, load_document, load_mapping
from agentrun.spec.problems import DocumentError, Problem, Source, SourcePlace, place_at, quote_text
from agentrun.spec.project import Project, find_project
from agentrun.spec.source_files import FileRefused, read_referenced_file
from agentrun.spec.tree import MappingEntry, MappingNode, Node, ScalarNode, SequenceNode, make_mapping, node_at, walk
from agentrun.spec.v1.agent import SCHEMA_PATHS, SHARED_KEYS, TEXT_PATHS
from agentrun.spec.yaml_parser import MAX_DOCUMENT_NODES, MAX_PROBLEMS

NodeChange = Callable[[Node], Node]

INCLUDING_PATHS = (*TEXT_PATHS, ("guards", "nudge"))
"""Templates that can include files. Those of tools fill in single values."""

MAX_REFERENCED_TEXT = 2 * 1024 * 1024
"""The maximum number of characters in the files of one document. A file counts each time it is named."""
SCHEMA_ASSERTIONS = ("is-json", "json-schema", "not-is-json", "not-json-schema")
_ASSERTION_PATHS = (
    ("defaults", "assert", "[]"),
    ("cases", "[]", "assert", "[]"),
    ("cases", "[]", "turns", "[]", "assert", "[]"),
)


class FileInliner:
    def __init__(self, project: Project, directory: Path) -> None:
        self.project = project
        self.directory = directory
        self.problems: list[Problem] = []
        self.incomplete_sections: set[str] = set()
        """Sections with a file that could not be read."""
        self.sources: dict[Path, Source] = {}
        self.text = 0
        self._nodes = 0
        self._full = False
        self._loaded: dict[tuple[Path, str], Document] = {}

    def inline(self, root: MappingNode) -> MappingNode:
        changed: Node = root
        for key in SHARED_KEYS:
            changed = _change_at(changed, (key,), partial(self._inline_shared, key=key))
        for path in TEXT_PATHS:
            changed = _change_at(changed, path, self._inline_text)
        for path in SCHEMA_PATHS:
            changed = _change_at(changed, path, partial(self._inline_schema, section=path[0]))
        assert isinstance(changed, MappingNode)
        return changed

    def inline_assertion(self, node: Node) -> Node:
        schema = partial(self._inline_schema, section="")
        return _change_at(node, ("value",), schema) if _names_schema_file(node) else node

    def read_includes(self, root: MappingNode) -> dict[str, Source]:
        """Return the files that the prompts include or import, by name, and those that these files include."""
        found: dict[str, Source] = {}
        prompts = (node_at(root, path) for path in INCLUDING_PATHS)
        texts = (node for prompt in prompts if prompt is not None for _, node in walk(prompt))
        pending = [
            (name, node.place_at(offset, len(name) + 2))
            for node in texts
            if isinstance(node, ScalarNode) and isinstance(node.value, str)
            for name, offset in included_files(node.text)
        ]
        while pending:
            name, place = pending.pop()
            source = self._read(ScalarNode(name, name, place, "plain", 0, 0), is_include=True)
            if source is not None and found.setdefault(name, source) is source:
                inner = included_files(source.text)
                pending += [(each, place_at(source, at, len(each) + 2)) for each, at in inner if each not in found]
            elif source is not None and found[name].path != source.path:
                message = f"{quote_text(name)} is the name of two files"
                hint = "write the path from the project folder"
                self.problems.append(Problem(place, "spec.template_forbidden", message, hint))
        return found

    def _read(self, reference: ScalarNode, *, is_include: bool = False) -> Source | None:
        """Read the file that a node names. If it cannot be read, add a problem and return None.

        `is_include`: the name can also be a path from the project root."""
        if self._full or len(self.problems) >= MAX_PROBLEMS:
            return None
        written_in = reference.place.source.path
        base = written_in.parent if written_in.is_absolute() else self.directory
        try:
            try:
                source = read_referenced_file(self.project.root, base, reference.text)
            except FileRefused as refused:
                if not is_include or refused.code != "spec.file_missing" or reference.text.startswith("../"):
                    raise
                source = read_referenced_file(self.project.root, self.project.root, reference.text)
        except FileRefused as refused:
            self.problems.append(refused.problem(reference.place))
            return None
        source = self.sources.setdefault(source.path, source)
        self.text += len(source.text)
        return source if self._fits(reference, self.text <= MAX_REFERENCED_TEXT) else None

    def _fits(self, reference: ScalarNode, fits: bool) -> bool:
        if not fits:
            self._full = True
            message = "with this file the document is larger than 2 MiB or 50,000 values"
            self.problems.append(Problem(reference.place, "spec.too_large", message, "refer to smaller files"))
        return fits

    def _load(self, reference: ScalarNode, source: Source, kind: str) -> Document:
        """Load the document in a file: a shared part, or a JSON Schema."""
        key = (source.path, kind)
        if key not in self._loaded:
            self._loaded[key] = (
                load_document(source, kind)
                if kind in SHARED_KEYS
                else load_mapping(source, "spec.json_schema", "the JSON Schema must be a mapping")
            )
            self.problems += self._loaded[key].problems
        document = self._loaded[key]
        self._nodes += _count_nodes(document.root) if document.root is not None else 0
        return document if self._fits(reference, self._nodes <= MAX_DOCUMENT_NODES) else Document(source, None)

    def _inline_text(self, node: Node) -> Node:
        """Inline a prompt: text, a file, or a list of both."""
        if isinstance(node, SequenceNode):
            return SequenceNode(tuple(map(self._inline_text, node.items)), node.place)
        reference = _file_reference(node)
        if reference is None:
            return node
        source = self._read(reference)
        text = source.text if source else ""
        place = SourcePlace(source, 1, 1) if source else reference.place
        return ScalarNode(text, text, place, "file", 0, len(text))

    def _inline_schema(self, node: Node, section: str) -> Node:
        reference = _file_reference(node)
        if reference is None:
            return node
        source = self._read(reference)
        loaded = self._load(reference, source, "schema").root if source is not None else None
        if loaded is None:
            self.incomplete_sections.add(section)
            return make_mapping({"type": "object", "additionalProperties": True}, node.place)  # causes no problems
        return loaded

    def _inline_shared(self, node: Node, key: str) -> Node:
        """Inline tools, policy or budgets (a mapping, a file, or a list of both) as one mapping."""
        if isinstance(node, ScalarNode):
            return node  # null in a profile, or a mistake that the schema check reports
        parts = node.items if isinstance(node, SequenceNode) else (node,)
        mappings = [part for part in (self._part(part, key) for part in parts) if part is not None]
        if len(mappings) == 1:
            return mappings[0]
        return self._merge(mappings, key, node.place)

    def _part(self, node: Node, key: str) -> MappingNode | None:
        reference = _file_reference(node)
        if reference is None and isinstance(node, MappingNode):
            return node
        part: Node | None = None
        if reference is None:
            message = f"a part of {quote_text(key)} must be a mapping or {{file: …}}"
            self.problems.append(Problem(node.place, "spec.wrong_type", message))
        elif (source := self._read(reference)) is not None:
            document = self._load(reference, source, key)
            part = document.root.get(key) if document.root is not None else None
            if not document.problems and isinstance(part, MappingNode):
                return part
        self.incomplete_sections.add(key)
        return part if isinstance(part, MappingNode) else None

    def _merge(self, parts: Iterable[MappingNode], key: str, place: SourcePlace) -> MappingNode:
        entries: dict[str, MappingEntry] = {}
        for part in parts:
            for name, entry in part.entries.items():
                first = entries.get(name)
                if first is None:
                    entries[name] = entry
                elif name == "rules" and isinstance(first.node, SequenceNode) and isinstance(entry.node, SequenceNode):
                    entries[name] = MappingEntry(
                        first.key_place, SequenceNode(first.node.items + entry.node.items, first.node.place)
                    )
                elif len(self.problems) < MAX_PROBLEMS:
                    message = f"{quote_text(f'{key}.{name}')} is set twice; the first is at {first.key_place}"
                    self.problems.append(Problem(entry.key_place, "spec.given_twice", message, "remove one of the two"))
        return MappingNode(entries, place)


def _count_nodes(root: Node) -> int:
    return sum(1 + len(node.entries) if isinstance(node, MappingNode) else 1 for _, node in walk(root))


def _file_reference(node: Node) -> ScalarNode | None:
    """Return the path node of `{file: path}`, if the node is such a reference."""
    named = node.get("file") if isinstance(node, MappingNode) and len(node.entries) == 1 else None
    return named if isinstance(named, ScalarNode) and isinstance(named.value, str) else None


def _change_at(node: Node, path: tuple[str, ...], change: NodeChange) -> Node:
    """Apply a function to the node at a path, if it exists; `*` matches every key and `[]` every item."""
    if not path:
        return change(node)
    match node:
        case MappingNode():
            changed = {
                key: replace(entry, node=_change_at(entry.node, path[1:], change))
                for key, entry in node.entries.items()
                if path[0] in ("*", key)
            }
            return MappingNode(node.entries | changed, node.place)
        case SequenceNode() if path[0] == "[]":
            return SequenceNode(tuple(_change_at(item, path[1:], change) for item in node.items), node.place)
    return node


def inline_assertion_schemas(root: MappingNode, path: Path) -> MappingNode:
    """Return the cases with the schema files of their assertions inlined. Raises DocumentError."""
    if not any(_names_schema_file(node) for _, node in walk(root)):
        return root
    inliner = FileInliner(find_project(path), path.parent)
    changed: Node = root
    for assertion in _ASSERTION_PATHS:
        changed = _change_at(changed, assertion, inliner.inline_assertion)
    if inliner.problems:
        raise DocumentError(inliner.problems)
    assert isinstance(changed, MappingNode)
    return changed


def _names_schema_file(node: Node) -> bool:
    """Return whether a node is an assertion with the schema `{file: …}`."""
    kind, value = (node.get("type"), node.get("value")) if isinstance(node, MappingNode) else (None, None)
    is_one = isinstance(kind, ScalarNode) and kind.value in SCHEMA_ASSERTIONS
    return is_one and isinstance(value, MappingNode) and list(value.entries) == ["file"]
