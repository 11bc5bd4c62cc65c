"""A journal as people compare it: what the run meant, without what differs between two equal runs.

Rule 1  Left out: time, seq, epochs, hashes, every field marked VOLATILE where it is declared (run id, fingerprint,
        wire ids, what was thought), and the traces of interruptions. Kept: everything else, usage and cost included.
Rule 2  A field that has its declared default is not shown. Users' own data is shown whole.
Rule 3  The journal of a child stands inside the fact that started it.
Rule 4  Two journals with one canonical form mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_type_hints

from msgspec import NODEFAULT, UNSET, Struct
from msgspec.structs import fields

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import Intent, effect_id_of
from agentrun.core.facts import (
    CallSettled,
    ChildStarted,
    ChildSuspended,
    Fact,
    ModelAsked,
    ModelReplied,
    Record,
    ResultsGiven,
    Ruled,
    RunEnding,
    RunResumed,
    RunStopped,
    TimePassed,
    WorkLost,
    fact_kind,
)
from agentrun.core.messages import VOLATILE, Reasoning
from agentrun.journal.yaml_text import dump_plain_yaml

ChildJournals = Mapping[str, Iterable[Record]]
"""The journals of children and of their children, by run."""


def canonical(
    records: Iterable[Record], children: ChildJournals | None = None, clean: Callable[[str], str] | None = None
) -> str:
    """The canonical form of a journal: YAML with one block per fact. `clean` hides in a text what nobody may see."""
    return "\n".join(dump_plain_yaml([each]) for each in plain_facts(records, children, clean))


def plain_facts(
    records: Iterable[Record], children: ChildJournals | None = None, clean: Callable[[str], str] | None = None
) -> Iterator[dict[str, Any]]:
    """What the canonical form says, as plain data: each fact by its name."""
    for each in _plain_records(records, children or {}):
        yield each if clean is None else _clean_value(each, clean)


def _clean_value(value: Any, clean: Callable[[str], str]) -> Any:
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(key): _clean_value(item, clean) for key, item in value.items()}
        case list():
            return [_clean_value(item, clean) for item in value]
        case int() | float() if not isinstance(value, bool):
            shown = clean(spelled := sorted_json(value).decode())
            return value if shown == spelled else shown
    return value


def fact_block(fact: Fact) -> str:
    """One fact: its name, and its fields below."""
    return dump_plain_yaml([_named_fact(fact)])


def _plain_records(records: Iterable[Record], children: ChildJournals) -> Iterator[dict[str, Any]]:
    for fact in significant_facts(record.fact for record in records):
        told = _named_fact(fact)
        if isinstance(fact, ChildStarted) and fact.run in children:
            told[fact_kind(fact)]["journal"] = list(_plain_records(children[fact.run], children))
        yield told


def _named_fact(fact: Fact) -> dict[str, Any]:
    shown = _plain(fact)
    return {shown.pop("type"): shown}


def _plain(value: Any) -> Any:
    """Plain data without what is volatile or said by default."""
    if isinstance(value, Struct):
        cls = type(value)
        tag = {str(cls.__struct_config__.tag_field): cls.__struct_config__.tag} if cls.__struct_config__.tag else {}
        shown = ((name, getattr(value, name), default) for name, default in _fields(cls))
        return tag | {name: _plain(item) for name, item, default in shown if item != default}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value if not isinstance(item, Reasoning)]
    return {key: _plain(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


@cache
def _fields(cls: type[Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields that count, each with its default. UNSET is a default everywhere: nothing is there to show."""
    hints = get_type_hints(cls, include_extras=True)
    counting = (field for field in fields(cls) if VOLATILE not in getattr(hints[field.name], "__metadata__", ()))
    return tuple((field.name, _default(field.default, field.default_factory)) for field in counting)


def _default(value: Any, factory: Any) -> Any:
    if factory is not NODEFAULT:
        return factory()
    return UNSET if value is NODEFAULT else value


# --- the facts of a journal that say what a run meant, in the one order that they can be told in --------------


def significant_facts(facts: Iterable[Fact]) -> Iterator[Fact]:
    """What counts when two journals are compared."""
    return _in_call_order(_without_interruptions(facts))


def _without_interruptions(facts: Iterable[Fact]) -> list[Fact]:
    """The facts as if one owner had done it all at once."""
    told: dict[int, Fact] = {}
    begun: dict[str, tuple[int, str]] = {}  # effect → where it was begun, and what work it was
    cut: dict[str, tuple[int, ...]] = {}  # work → what is told of it so far, when that was cut off
    for index, fact in enumerate(facts):
        if isinstance(fact, WorkLost):
            at, work = begun[fact.effect]
            cut[work] = (at,)
        elif isinstance(fact, Intent):
            for at in cut.pop(_work_key(fact), ()):
                del told[at]
            begun[effect_id_of(fact)] = index, _work_key(fact)
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


def _work_key(fact: Intent) -> str:
    """What is done by an effect. A request that is sent again is another effect, and the same work."""
    return f"{fact.purpose} {fact.turn}" if isinstance(fact, ModelAsked) else effect_id_of(fact)


def _in_call_order(facts: Iterable[Fact]) -> Iterator[Fact]:
    places: dict[str, int] = {}
    batch: list[Fact] = []
    for fact in facts:
        if not places or isinstance(fact, ResultsGiven | ModelAsked | RunEnding | RunStopped):
            yield from sorted(batch, key=lambda one: _call_index(one, places))
            yield fact
            calls = fact.reply.message.calls if isinstance(fact, ModelReplied) else ()
            places, batch = {call.id: place for place, call in enumerate(calls)}, []
        else:
            batch.append(fact)
    yield from sorted(batch, key=lambda one: _call_index(one, places))


def _call_index(fact: Fact, places: dict[str, int]) -> int:
    return places.get(str(getattr(fact, "call", None) or getattr(fact, "subject", None)), -1)
