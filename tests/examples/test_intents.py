"""Every intent in the journals of the shipped cases belongs to exactly one effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pytest

from agentrun.core.decide import effect_of_intent
from agentrun.core.effects import Effect, Intent, RunChild, intent
from agentrun.core.evolve import evolve
from agentrun.core.facts import Record
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.testing.suite.discovery import LocatedCase, find_case_files, read_located_cases
from agentrun.testing.suite.replay import CompiledAgents, replay_case
from agentrun.testing.suite.snapshots import snapshot_path, take_snapshot

from ..cli.command import ROOT

PREPARATIONS = CompiledAgents()
CASES = [each for file in find_case_files([ROOT / "specs"]) for each in read_located_cases(file)]


def effects_of(
    package: Package, records: Iterable[Record], children: Mapping[str, tuple[Record, ...]]
) -> Iterator[tuple[Intent, Effect]]:
    """The intents of a run and its children, and their effects."""
    state = State()
    for record in records:
        if isinstance(record.fact, Intent):
            effect = effect_of_intent(package, state, record.fact)
            yield record.fact, effect
            if isinstance(effect, RunChild):
                yield from effects_of(effect.package, children[effect.run], children)
        state = evolve(state, record)


@pytest.mark.parametrize("found", CASES, ids=lambda found: f"{found.file.name}::{found.case.name}")
def test_every_intent_belongs_to_one_effect(found: LocatedCase) -> None:
    prepared = PREPARATIONS.for_case(found)
    played = replay_case(found, prepared)
    assert take_snapshot(played.runs).text == snapshot_path(found).read_text(encoding="utf-8")
    pairs = [pair for run in played.runs for pair in effects_of(prepared.file.agent, run.journal, run.children)]
    assert all(intent(effect) == fact for fact, effect in pairs)
    written = [
        record.fact
        for run in played.runs
        for journal in (run.journal, *run.children.values())
        for record in journal
        if isinstance(record.fact, Intent)
    ]
    assert pairs
    assert sorted(map(repr, written)) == sorted(repr(fact) for fact, _ in pairs), "no journal was left out"
