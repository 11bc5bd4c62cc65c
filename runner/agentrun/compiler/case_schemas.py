"""JSON Schemas of assertions that stand in files of their own, put in their place."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from agentrun.compiler.inline import Inliner
from agentrun.spec.problems import DocumentError
from agentrun.spec.project import find_project
from agentrun.spec.tree import Entry, Mapping, Node, Scalar, Sequence

WITH_SCHEMAS = ("is-json", "json-schema", "not-is-json", "not-json-schema")


def with_schemas(root: Mapping, path: Path) -> Mapping:
    """The same cases with nothing left to read. Raises DocumentError for what cannot be read."""
    if not _has_files(root):
        return root
    inliner = Inliner(find_project(path), path.parent)
    changed = _in(root, inliner)
    if inliner.problems:
        raise DocumentError(inliner.problems)
    assert isinstance(changed, Mapping)
    return changed


def _has_files(node: Node) -> bool:
    """Whether an assertion names a file: nearly none does, and then nothing is changed."""
    match node:
        case Mapping():
            return _named(node) is not None or any(_has_files(entry.node) for entry in node.entries.values())
        case Sequence():
            return any(map(_has_files, node.items))
    return False


def _named(node: Mapping) -> Mapping | None:
    """The `{file: …}` of an assertion with a schema."""
    kind, value = node.get("type"), node.get("value")
    is_one = isinstance(kind, Scalar) and kind.value in WITH_SCHEMAS
    return value if is_one and isinstance(value, Mapping) and list(value.entries) == ["file"] else None


def _in(node: Node, inliner: Inliner) -> Node:
    match node:
        case Mapping() if (value := _named(node)) is not None:
            entry = node.entries["value"]
            return Mapping({**node.entries, "value": Entry(entry.key_place, inliner.schema(value))}, node.place)
        case Mapping():
            entries = {key: replace(entry, node=_in(entry.node, inliner)) for key, entry in node.entries.items()}
            return Mapping(entries, node.place)
        case Sequence():
            return Sequence(tuple(_in(item, inliner) for item in node.items), node.place)
    return node
