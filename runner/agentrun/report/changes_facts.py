"""What two lists of facts about one thing say differently.

Rule 1  Facts are paired by what they are about, those that are about the same in their order.
Rule 2  What follows from something else that is told is not told again: a retry from the failure before it, a question
        from its answer, that the model reads results from the calls.
Rule 3  A fact that has no words of its own is compared field by field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from agentrun.canon import same
from agentrun.core.effect_ids import CallId, parse_effect_id
from agentrun.report.change import Change, Kind, Place
from agentrun.report.fields import Lines, arrow, as_json, lines, listed, shown
from agentrun.report.nouns import NAME, answer_words, by_rules, fault_words, key_of, noun_of
from agentrun.report.steps import Fact, look, said
from agentrun.spec.text import plural, short

MAX_LINES = 5
"""Lines of a text that are told one by one."""

_PLACES = frozenset({"turn", "call", "subject"})
_FOLLOWS: Mapping[str, frozenset[str]] = {
    "retry_planned": frozenset({"model_failed"}),
    "model_asked": frozenset({"model_failed", "reply_discarded", "route_switched", "context_compacted"}),
    "model_replied": frozenset({"reply_discarded", "context_compacted", "compaction_failed"}),
    "hook_asked": frozenset({"hook_answered"}),
    "approval_asked": frozenset({"approval_answered", "ruled"}),
    "delivery_started": frozenset({"delivery_finished"}),
    "answer_reached": frozenset({"run_stopped"}),
    "run_ending": frozenset({"run_stopped"}),
}


def compared(
    place: Place, before: Iterable[Fact], after: Iterable[Fact], name: Callable[[Fact], str]
) -> Iterator[Change]:
    """The differences of two lists of facts. `name` says what a fact is about."""
    one, two = _keyed(before), _keyed(after)
    gone = [fact for key, fact in one.items() if key not in two]
    new = [fact for key, fact in two.items() if key not in one]
    both = [(fact, two[key]) for key, fact in one.items() if key in two]
    differ = {fact.kind for fact, other in both if not same(_own(fact), _own(other))}
    for fact, other in both:
        if not same(_own(fact), _own(other)) and not (_FOLLOWS.get(fact.kind, frozenset()) & differ):
            yield from _pair(place, fact, other, name(other))
    for fact in gone:
        if not _follows(fact, {each.kind for each in gone} | differ):
            noun = noun_of(fact, name(fact))
            yield place.told(noun.kind, f"{noun.whole()} is gone", "gone", before=fact.data)
    for fact in new:
        if not _follows(fact, {each.kind for each in new} | differ):
            noun = noun_of(fact, name(fact))
            yield place.told(noun.kind, f"{noun.whole()} is new", "new", after=fact.data)


def of_text(place: Place, kind: Kind, name: str, before: str, after: str) -> Iterator[Change]:
    """A text of several lines, line by line."""
    found = lines(before, after)
    for line in found[:MAX_LINES]:
        where = f"{name} line {line.number}"
        if line.before is None:
            yield place.told(kind, f"{where} is new: “{short(line.after or '')}”", "new", after=line.after)
        elif line.after is None:
            yield place.told(kind, f"{where} is gone: “{short(line.before)}”", "gone", before=line.before)
        else:
            yield place.changed(kind, where, line.before, line.after)
    if len(found) > MAX_LINES:
        yield place.told(kind, f"and {plural(len(found) - MAX_LINES, 'more line')} of the {name}")


def of_fields(place: Place, kind: Kind, name: str, before: Any, after: Any) -> Iterator[Change]:
    """Plain data, one change for all its fields."""
    before, after = as_json(before), as_json(after)
    if not same(before, after):
        yield place.told(kind, f"{name}: {listed(before, after)}", before=before, after=after)


def _keyed(facts: Iterable[Fact]) -> dict[tuple[str, ...], Fact]:
    counts: Counter[tuple[str, ...]] = Counter()
    found = {}
    for fact in facts:
        key = key_of(fact)
        counts[key] += 1
        found[(*key, str(counts[key]))] = fact
    return found


def _follows(fact: Fact, told: set[str]) -> bool:
    return fact.kind == "results_given" or bool(_FOLLOWS.get(fact.kind, frozenset()) & told)


def _own(fact: Fact) -> dict[str, Any]:
    """What a fact says, without its place: that moves when something before it is new.

    A reply without its calls and its usage, which are compared elsewhere.
    """
    if fact.kind == "results_given":
        return {"ended_by": _ended_by(fact)}
    if fact.kind == "model_replied":
        parts = fact.get("reply", "message", "parts")
        kinds = (
            sorted({str(look(part, "kind")) for part in parts} - {"tool_call"}) if isinstance(parts, list) else parts
        )
        own = {key: fact.get("reply", key) for key in ("finish", "model")}
        return {"text": said(fact.get("reply", "message")), "kinds": kinds, **own}
    return {key: value for key, value in fact.data.items() if key not in _PLACES}


def _ended_by(fact: Fact) -> int | None:
    """Which call of its turn ends the run, from 1. The number of the turn moves when one before it is new."""
    call = parse_effect_id(str(fact.get("ended_by")))
    return call.index + 1 if isinstance(call, CallId) else None


def _given(place: Place, before: Fact, after: Fact, _: str) -> Iterator[Change]:
    one, two = (
        "the model reads them" if number is None else f"call {number} ends the run"
        for number in map(_ended_by, (before, after))
    )
    yield place.told("result", f"what comes of the results: {one} → {two}", before=one, after=two)


def _pair(place: Place, before: Fact, after: Fact, name: str) -> Iterator[Change]:
    special = _PAIRS.get(before.kind)
    found = list(special(place, before, after, name)) if special else []
    yield from found or _generic(place, before, after, name)


def _generic(place: Place, before: Fact, after: Fact, name: str) -> Iterator[Change]:
    noun = noun_of(after, name)
    one, two = _own(before), _own(after)
    yield place.told(noun.kind, f"{noun.words}: {listed(one, two)}", before=one, after=two)


def _asked(place: Place, before: Fact, after: Fact, _: str) -> Iterator[Change]:
    if before.get("route") != after.get("route"):
        yield place.changed("route", "the model that is asked", before.get("route"), after.get("route"))
    if before.get("hidden") != after.get("hidden"):
        one, two = before.get("hidden") or [], after.get("hidden") or []
        yield place.changed("tools", "tools that the model is not offered", one, two)


def _ruled(place: Place, before: Fact, after: Fact, name: str) -> Iterator[Change]:
    was, now = (by_rules(fact.get("rules"), fact.get("reason")) for fact in (before, after))
    one, two = (short(str(fact.get("ruling")), NAME) for fact in (before, after))
    if one != two:
        words = f"the ruling on {name} flipped: {one} → {two} ({now}; was {was})"
        yield place.told("ruling", words, before=before.data, after=after.data)
    elif was != now:
        words = f"the ruling on {name} is still {two}, now {now}; was {was}"
        yield place.told("ruling", words, before=before.data, after=after.data)
    for key in ("arguments", "text", "messages", "granted"):
        if not same(before.get(key), after.get(key)):
            yield from of_fields(place, "ruling", f"what the policy makes of {name}", before.get(key), after.get(key))


def _answered(place: Place, before: Fact, after: Fact, name: str) -> Iterator[Change]:
    one, two = (f"{fact.get('answer')} by {fact.get('by')}" for fact in (before, after))
    words = f"the approval of {name}: {short(one)} → {short(two)}"
    yield place.told("approval", words, before=before.data, after=after.data)


def _hook(place: Place, before: Fact, after: Fact, name: str) -> Iterator[Change]:
    one, two = (answer_words(fact.get("answer")) for fact in (before, after))
    if one != two:
        noun = noun_of(after, name)
        yield place.told("hook", f"{noun.words}: {one} → {two}", before=before.data, after=after.data)


def _failed(place: Place, before: Fact, after: Fact, _: str) -> Iterator[Change]:
    one, two = (fault_words(fact.get("fault")) for fact in (before, after))
    if one != two:
        yield place.told("fault", f"the request fails otherwise: {one} → {two}", before=before.data, after=after.data)


def _delivered(place: Place, before: Fact, after: Fact, name: str) -> Iterator[Change]:
    one, two = (
        "delivered" if fact.get("fault") is None else fault_words(fact.get("fault")) for fact in (before, after)
    )
    if one != two:
        noun = noun_of(after, name)
        yield place.told("delivery", f"{noun.words}: {one} → {two}", before=before.data, after=after.data)


def _told(place: Place, before: Fact, after: Fact, name: str) -> Iterator[Change]:
    one, two = (
        "\n\n".join(map(said, messages)) if isinstance(messages := fact.get("messages"), list) else ""
        for fact in (before, after)
    )
    yield from of_text(place, "told", noun_of(after, name).words, one, two)


def _replied(place: Place, before: Fact, after: Fact, _: str) -> Iterator[Change]:
    """All of a reply but its calls and what it cost."""
    one, two = (said(fact.get("reply", "message")) for fact in (before, after))
    yield from of_reply(place, "reply", "the reply", one, two)
    told: tuple[tuple[Kind, str], ...] = (("finish", "the reply ends with"), ("model", "the model that answered"))
    for key, name in told:
        if before.get("reply", key) != after.get("reply", key):
            yield place.changed(key, name, before.get("reply", key), after.get("reply", key))


def of_reply(place: Place, kind: Kind, name: str, before: str, after: str) -> Iterator[Change]:
    """A text that may be JSON, or have several lines: the first that differs is told."""
    one, two = as_json(before), as_json(after)
    if not isinstance(one, str) and not isinstance(two, str):
        yield from of_fields(place, kind, name, one, two)
    elif before != after:
        found = lines(before, after) if before and after and "\n" in before + after else []
        told = [f"line {found[0].number}: {_side_by_side(found[0])}"] if found else [_texts(before, after)]
        told += [f"and {plural(len(found) - 1, 'more line')}"] if len(found) > 1 else []
        yield place.told(kind, f"{name}: {', '.join(told)}", before=before, after=after)


def _side_by_side(line: Lines) -> str:
    return _texts(line.before or "", line.after or "")


def _texts(before: str, after: str) -> str:
    if not before or not after:
        return f"{shown(before) if before else 'nothing'} → {shown(after) if after else 'nothing'}"
    return arrow(before, after)


_PAIRS: Mapping[str, Callable[[Place, Fact, Fact, str], Iterator[Change]]] = {
    "model_asked": _asked,
    "model_replied": _replied,
    "model_failed": _failed,
    "model_told": _told,
    "results_given": _given,
    "ruled": _ruled,
    "approval_answered": _answered,
    "hook_answered": _hook,
    "delivery_finished": _delivered,
    "delivery_skipped": _delivered,
}
