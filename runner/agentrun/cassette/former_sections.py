"""Fingerprints of sections without the fields that later releases added. An upgrade is not a change of the spec.

Rule 1  A field that is added to a package is listed here with its default, unless its absence already means that.
"""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from agentrun.canonical_json import fingerprint
from agentrun.core.package import Package

ADDED_FIELDS: dict[str, dict[str, Any]] = {
    "guards": {"call_compare": "results", "cycle_compare": "results", "batch_compare": "results"},
}


def former_sections(package: Package) -> dict[str, str]:
    """The fingerprint of each section as an earlier release made it. A field that the spec sets makes a difference."""
    return {name: fingerprint(section) for name, section in _without_added_fields(to_builtins(package)).items()}


def _without_added_fields(package: dict[str, Any]) -> dict[str, Any]:
    former = dict(package)
    for section, added in ADDED_FIELDS.items():
        former[section] = {key: value for key, value in package[section].items() if (key, value) not in added.items()}
    former["agents"] = {name: _without_added_fields(agent) for name, agent in package["agents"].items()}
    return former
