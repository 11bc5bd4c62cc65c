"""One document: from its text to a tree that its schema accepts."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as MappingType
from pathlib import Path

from msgspec import Struct, structs

from agentrun.spec.problems import DocumentError, Problem, Source, SourcePlace, quote_text
from agentrun.spec.schema_check import SchemaProblem, find_schema_problems
from agentrun.spec.tree import MappingEntry, MappingNode, Node, ScalarNode
from agentrun.spec.yaml_parser import parse_yaml_document


class Document(Struct, frozen=True):
    """A document as far as it could be read, with everything wrong in it."""

    source: Source
    root: MappingNode | None
    """The tree in the latest version; None when there is none to speak of."""
    problems: tuple[Problem, ...] = ()
    schema_problems: tuple[SchemaProblem, ...] = ()
    """Those of the problems that the schema found, with their paths."""


def load_document(source: Source, kind: str) -> Document:
    """Reads a document of a kind: agent, tools, policy, budgets, cases or provider."""
    try:
        root = parse_yaml_document(source)
    except DocumentError as error:
        return Document(source, None, tuple(error.problems))
    if not isinstance(root, MappingNode):
        message = f"{_DOCUMENT_NOUNS[kind]} must be a mapping of keys"
        return Document(source, None, (Problem(root.place, "spec.wrong_type", message),))
    if kind == "agent" and "agentrun" not in root.entries and root.entries.keys() >= _PACKAGE_KEYS:
        message = "this is a package, not a spec"
        hint = "run the spec that it was compiled from, or use agentrun.run(package) from Python"
        return Document(source, None, (Problem(root.place, "spec.wrong_type", message, hint),))
    current = upgrade_document(root)
    wrong = (current,) if isinstance(current, Problem) else ()
    meant = _with_version(root) if isinstance(current, Problem) else current
    if meant is None:
        return Document(source, None, wrong)
    found = tuple(find_schema_problems(meant, kind))
    return Document(source, meant, (*wrong, *(fault.problem for fault in found)), found)


def _with_version(root: MappingNode) -> MappingNode | None:
    """The document as it was meant, if only the quotes around its version are missing."""
    entry = root.entries.get("agentrun")
    if entry is None or not isinstance(entry.node, ScalarNode) or entry.node.text != LATEST_VERSION:
        return None
    version = structs.replace(entry.node, value=LATEST_VERSION)
    return MappingNode({**root.entries, "agentrun": MappingEntry(entry.key_place, version)}, root.place)


_PACKAGE_KEYS = {"agent", "fingerprint", "sections"}
"""Keys that only a compiled agent has at its top."""
_DOCUMENT_NOUNS = {
    "agent": "an agent",
    "tools": "a file of tools",
    "policy": "a policy",
    "budgets": "a file of budgets",
    "cases": "a file of cases",
    "provider": "a script of a provider",
}


# --- versions of the spec language and the way from one to the next -------------------------------------------


Upgrade = Callable[[MappingNode], MappingNode]

LATEST_VERSION = "1"
UPGRADES: dict[str, tuple[str, Upgrade]] = {}
"""Old version → the next version and the function that goes there."""


def upgrade_document(
    root: MappingNode, upgrades: MappingType[str, tuple[str, Upgrade]] = UPGRADES, latest: str = LATEST_VERSION
) -> MappingNode | Problem:
    """The document in the latest version, or what is wrong with the version it names."""
    node = root.get("agentrun")
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return root if node is None else _unknown_version(node, upgrades, latest)
    version = node.value
    while version != latest:
        if version not in upgrades:
            return _unknown_version(node, upgrades, latest)
        version, upgrade = upgrades[version]
        root = upgrade(root)
    return root


def _unknown_version(node: object, upgrades: MappingType[str, tuple[str, Upgrade]], latest: str) -> Problem:
    assert isinstance(node, ScalarNode) or hasattr(node, "place")
    known = ", ".join(f'"{version}"' for version in [*upgrades, latest])
    if isinstance(node, ScalarNode) and node.text in {*upgrades, latest}:
        return Problem(
            node.place,
            "spec.version",
            "the version must be text",
            f'put it in quotes: agentrun: "{node.text}"',
        )
    text = quote_text(node.text) if isinstance(node, ScalarNode) else "this"
    return Problem(
        node.place,
        "spec.version",
        f"version {text} of the spec language is not known",
        f"this program knows {known}; a newer document needs a newer agentrun",
    )


# --- laying one tree over another: profiles and `--set` -------------------------------------------------------


def apply_overlay(base: MappingNode, overlay: MappingNode) -> MappingNode:
    """The base with the overlay on top."""
    entries = dict(base.entries)
    for key, entry in overlay.entries.items():
        below = base.get(key)
        if isinstance(entry.node, ScalarNode) and entry.node.value is None:
            entries.pop(key, None)
        elif isinstance(below, MappingNode) and isinstance(entry.node, MappingNode):
            entries[key] = MappingEntry(entry.key_place, apply_overlay(below, entry.node))
        else:
            entries[key] = MappingEntry(entry.key_place, _without_nulls(entry.node))
    return MappingNode(entries, base.place)


def _without_nulls(node: Node) -> Node:
    """A new part of the tree: its nulls remove nothing, so they are left out."""
    if not isinstance(node, MappingNode):
        return node
    return apply_overlay(MappingNode({}, node.place), node)


def parse_setting(text: str) -> MappingNode:
    """The overlay for one `--set path=value`; the value is read as YAML."""
    path, equals, value = text.partition("=")
    source = Source(Path("--set"), "--set", text)
    steps = path.split(".")
    place = SourcePlace(source, 1, 1, max(len(path), 1))
    if not equals or not all(steps):
        problem = Problem(
            place,
            "spec.setting",
            f"--set {quote_text(text)} is not path=value",
            "for example --set budgets.turns=3",
        )
        raise DocumentError([problem])
    node: Node = (
        parse_yaml_document(Source(Path("--set"), "--set", value))
        if value.strip()
        else ScalarNode("", "", place, "plain", 0, 0)
    )
    for step in reversed(steps):
        node = MappingNode({step: MappingEntry(place, node)}, place)
    assert isinstance(node, MappingNode)
    return node
