"""Would today's code have made yesterday's decisions?

Rule 1  Observations are taken as given; every decision is made again and compared. Nothing is called.
Rule 2  What a commit of several facts still owes must come next, unless something from outside comes between: then
        `decide` is asked again, as the run did.
Rule 3  A terminal record that the runtime itself wrote over a failure of its own, of its host, or of a recording that
        does not fit, is taken as given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from agentrun.core.decide import decide
from agentrun.core.effects import Commit, Perform, intent
from agentrun.core.evolve import evolve
from agentrun.core.facts import Fact, Observation, Record, RunResumed, RunStopped
from agentrun.core.package import Package
from agentrun.core.state import State


class Divergence(Struct, frozen=True):
    """The first decision that today's code would not make."""

    seq: int
    was: Fact
    """What the journal says."""
    instead: tuple[Fact, ...]
    """What would be written today. None: nothing, the run would wait."""


def find_divergence(
    package: Package, records: Iterable[Record], others: Mapping[str, Package] | None = None
) -> Divergence | None:
    """The first divergence. `others`: packages that the run went on with after a resume, by fingerprint.

    Raises `recovery.failed` for a journal that cannot be folded.
    """
    state = State()
    owed: list[Fact] = []
    for record in records:
        fact = record.fact
        if isinstance(fact, Observation):
            owed = []
            if isinstance(fact, RunResumed) and others:
                package = others.get(fact.package, package)
        else:
            owed = owed or _expected_facts(package, state)
            if owed[:1] != [fact] and not _is_runtime_failure(fact):
                return Divergence(record.seq, fact, tuple(owed[:1]))
            owed = owed[1:]
        state = evolve(state, record)
    return None


def _expected_facts(package: Package, state: State) -> list[Fact]:
    """What would be written next. Of several effects only the first: after it `decide` is asked again."""
    match decide(package, state):
        case Commit(facts):
            return list(facts)
        case Perform(effects):
            return [intent(effects[0])]
        case _:
            return []


def _is_runtime_failure(fact: Fact) -> bool:
    return (
        isinstance(fact, RunStopped)
        and fact.fault is not None
        and (
            fact.fault.code == "internal"
            or fact.fault.code.startswith("cassette.")
            or fact.fault.fields.get("by") == "host"
        )
    )
