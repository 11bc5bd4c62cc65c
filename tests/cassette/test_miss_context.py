"""A cassette of an earlier release: fields that a release added are not a change of the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentrun.canonical_json import fingerprint
from agentrun.cassette.miss_context import ADDED_FIELDS, MissContext, changed_sections, former_sections
from agentrun.compiler.compile import compile
from agentrun.compiler.package_file import PackageFile, seal_package

from ..core.script import agent_tool, tool
from ..packages import BASE, package

FORMER_GUARDS = {key: value for key, value in BASE["guards"].items() if not key.endswith("_compare")}
ROOT = Path(__file__).parents[2]


def context(file: PackageFile) -> MissContext:
    return MissContext(sections=file.sections, package=file.agent)


def former_metadata(**changes: Any) -> dict[str, Any]:
    """The metadata of a cassette that an earlier release recorded."""
    sections = seal_package(package(**changes)).sections
    return {"sections": {**sections, "guards": fingerprint({**FORMER_GUARDS, **changes.get("guards", {})})}}


def test_added_fields_with_their_defaults_are_no_change() -> None:
    assert changed_sections(former_metadata(), context(seal_package(package()))) == []


def test_defaults_of_signatures_are_no_change_unless_they_differ_from_recorded_ones() -> None:
    def tools(**changes: Any) -> dict[str, Any]:
        return {"tools": {"look": tool(**changes)}}

    recorded_before, recorded = former_metadata(**tools()), former_metadata(**tools(defaults={"q": ""}))
    now = context(seal_package(package(**tools(defaults={"q": ""}))))
    assert changed_sections(recorded_before, now) == changed_sections(recorded, now) == []
    other = context(seal_package(package(**tools(defaults={"q": "x"}))))
    assert changed_sections(recorded, other) == ["tools"]


@pytest.mark.parametrize("field", ADDED_FIELDS["guards"])
def test_added_field_that_the_spec_sets_is_a_change(field: str) -> None:
    assert changed_sections(former_metadata(), context(seal_package(package(guards={field: "calls"})))) == ["guards"]


def test_other_changes_of_the_same_section_are_found() -> None:
    assert changed_sections(former_metadata(guards={"cycle": 4}), context(seal_package(package()))) == ["guards"]
    assert changed_sections(former_metadata(), context(seal_package(package(budgets={"turns": 3})))) == ["budgets"]


def test_sub_agents_of_an_earlier_release_are_no_change() -> None:
    now = seal_package(package(tools={"ask": agent_tool()}, agents={"ask": BASE}))
    metadata = {"sections": dict(now.sections)}
    metadata["sections"]["agents"] = fingerprint({"ask": BASE | {"guards": FORMER_GUARDS}})
    assert metadata["sections"]["agents"] != now.sections["agents"]
    assert changed_sections(metadata, context(now)) == []


@pytest.mark.parametrize("name", ["support", "researcher"])
def test_former_sections_of_an_example_differ_in_what_was_added(name: str) -> None:
    file = compile(ROOT / "specs" / f"{name}.yaml")
    former = former_sections(file.agent)
    assert former.keys() == file.sections.keys()
    changed = {section for section, now in file.sections.items() if former[section] != now}
    assert changed == ({"guards", "agents"} if file.agent.agents else {"guards", "tools"})
