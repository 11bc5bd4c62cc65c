"""Everything a document refers to, put in its place: shared parts, prompt files, schema files.

Rule 1  Files are read inside the project only, and only as text: nothing is imported, started or fetched.
Rule 2  A node from a file keeps its place in that file, so problems point into it.
Rule 3  Two parts that say different things about one key are a problem, never a silent choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from agentrun.spec.document import parse
from agentrun.spec.files import FileRefused, Project, read_inside
from agentrun.spec.load import load
from agentrun.spec.problems import DocumentError, Place, Problem, Source, quoted
from agentrun.spec.schema_keys import SCHEMA_PATHS, SHARED_KEYS, TEXT_PATHS
from agentrun.spec.tree import Entry, Mapping, Node, Scalar, Sequence

Change = Callable[[Node], Node]


class Inliner:
    """Reads what a document refers to and collects what is wrong with it."""

    def __init__(self, project: Project, directory: Path) -> None:
        self.project = project
        self.directory = directory
        self.problems: list[Problem] = []

    def inlined(self, root: Mapping) -> Mapping:
        """The same document with nothing left to read."""
        for key in SHARED_KEYS:
            root = _changed(root, (key,), lambda node, key=key: self._shared(node, key))  # type: ignore[misc]  # mypy cannot type a lambda default
        for path in TEXT_PATHS:
            root = _changed(root, path, self._text)
        for path in SCHEMA_PATHS:
            root = _changed(root, path, self._schema)
        return root

    def _read(self, reference: Node) -> Source | None:
        """The file that a node names; None, with a problem at the node, when it cannot be read."""
        if not isinstance(reference, Scalar):
            return None
        written_in = reference.place.source.path
        base = written_in.parent if written_in.is_absolute() else self.directory
        try:
            return read_inside(self.project.root, base, reference.text)
        except FileRefused as refused:
            self.problems.append(Problem(reference.place, refused.code, refused.message, refused.hint))
            return None

    def _text(self, node: Node) -> Node:
        """A prompt: text, a file, or a list of both."""
        if isinstance(node, Sequence):
            return Sequence(tuple(map(self._text, node.items)), node.place)
        reference = _reference(node)
        if reference is None:
            return node
        source = self._read(reference)
        text = source.text if source else ""
        place = Place(source, 1, 1) if source else reference.place
        return Scalar(text, text, place, "file", 0, len(text))

    def _schema(self, node: Node) -> Node:
        """A JSON Schema: inline or a file."""
        reference = _reference(node)
        if reference is None:
            return node
        source = self._read(reference)
        empty = Mapping({}, node.place)
        if source is None:
            return empty
        try:
            loaded = parse(source)
        except DocumentError as error:
            self.problems += error.problems
            return empty
        if not isinstance(loaded, Mapping):
            self.problems.append(Problem(loaded.place, "spec.json_schema", "a JSON Schema must be a mapping here"))
            return empty
        return loaded

    def _shared(self, node: Node, key: str) -> Node:
        """Tools, policy or budgets: inline, a file, or a list of both, as one mapping."""
        parts = node.items if isinstance(node, Sequence) else (node,)
        mappings = [part for part in (self._part(part, key) for part in parts) if part is not None]
        if len(mappings) == 1:
            return mappings[0]
        return self._merged(mappings, key, node.place)

    def _part(self, node: Node, key: str) -> Mapping | None:
        reference = _reference(node)
        if reference is None:
            return node if isinstance(node, Mapping) else None
        source = self._read(reference)
        if source is None:
            return None
        document = load(source, key)
        self.problems += document.problems
        part = document.root.get(key) if document.root is not None else None
        return part if isinstance(part, Mapping) else None

    def _merged(self, parts: Iterable[Mapping], key: str, place: Place) -> Mapping:
        entries: dict[str, Entry] = {}
        for part in parts:
            for name, entry in part.entries.items():
                first = entries.get(name)
                if first is None:
                    entries[name] = entry
                elif name == "rules" and isinstance(first.node, Sequence) and isinstance(entry.node, Sequence):
                    entries[name] = Entry(
                        first.key_place, Sequence(first.node.items + entry.node.items, first.node.place)
                    )
                else:
                    message = f"{quoted(f'{key}.{name}')} is given twice: here and at {first.key_place}"
                    self.problems.append(Problem(entry.key_place, "spec.given_twice", message, "keep one of the two"))
        return Mapping(entries, place)


def _reference(node: Node) -> Node | None:
    """The path in `{file: path}`, if the node is such a reference."""
    named = node.get("file") if isinstance(node, Mapping) else None
    return named if isinstance(named, Scalar) and isinstance(named.value, str) else None


def _changed(node: Node, path: tuple[str, ...], change: Change) -> Mapping:
    """A copy of a mapping with what is at the path changed; `*` stands for every key. What is missing stays so."""
    assert isinstance(node, Mapping)
    entries = dict(node.entries)
    for key in entries if path[0] == "*" else path[:1]:
        entry = entries.get(key)
        if entry is None:
            continue
        if len(path) == 1:
            entries[key] = Entry(entry.key_place, change(entry.node))
        elif isinstance(entry.node, Mapping):
            entries[key] = Entry(entry.key_place, _changed(entry.node, path[1:], change))
    return Mapping(entries, node.place)
