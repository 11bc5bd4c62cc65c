"""Load a document: parse it, upgrade it to the latest version, check it against its schema, apply overlays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, structs

from agentrun.spec.problems import DocumentError, Problem, Source, SourcePlace, quote_text
from agentrun.spec.schema_check import SchemaProblem, find_schema_problems
from agentrun.spec.tree import MappingEntry, MappingNode, Node, ScalarNode
from agentrun.spec.yaml_parser import parse_yaml_document

_PACKAGE_KEYS = {"agent", "fingerprint", "sections"}
_DOCUMENT_NOUNS = {
    "agent": "an agent spec",
    "tools": "a tools file",
    "policy": "a policy file",
    "budgets": "a budgets file",
    "cases": "a cases file",
    "provider": "a provider script",
}
Upgrade = Callable[[MappingNode], MappingNode]
LATEST_VERSION = "1"
UPGRADES: dict[str, tuple[str, Upgrade]] = {}
"""Old version → the next version and the function that upgrades to it."""


class Document(Struct, frozen=True):
    source: Source
    root: MappingNode | None
    """The tree in the latest version; None if the document could not be parsed."""
    problems: tuple[Problem, ...] = ()
    schema_problems: tuple[SchemaProblem, ...] = ()


def load_document(source: Source, kind: str) -> Document:
    document = load_mapping(source, "spec.wrong_type", f"{_DOCUMENT_NOUNS[kind]} must be a mapping")
    root = document.root
    if root is None:
        return document
    if kind == "agent" and "agentrun" not in root.entries and root.entries.keys() >= _PACKAGE_KEYS:
        message = "this file is a compiled package, not a spec"
        hint = "run the spec it was compiled from, or use agentrun.run(package) in Python"
        return Document(source, None, (Problem(root.place, "spec.wrong_type", message, hint),))
    current = upgrade_document(root)
    wrong = (current,) if isinstance(current, Problem) else ()
    meant = _with_version(root) if isinstance(current, Problem) else current
    if meant is None:
        return Document(source, None, wrong)
    found = tuple(find_schema_problems(meant, kind))
    return Document(source, meant, (*wrong, *(each.problem for each in found)), found)


def load_mapping(source: Source, code: str, message: str) -> Document:
    """Parse a document that must be a mapping, of any kind. `code`, `message`: the problem if it is not."""
    try:
        root = parse_yaml_document(source)
    except DocumentError as error:
        return Document(source, None, tuple(error.problems))
    if not isinstance(root, MappingNode):
        return Document(source, None, (Problem(root.place, code, message),))
    return Document(source, root)


def _with_version(root: MappingNode) -> MappingNode | None:
    """Return the document with its version as text, if only the quotes are missing."""
    entry = root.entries.get("agentrun")
    if entry is None or not isinstance(entry.node, ScalarNode) or entry.node.text != LATEST_VERSION:
        return None
    version = structs.replace(entry.node, value=LATEST_VERSION)
    return MappingNode({**root.entries, "agentrun": MappingEntry(entry.key_place, version)}, root.place)


def upgrade_document(root: MappingNode) -> MappingNode | Problem:
    node = root.get("agentrun")
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return root if node is None else _unknown_version(node)
    version = node.value
    while version != LATEST_VERSION:
        if version not in UPGRADES:
            return _unknown_version(node)
        version, upgrade = UPGRADES[version]
        root = upgrade(root)
    return root


def _unknown_version(node: Node) -> Problem:
    known = [*UPGRADES, LATEST_VERSION]
    if isinstance(node, ScalarNode) and node.text in known:
        hint = f'put it in quotes: agentrun: "{node.text}"'
        return Problem(node.place, "spec.version", "the version must be text", hint)
    text = f" {quote_text(node.text)}" if isinstance(node, ScalarNode) else ""
    supported = ", ".join(f'"{version}"' for version in known)
    hint = f"this agentrun supports {supported}; a newer document needs a newer agentrun"
    return Problem(node.place, "spec.version", f"unknown version{text} of the spec language", hint)


def apply_overlay(base: MappingNode, overlay: MappingNode) -> MappingNode:
    """Merge an overlay (a profile or `--set`) into a document. Null removes a key."""
    entries = dict(base.entries)
    for key, entry in overlay.entries.items():
        if isinstance(entry.node, ScalarNode) and entry.node.value is None:
            entries.pop(key, None)
        elif isinstance(entry.node, MappingNode):
            below = base.get(key)
            new = MappingNode({}, entry.node.place)  # also drops nulls that have nothing to remove
            merged = apply_overlay(below if isinstance(below, MappingNode) else new, entry.node)
            entries[key] = MappingEntry(entry.key_place, merged)
        else:
            entries[key] = entry
    return MappingNode(entries, base.place)


def parse_setting(text: str) -> MappingNode:
    path, equals, value = text.partition("=")
    source = Source(Path("--set"), "--set", text)
    steps = path.split(".")
    place = SourcePlace(source, 1, 1, max(len(path), 1))
    if not equals or not all(steps):
        message = f"--set {quote_text(text)} is not path=value"
        raise DocumentError([Problem(place, "spec.setting", message, "for example --set budgets.turns=3")])
    parsed = parse_yaml_document(Source(Path("--set"), "--set", value)) if value.strip() else None
    node: Node = parsed or ScalarNode("", "", place)
    for step in reversed(steps):
        node = MappingNode({step: MappingEntry(place, node)}, place)
    assert isinstance(node, MappingNode)
    return node
