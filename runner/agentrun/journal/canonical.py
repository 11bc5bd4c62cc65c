"""A journal as people compare it: what the run meant, without what differs between two equal runs.

Rule 1  Left out: time, seq, epochs, hashes, every field marked VOLATILE where it is declared (run id, fingerprint,
        wire ids, what was thought), and what `order.py` leaves out: the traces of interruptions. Kept: everything
        else, usage and cost included.
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

from agentrun.canon import compact
from agentrun.core.facts import Fact, Record, kind_of
from agentrun.core.facts_calls import ChildStarted
from agentrun.core.messages import VOLATILE, Reasoning
from agentrun.journal.layout import lay_out
from agentrun.journal.order import meant

Children = Mapping[str, Iterable[Record]]
"""The journals of children and of their children, by run."""


def canonical(
    records: Iterable[Record], children: Children | None = None, clean: Callable[[str], str] | None = None
) -> str:
    """The canonical form of a journal: YAML with one block per fact. `clean` hides in a text what nobody may see."""
    return "\n".join(lay_out([each]) for each in plain_facts(records, children, clean))


def plain_facts(
    records: Iterable[Record], children: Children | None = None, clean: Callable[[str], str] | None = None
) -> Iterator[dict[str, Any]]:
    """What the canonical form says, as plain data: each fact by its name."""
    for each in _told(records, children or {}):
        yield each if clean is None else _cleaned(each, clean)


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(key): _cleaned(item, clean) for key, item in value.items()}
        case list():
            return [_cleaned(item, clean) for item in value]
        case int() | float() if not isinstance(value, bool):
            shown = clean(spelled := compact(value).decode())
            return value if shown == spelled else shown
    return value


def block(fact: Fact) -> str:
    """One fact: its name, and its fields below."""
    return lay_out([_named(fact)])


def _told(records: Iterable[Record], children: Children) -> Iterator[dict[str, Any]]:
    for fact in meant(record.fact for record in records):
        told = _named(fact)
        if isinstance(fact, ChildStarted) and fact.run in children:
            told[kind_of(fact)]["journal"] = list(_told(children[fact.run], children))
        yield told


def _named(fact: Fact) -> dict[str, Any]:
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
