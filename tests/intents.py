"""The law of intents: each one in the journal of a run and of its sub-agents belongs to exactly one effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agentrun.core.decide import perform_of
from agentrun.core.effects import Effect, Intent, RunChild, intent
from agentrun.core.evolve import evolve
from agentrun.core.facts import Record
from agentrun.core.package import Package
from agentrun.core.state import State

Journals = Mapping[str, tuple[Record, ...]]


def assert_each_intent_has_its_effect(
    package: Package, journal: Iterable[Record], children: Journals | None = None
) -> None:
    """`perform_of` raises for an intent that no effect or more than one effect has."""
    records, below = tuple(journal), children or {}
    pairs = list(_effects_of(package, records, below))
    assert all(intent(effect) == fact for fact, effect in pairs)
    written = [each.fact for written in (records, *below.values()) for each in written if isinstance(each.fact, Intent)]
    assert written
    assert sorted(map(repr, written)) == sorted(repr(fact) for fact, _ in pairs), "no journal was left out"


def _effects_of(package: Package, records: Iterable[Record], children: Journals) -> Iterator[tuple[Intent, Effect]]:
    """The intents of a run and its children, and their effects."""
    state = State()
    for record in records:
        if isinstance(record.fact, Intent):
            effect = perform_of(package, state, record.fact)
            yield record.fact, effect
            if isinstance(effect, RunChild):
                yield from _effects_of(effect.package, children[effect.run], children)
        state = evolve(state, record)
