"""Laying one tree over another: profiles and `--set`.

Rule 1  Mappings are merged key by key, everything else is replaced, null removes.
Rule 2  What comes from the overlay keeps its own place, so problems point at the overlay.
"""

from __future__ import annotations

from pathlib import Path

from agentrun.spec.document import parse
from agentrun.spec.problems import DocumentError, Place, Problem, Source, quoted
from agentrun.spec.tree import Entry, Mapping, Node, Scalar


def overlaid(base: Mapping, overlay: Mapping) -> Mapping:
    """The base with the overlay on top."""
    entries = dict(base.entries)
    for key, entry in overlay.entries.items():
        below = base.get(key)
        if isinstance(entry.node, Scalar) and entry.node.value is None:
            entries.pop(key, None)
        elif isinstance(below, Mapping) and isinstance(entry.node, Mapping):
            entries[key] = Entry(entry.key_place, overlaid(below, entry.node))
        else:
            entries[key] = Entry(entry.key_place, _without_nulls(entry.node))
    return Mapping(entries, base.place)


def _without_nulls(node: Node) -> Node:
    """A new part of the tree: its nulls remove nothing, so they are left out."""
    if not isinstance(node, Mapping):
        return node
    return overlaid(Mapping({}, node.place), node)


def setting(text: str) -> Mapping:
    """The overlay for one `--set path=value`; the value is read as YAML."""
    path, equals, value = text.partition("=")
    source = Source(Path("--set"), "--set", text)
    steps = path.split(".")
    place = Place(source, 1, 1, max(len(path), 1))
    if not equals or not all(steps):
        problem = Problem(
            place,
            "spec.setting",
            f"--set {quoted(text)} is not path=value",
            "for example --set budgets.turns=3",
        )
        raise DocumentError([problem])
    node: Node = parse(Source(Path("--set"), "--set", value)) if value.strip() else Scalar("", "", place, "plain", 0, 0)
    for step in reversed(steps):
        node = Mapping({step: Entry(place, node)}, place)
    assert isinstance(node, Mapping)
    return node
