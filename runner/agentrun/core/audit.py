"""Audit: would today's code make the decisions that a journal contains? Nothing is called.

Rule 1  Observations are taken as given. Every decision is made again and compared.
Rule 2  If a commit has several facts, they must follow each other. After a fact from outside, `decide` is asked again.
Rule 3  A terminal record that the runtime wrote because of its own failure, of its host, or of a cassette that does not
        match is taken as given.
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
    seq: int
    was: Fact
    instead: tuple[Fact, ...]
    """The fact that would be written today. Empty: the run would wait."""


def find_divergence(
    package: Package, records: Iterable[Record], others: Mapping[str, Package] | None = None
) -> Divergence | None:
    """The first divergence. `others`: packages of resumes, by fingerprint. Raises `recovery.failed`."""
    state = State()
    expected: list[Fact] = []
    for record in records:
        fact = record.fact
        if isinstance(fact, Observation):
            expected = []
            if isinstance(fact, RunResumed) and others:
                package = others.get(fact.package, package)
        else:
            expected = expected or _expected_facts(package, state)
            if expected[:1] != [fact] and not _is_runtime_failure(fact):
                return Divergence(record.seq, fact, tuple(expected[:1]))
            expected = expected[1:]
        state = evolve(state, record)
    return None


def _expected_facts(package: Package, state: State) -> list[Fact]:
    """The facts that would be written next. Of several effects only the first: then `decide` is asked again."""
    match decide(package, state):
        case Commit(facts):
            return list(facts)
        case Perform(effects):
            return [intent(effects[0])]
        case _:
            return []


def _is_runtime_failure(fact: Fact) -> bool:
    if not isinstance(fact, RunStopped) or fact.fault is None:
        return False
    code = fact.fault.code
    return code == "internal" or code.startswith("cassette.") or fact.fault.fields.get("by") == "host"
