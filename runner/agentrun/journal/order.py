"""The facts of a journal that say what a run meant, in the one order that they can be told in.

Rule 1  Left out: that an owner went away and another went on, and moments that passed. What was lost and then done
        again stands only once, where it was done again; so does a child that slept and went on, and a rule that
        deferred again. What was lost and never done again was begun, and stands.
Rule 2  The facts of a batch stand in call order, each call's in their own order; before them what concerns no call.
        So it does not matter which call was done first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentrun.core.effects import Intent, effect_id_of
from agentrun.core.facts import (
    Fact,
    ModelAsked,
    ModelReplied,
    RunEnding,
    RunResumed,
    RunStopped,
    TimePassed,
    WorkLost,
)
from agentrun.core.facts_calls import CallSettled, ChildSuspended, ResultsGiven
from agentrun.core.facts_gates import Ruled


def meant(facts: Iterable[Fact]) -> Iterator[Fact]:
    """What counts when two journals are compared."""
    return _in_call_order(_undisturbed(facts))


def _undisturbed(facts: Iterable[Fact]) -> list[Fact]:
    """The facts as if one owner had done it all at once."""
    told: dict[int, Fact] = {}
    begun: dict[str, tuple[int, str]] = {}  # effect → where it was begun, and what work it was
    cut: dict[str, tuple[int, ...]] = {}  # work → what is told of it so far, when that was cut off
    for index, fact in enumerate(facts):
        if isinstance(fact, WorkLost):
            at, work = begun[fact.effect]
            cut[work] = (at,)
        elif isinstance(fact, Intent):
            for at in cut.pop(_work(fact), ()):
                del told[at]
            begun[effect_id_of(fact)] = index, _work(fact)
            told[index] = fact
        elif not _is_recovery(fact):
            told[index] = fact
            if isinstance(fact, ChildSuspended):
                cut[fact.call] = (begun[fact.call][0], index)
            elif isinstance(fact, Ruled):
                for at in cut.pop(f"ruling on {fact.subject}", ()):
                    if told[at] == fact:
                        del told[at]
                if fact.ruling == "defer":
                    cut[f"ruling on {fact.subject}"] = (index,)
    return list(told.values())


def _is_recovery(fact: Fact) -> bool:
    return isinstance(fact, RunResumed | TimePassed) or (isinstance(fact, CallSettled) and fact.how == "retry")


def _work(fact: Intent) -> str:
    """What is done by an effect. A request that is sent again is another effect, and the same work."""
    return f"{fact.purpose} {fact.turn}" if isinstance(fact, ModelAsked) else effect_id_of(fact)


def _in_call_order(facts: Iterable[Fact]) -> Iterator[Fact]:
    places: dict[str, int] = {}
    batch: list[Fact] = []
    for fact in facts:
        if not places or isinstance(fact, ResultsGiven | ModelAsked | RunEnding | RunStopped):
            yield from sorted(batch, key=lambda one: _place(one, places))
            yield fact
            calls = fact.reply.message.calls if isinstance(fact, ModelReplied) else ()
            places, batch = {call.id: place for place, call in enumerate(calls)}, []
        else:
            batch.append(fact)
    yield from sorted(batch, key=lambda one: _place(one, places))


def _place(fact: Fact, places: dict[str, int]) -> int:
    return places.get(str(getattr(fact, "call", None) or getattr(fact, "subject", None)), -1)
