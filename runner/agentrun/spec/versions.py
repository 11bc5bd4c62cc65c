"""Versions of the spec language and the way from one to the next.

Rule 1  A document says its version; an unknown one is refused, never guessed.
Rule 2  When a version "2" comes, the package `v1` is frozen and one function here turns a "1" tree into a "2" tree.
Rule 3  Upgrades work on trees, so problems found afterwards still point at what the writer wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as MappingType

from agentrun.spec.problems import Problem, quoted
from agentrun.spec.tree import Mapping, Scalar

Upgrade = Callable[[Mapping], Mapping]

LATEST = "1"
UPGRADES: dict[str, tuple[str, Upgrade]] = {}
"""Old version → the next version and the function that goes there."""


def upgraded(
    root: Mapping, upgrades: MappingType[str, tuple[str, Upgrade]] = UPGRADES, latest: str = LATEST
) -> Mapping | Problem:
    """The document in the latest version, or what is wrong with the version it names."""
    node = root.get("agentrun")
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return root if node is None else _unknown(node, upgrades, latest)
    version = node.value
    while version != latest:
        if version not in upgrades:
            return _unknown(node, upgrades, latest)
        version, upgrade = upgrades[version]
        root = upgrade(root)
    return root


def _unknown(node: object, upgrades: MappingType[str, tuple[str, Upgrade]], latest: str) -> Problem:
    assert isinstance(node, Scalar) or hasattr(node, "place")
    known = ", ".join(f'"{version}"' for version in [*upgrades, latest])
    if isinstance(node, Scalar) and node.text in {*upgrades, latest}:
        return Problem(
            node.place,
            "spec.version",
            "the version must be text",
            f'put it in quotes: agentrun: "{node.text}"',
        )
    text = quoted(node.text) if isinstance(node, Scalar) else "this"
    return Problem(
        node.place,
        "spec.version",
        f"version {text} of the spec language is not known",
        f"this program knows {known}; a newer document needs a newer agentrun",
    )
