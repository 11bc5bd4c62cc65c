"""Every intent in the journals of the shipped cases, and of the starter project, belongs to exactly one effect."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from agentrun.cli.init import STARTER
from agentrun.core.facts import ModelAsked
from agentrun.errors import AgentrunError
from agentrun.testing.suite.discovery import LocatedCase, find_case_files, read_located_cases
from agentrun.testing.suite.replay import CompiledAgents, replay_case
from agentrun.testing.suite.snapshots import snapshot_path, take_snapshot

from ..cli.command import ROOT
from ..intents import assert_each_intent_has_its_effect

PREPARATIONS = CompiledAgents()
CASES = [each for file in find_case_files([ROOT / "specs", STARTER]) for each in read_located_cases(file)]


@pytest.mark.parametrize("found", CASES, ids=lambda found: f"{found.file.name}::{found.case.name}")
def test_every_intent_belongs_to_one_effect(found: LocatedCase) -> None:
    prepared = PREPARATIONS.for_case(found)
    played = replay_case(found, prepared)
    assert take_snapshot(played.runs).text == snapshot_path(found).read_text(encoding="utf-8")
    for run in played.runs:
        assert_each_intent_has_its_effect(prepared.file.agent, run.journal, run.children)


def test_every_accepted_snapshot_is_checked() -> None:
    accepted = {path for folder in (ROOT / "specs", STARTER) for path in folder.rglob("__snapshots__/*/*.journal")}
    assert {snapshot_path(found) for found in CASES} == accepted


def test_intent_without_an_effect_is_found() -> None:
    found = CASES[0]
    prepared = PREPARATIONS.for_case(found)
    run = replay_case(found, prepared).runs[0]
    records = [
        replace(each, fact=replace(each.fact, turn=9)) if isinstance(each.fact, ModelAsked) else each
        for each in run.journal
    ]
    with pytest.raises(AgentrunError, match="does not belong to an effect of this package"):
        assert_each_intent_has_its_effect(prepared.file.agent, records, run.children)
    with pytest.raises(AssertionError, match="no journal was left out"):
        assert_each_intent_has_its_effect(prepared.file.agent, run.journal, {**run.children, "other": run.journal})
