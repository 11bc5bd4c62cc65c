"""The canonical form of a journal: without the details that differ between two equal runs.

Rule 1  Left out: time, seq, epochs, hashes, every field marked VOLATILE in its declaration (run id, fingerprint, wire
        ids, reasoning), and the traces of interruptions. Everything else is included, also usage and cost.
Rule 2  A field with its default value is left out. User data is complete.
Rule 3  The journal of a sub-agent is inside the fact that started it.
Rule 4  Facts of one batch of tool calls are in the order of the calls, not of their arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_type_hints

from msgspec import NODEFAULT, UNSET, Struct
from msgspec.structs import fields

from agentrun.canonical_json import map_json, sorted_json
from agentrun.core import facts as core_facts
from agentrun.core.effects import Intent, effect_id_of
from agentrun.core.messages import VOLATILE, Reasoning
from agentrun.journal.yaml_text import dump_plain_yaml

ChildJournals = Mapping[str, Iterable[core_facts.Record]]


def canonical(
    records: Iterable[core_facts.Record],
    children: ChildJournals | None = None,
    clean: Callable[[str], str] | None = None,
) -> str:
    """The canonical form of a journal: YAML with one block per fact. `clean` redacts a text."""
    return "\n".join(dump_plain_yaml([each]) for each in plain_facts(records, children, clean))


def plain_facts(
    records: Iterable[core_facts.Record],
    children: ChildJournals | None = None,
    clean: Callable[[str], str] | None = None,
) -> Iterator[dict[str, Any]]:
    """The canonical form as plain data: one mapping per fact, with the name of the fact as key."""
    plain = _plain_records(records, children or {})
    if clean is None:
        return plain

    def clean_number(value: float) -> float | str:
        cleaned = clean(text := sorted_json(value).decode())
        return value if cleaned == text else cleaned

    return (map_json(each, text=clean, number=clean_number, keys=True) for each in plain)


def fact_block(fact: core_facts.Fact) -> str:
    return dump_plain_yaml([_named_fact(fact)])


def _plain_records(records: Iterable[core_facts.Record], children: ChildJournals) -> Iterator[dict[str, Any]]:
    for fact in significant_facts(record.fact for record in records):
        named = _named_fact(fact)
        if isinstance(fact, core_facts.ChildStarted) and fact.run in children:
            named[core_facts.fact_kind(fact)]["journal"] = list(_plain_records(children[fact.run], children))
        yield named


def _named_fact(fact: core_facts.Fact) -> dict[str, Any]:
    plain = _plain(fact)
    return {plain.pop("type"): plain}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Struct):
        tag, compared = _form(type(value))
        items = ((name, getattr(value, name), default) for name, default in compared)
        return tag | {name: _plain(item) for name, item, default in items if item != default}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value if not isinstance(item, Reasoning)]
    return {key: _plain(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


@cache
def _form(cls: type[Struct]) -> tuple[dict[str, Any], tuple[tuple[str, Any], ...]]:
    """The tag, and the fields that are compared, each with its default. A field that is UNSET is always left out."""
    config, hints = cls.__struct_config__, get_type_hints(cls, include_extras=True)
    compared = []
    for field in fields(cls):
        if VOLATILE not in getattr(hints[field.name], "__metadata__", ()):
            default = field.default if field.default_factory is NODEFAULT else field.default_factory()
            compared.append((field.name, UNSET if default is NODEFAULT else default))
    return {str(config.tag_field): config.tag} if config.tag else {}, tuple(compared)


def significant_facts(facts: Iterable[core_facts.Fact]) -> Iterator[core_facts.Fact]:
    return _in_call_order(_without_interruptions(facts))


def _without_interruptions(facts: Iterable[core_facts.Fact]) -> list[core_facts.Fact]:
    result: dict[int, core_facts.Fact] = {}
    begun: dict[str, tuple[int, str]] = {}  # effect → index of its start, and key of its work
    interrupted: dict[str, tuple[int, ...]] = {}  # work → indexes of its facts before the interruption
    for index, fact in enumerate(facts):
        if isinstance(fact, core_facts.WorkLost):
            at, work = begun[fact.effect]
            interrupted[work] = (at,)
        elif isinstance(fact, Intent):
            for at in interrupted.pop(_work_key(fact), ()):
                del result[at]
            begun[effect_id_of(fact)] = index, _work_key(fact)
            result[index] = fact
        elif not _is_recovery(fact):
            result[index] = fact
            if isinstance(fact, core_facts.ChildSuspended):
                interrupted[fact.call] = (begun[fact.call][0], index)
            elif isinstance(fact, core_facts.Ruled):
                for at in interrupted.pop(f"ruling on {fact.subject}", ()):
                    if _plain(result[at]) == _plain(fact):  # the time until which it defers does not count
                        del result[at]
                if fact.ruling == "defer":
                    interrupted[f"ruling on {fact.subject}"] = (index,)
    return list(result.values())


def _is_recovery(fact: core_facts.Fact) -> bool:
    return isinstance(fact, core_facts.RunResumed | core_facts.TimePassed) or (
        isinstance(fact, core_facts.CallSettled) and fact.how == "retry"
    )


def _work_key(fact: Intent) -> str:
    """The work that an effect does. A model request that is sent again is a new effect but the same work."""
    return f"{fact.purpose} {fact.turn}" if isinstance(fact, core_facts.ModelAsked) else effect_id_of(fact)


def _in_call_order(facts: Iterable[core_facts.Fact]) -> Iterator[core_facts.Fact]:
    order: dict[str, int] = {}
    batch: list[core_facts.Fact] = []
    for fact in facts:
        if not order or isinstance(
            fact, core_facts.ResultsGiven | core_facts.ModelAsked | core_facts.RunEnding | core_facts.RunStopped
        ):
            yield from sorted(batch, key=lambda one: _call_index(one, order))
            yield fact
            calls = fact.reply.message.calls if isinstance(fact, core_facts.ModelReplied) else ()
            order, batch = {call.id: index for index, call in enumerate(calls)}, []
        else:
            batch.append(fact)
    yield from sorted(batch, key=lambda one: _call_index(one, order))


def _call_index(fact: core_facts.Fact, order: dict[str, int]) -> int:
    return order.get(str(getattr(fact, "call", None) or getattr(fact, "subject", None)), -1)
