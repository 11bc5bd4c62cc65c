"""Everything a document refers to, put in its place: shared parts, prompt files, schema files.

Rule 1  Files are read inside the project only, and only as text: nothing is imported, started or fetched.
Rule 2  A node from a file keeps its place in that file, so problems point into it.
Rule 3  Two parts that say different things about one key are a problem, never a silent choice.
Rule 4  What a document becomes is bounded like a document: a small spec may name a large file a thousand times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from agentrun.spec.document import MAX_NODES, MAX_PROBLEMS, parse
from agentrun.spec.files import FileRefused, read_inside
from agentrun.spec.load import Document, load
from agentrun.spec.problems import DocumentError, Place, Problem, Source, quoted
from agentrun.spec.project import Project
from agentrun.spec.schema_keys import SCHEMA_PATHS, SHARED_KEYS, TEXT_PATHS
from agentrun.spec.tree import Entry, Mapping, Node, Scalar, Sequence

Change = Callable[[Node], Node]

MOST_TEXT = 2 * 1024 * 1024
"""Characters in all files that one document refers to, each counted as often as it is named."""


class Inliner:
    """Reads what a document refers to and collects what is wrong with it."""

    def __init__(self, project: Project, directory: Path) -> None:
        self.project = project
        self.directory = directory
        self.problems: list[Problem] = []
        self.doubtful: set[str] = set()
        """The sections that lack something that could not be read."""
        self.sources: dict[Path, Source] = {}
        """The files that were read."""
        self.text = 0
        self._nodes = 0
        self._full = False
        self._loaded: dict[tuple[Path, str], Document] = {}

    def inlined(self, root: Mapping) -> Mapping:
        """The same document with nothing left to read."""
        for key in SHARED_KEYS:
            root = _changed(root, (key,), partial(self._shared, key=key))
        for path in TEXT_PATHS:
            root = _changed(root, path, self._text)
        for path in SCHEMA_PATHS:
            root = _changed(root, path, partial(self._schema, section=path[0]))
        return root

    def schema(self, node: Node) -> Node:
        """A JSON Schema with nothing left to read."""
        return self._schema(node, "")

    def _read(self, reference: Scalar) -> Source | None:
        """The file that a node names; None, with a problem at the node, when it cannot be read."""
        if self._full or len(self.problems) >= MAX_PROBLEMS:
            return None
        written_in = reference.place.source.path
        base = written_in.parent if written_in.is_absolute() else self.directory
        try:
            source = read_inside(self.project.root, base, reference.text)
        except FileRefused as refused:
            self.problems.append(Problem(reference.place, refused.code, refused.message, refused.hint))
            return None
        source = self.sources.setdefault(source.path, source)
        self.text += len(source.text)
        return source if self._fits(reference, self.text <= MOST_TEXT) else None

    def _fits(self, reference: Scalar, fits: bool) -> bool:
        if not fits:
            self._full = True
            message = "with this file the document is larger than 2 MiB or 50,000 values"
            self.problems.append(Problem(reference.place, "spec.too_large", message, "refer to smaller files"))
        return fits

    def _load(self, reference: Scalar, source: Source, kind: str) -> Document:
        """The document in a file; one of kind `schema` has no schema of its own."""
        key = (source.path, kind)
        if key not in self._loaded:
            self._loaded[key] = load(source, kind) if kind in SHARED_KEYS else _parsed(source)
            self.problems += self._loaded[key].problems
        document = self._loaded[key]
        self._nodes += _size(document.root) if document.root is not None else 0
        return document if self._fits(reference, self._nodes <= MAX_NODES) else Document(source, None)

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

    def _schema(self, node: Node, section: str) -> Node:
        """A JSON Schema: inline or a file."""
        reference = _reference(node)
        if reference is None:
            return node
        source = self._read(reference)
        loaded = self._load(reference, source, "schema").root if source is not None else None
        if loaded is None:
            self.doubtful.add(section)
            return _anything(node.place)
        return loaded

    def _shared(self, node: Node, key: str) -> Node:
        """Tools, policy or budgets: inline, a file, or a list of both, as one mapping."""
        if isinstance(node, Scalar):
            return node  # null in a profile, or a mistake that the schema names
        parts = node.items if isinstance(node, Sequence) else (node,)
        mappings = [part for part in (self._part(part, key) for part in parts) if part is not None]
        if len(mappings) == 1:
            return mappings[0]
        return self._merged(mappings, key, node.place)

    def _part(self, node: Node, key: str) -> Mapping | None:
        reference = _reference(node)
        if reference is None and isinstance(node, Mapping):
            return node
        part: Node | None = None
        if reference is None:
            message = f"a part of {quoted(key)} must be a mapping or {{file: …}}"
            self.problems.append(Problem(node.place, "spec.wrong_type", message))
        elif (source := self._read(reference)) is not None:
            document = self._load(reference, source, key)
            part = document.root.get(key) if document.root is not None else None
            if not document.problems and isinstance(part, Mapping):
                return part
        self.doubtful.add(key)
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
                elif len(self.problems) < MAX_PROBLEMS:
                    message = f"{quoted(f'{key}.{name}')} is given twice: here and at {first.key_place}"
                    self.problems.append(Problem(entry.key_place, "spec.given_twice", message, "keep one of the two"))
        return Mapping(entries, place)


def _anything(place: Place) -> Mapping:
    """A schema in place of one that could not be read: nothing follows from it."""
    kind = Scalar("object", "object", place, "plain", 0, 0)
    more = Scalar(True, "true", place, "plain", 0, 0)
    return Mapping({"type": Entry(place, kind), "additionalProperties": Entry(place, more)}, place)


def _parsed(source: Source) -> Document:
    """A JSON Schema in a file, as YAML or JSON."""
    try:
        root = parse(source)
    except DocumentError as error:
        return Document(source, None, tuple(error.problems))
    if not isinstance(root, Mapping):
        wrong = Problem(root.place, "spec.json_schema", "a JSON Schema must be a mapping here")
        return Document(source, None, (wrong,))
    return Document(source, root)


def _size(node: Node) -> int:
    match node:
        case Mapping():
            return 1 + len(node.entries) + sum(_size(entry.node) for entry in node.entries.values())
        case Sequence():
            return 1 + sum(map(_size, node.items))
        case _:
            return 1


def _reference(node: Node) -> Scalar | None:
    """The path in `{file: path}`, if the node is such a reference and nothing else."""
    named = node.get("file") if isinstance(node, Mapping) and len(node.entries) == 1 else None
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
