"""Snapshots: the canonical form of a journal, without what differs between two runs that behave alike.

Rule 1  `usage: rounded` leaves out the usage and cost of single replies, and the tokens and cost that are left for a
        sub-agent, which depend on them. The last line is the total of all runs and sub-agents, rounded.
Rule 2  `usage: exact` is the canonical form, byte for byte. `usage: none` has no usage and no total.
Rule 3  A path to ignore begins with the kind of a fact, of sub-agents too: `tool_finished.parts.*.text`. It may lead
        into a text that is JSON. That there is a value still counts, only the value itself does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from agentrun.journal.yaml_text import YamlTextError, dump_plain_yaml, parse_plain_yaml
from agentrun.report.journal_spend import rounded_spend
from agentrun.report.journal_tree import get_path
from agentrun.spec.v1.assertions import SnapshotUsage
from agentrun.spec.v1.field_types import replace_at_path

_USAGE_FIELDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "model_replied": (("reply", "usage"), ("cost",)),
    "child_started": (("share", "tokens"), ("share", "cost")),
    "run_started": (("parent", "share", "tokens"), ("parent", "share", "cost")),
}
IGNORED_VALUE = "[ignored]"
_SPENT = "spent"
_SPENT_LINE = f"- {_SPENT}: "


class SnapshotForm(Struct, frozen=True):
    """What a snapshot contains."""

    usage: SnapshotUsage = "rounded"
    ignore: tuple[str, ...] = ()


class SnapshotText(Struct, frozen=True):
    text: str
    ignored: dict[str, int]
    """How many values each path to ignore replaced."""


def dump_snapshot(facts: Iterable[dict[str, Any]], form: SnapshotForm) -> SnapshotText:
    """`facts`: the canonical form as plain data (`journal.canonical.plain_facts`), of one run or of several."""
    facts = list(facts)
    total = [f"{_SPENT_LINE}{rounded_spend(facts)}\n"] if form.usage == "rounded" else []
    if form.usage != "exact":
        facts = without_usage(facts)
    ignored = {path: _ignore(facts, path) for path in form.ignore}
    return SnapshotText("\n".join([*(dump_plain_yaml([fact]) for fact in facts), *total]), ignored)


def parse_snapshot(text: str) -> list[Any]:
    """The facts of a canonical journal or a snapshot. The total is the last entry, `{"spent": …}`. Raises
    YamlTextError."""
    head, _, last = text.rstrip("\n").rpartition("\n")
    total = [{_SPENT: last.removeprefix(_SPENT_LINE)}] if last.startswith(_SPENT_LINE) else []
    rest = head if total else text
    facts = parse_plain_yaml(rest) if rest.strip("\n") else []
    if not isinstance(facts, list):
        raise YamlTextError(1)
    return [*facts, *total]


def usage_detail(facts: Sequence[Any]) -> SnapshotUsage:
    """How much usage the facts of a journal or a snapshot have. A journal without replies is exact."""
    if facts and _is_total(facts[-1]):
        return "rounded"
    replies = [fact["model_replied"] for fact in facts if get_path(fact, "model_replied") is not None]
    return "exact" if not replies or any("usage" in (get_path(each, "reply") or ()) for each in replies) else "none"


def spent_text(facts: Sequence[Any]) -> str | None:
    """The rounded total. None: the facts have no usage."""
    match usage_detail(facts):
        case "rounded":
            return str(facts[-1][_SPENT])
        case "exact":
            return rounded_spend(facts)
    return None


def without_usage(facts: Iterable[Any]) -> list[Any]:
    """A copy without usage, cost and total."""
    return [_fact_without_usage(fact) for fact in facts if not _is_total(fact)]


def _is_total(fact: Any) -> bool:
    return isinstance(fact, dict) and isinstance(fact.get(_SPENT), str)


def _fact_without_usage(fact: Any) -> Any:
    if not isinstance(fact, dict):
        return fact
    kept = {}
    for kind, data in fact.items():
        for path in _USAGE_FIELDS.get(kind, ()):
            data = _without_field(data, *path)  # one field after the other
        if isinstance(journal := get_path(data, "journal"), list) and kind == "child_started":
            data = {**data, "journal": without_usage(journal)}
        kept[kind] = data
    return kept


def _without_field(data: Any, key: str, *rest: str) -> Any:
    if not isinstance(data, dict) or key not in data:
        return data
    if rest:
        return {**data, key: _without_field(data[key], *rest)}
    return {name: value for name, value in data.items() if name != key}


def _ignore(facts: Iterable[Any], path: str) -> int:
    count = 0
    for fact in facts:
        journal = get_path(fact, "child_started", "journal")
        count += _ignore(journal, path) if isinstance(journal, list) else 0
        count += replace_at_path(fact, path, IGNORED_VALUE, in_json_texts=True)
    return count
