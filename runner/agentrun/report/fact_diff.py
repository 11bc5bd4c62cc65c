"""Compare two lists of facts about one thing.

Rule 1  Facts are paired by their subject. Several facts with the same subject are paired in order.
Rule 2  A consequence of another change is not reported: a retry after a failure, a question before its answer, or that
        the model reads the results of its calls.
Rule 3  A fact of a kind without a special text is compared field by field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from agentrun.canonical_json import same_json
from agentrun.core.effect_ids import CallId, parse_effect_id
from agentrun.report.change import ChangeKind, ChangePlace, RunChange
from agentrun.report.formatting import preview_text
from agentrun.report.journal_tree import FactNode, get_path, message_text, parts_text
from agentrun.report.value_diff import (
    LineDifference,
    compare_lines,
    format_change,
    format_differences,
    format_value,
    parse_json_text,
)
from agentrun.spec.safe_text import plural, short_text

MAX_REPORTED_LINES = 5
"""Changed lines of a text that are reported one by one."""

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


def compare_facts(
    place: ChangePlace, before: Iterable[FactNode], after: Iterable[FactNode], name: Callable[[FactNode], str]
) -> Iterator[RunChange]:
    """The differences of two lists of facts. `name` returns the name of a fact's subject."""
    one, two = _by_key(before), _by_key(after)
    gone = [fact for key, fact in one.items() if key not in two]
    new = [fact for key, fact in two.items() if key not in one]
    both = [(fact, two[key]) for key, fact in one.items() if key in two]
    differ = {fact.kind for fact, other in both if not same_json(_comparable_data(fact), _comparable_data(other))}
    for fact, other in both:
        if not same_json(_comparable_data(fact), _comparable_data(other)) and not (
            _FOLLOWS.get(fact.kind, frozenset()) & differ
        ):
            yield from _compare_pair(place, fact, other, name(other))
    for fact in gone:
        if not _follows(fact, {each.kind for each in gone} | differ):
            noun = fact_label(fact, name(fact))
            yield place.make_change(noun.kind, f"{noun.full_text()} is gone", "gone", before=fact.data)
    for fact in new:
        if not _follows(fact, {each.kind for each in new} | differ):
            noun = fact_label(fact, name(fact))
            yield place.make_change(noun.kind, f"{noun.full_text()} is new", "new", after=fact.data)


def compare_text(place: ChangePlace, kind: ChangeKind, name: str, before: str, after: str) -> Iterator[RunChange]:
    """A text of several lines, line by line."""
    found = compare_lines(before, after)
    for line in found[:MAX_REPORTED_LINES]:
        where = f"{name} line {line.number}"
        if line.before is None:
            yield place.make_change(kind, f"{where} is new: “{short_text(line.after or '')}”", "new", after=line.after)
        elif line.after is None:
            yield place.make_change(kind, f"{where} is gone: “{short_text(line.before)}”", "gone", before=line.before)
        else:
            yield place.value_change(kind, where, line.before, line.after)
    if len(found) > MAX_REPORTED_LINES:
        yield place.make_change(kind, f"and {plural(len(found) - MAX_REPORTED_LINES, 'more line')} of the {name}")


def compare_data(place: ChangePlace, kind: ChangeKind, name: str, before: Any, after: Any) -> Iterator[RunChange]:
    """Plain data, as one change for all its fields."""
    before, after = parse_json_text(before), parse_json_text(after)
    if not same_json(before, after):
        yield place.make_change(kind, f"{name}: {format_differences(before, after)}", before=before, after=after)


def _by_key(facts: Iterable[FactNode]) -> dict[tuple[str, ...], FactNode]:
    counts: Counter[tuple[str, ...]] = Counter()
    found = {}
    for fact in facts:
        key = fact_key(fact)
        counts[key] += 1
        found[(*key, str(counts[key]))] = fact
    return found


def _follows(fact: FactNode, reported: set[str]) -> bool:
    return fact.kind == "results_given" or bool(_FOLLOWS.get(fact.kind, frozenset()) & reported)


def _comparable_data(fact: FactNode) -> dict[str, Any]:
    """The data of a fact without its place, which moves when something before it is new.

    The calls and the usage of a reply are left out, because they are compared elsewhere.
    """
    if fact.kind == "results_given":
        return {"ended_by": _ended_by(fact)}
    if fact.kind == "model_replied":
        parts = fact.get("reply", "message", "parts")
        kinds = (
            sorted({str(get_path(part, "kind")) for part in parts} - {"tool_call"})
            if isinstance(parts, list)
            else parts
        )
        own = {key: fact.get("reply", key) for key in ("finish", "model")}
        return {"text": message_text(fact.get("reply", "message")), "kinds": kinds, **own}
    return {key: value for key, value in fact.data.items() if key not in _PLACES}


def _ended_by(fact: FactNode) -> int | None:
    """The number of the call in its turn that ends the run, from 1."""
    call = parse_effect_id(str(fact.get("ended_by")))
    return call.index + 1 if isinstance(call, CallId) else None


def _compare_results_given(place: ChangePlace, before: FactNode, after: FactNode, _: str) -> Iterator[RunChange]:
    one, two = (
        "the model reads them" if number is None else f"call {number} ends the run"
        for number in map(_ended_by, (before, after))
    )
    yield place.make_change("result", f"after the results: {one} → {two}", before=one, after=two)


def _compare_pair(place: ChangePlace, before: FactNode, after: FactNode, name: str) -> Iterator[RunChange]:
    special = _PAIRS.get(before.kind)
    found = list(special(place, before, after, name)) if special else []
    yield from found or _compare_generic(place, before, after, name)


def _compare_generic(place: ChangePlace, before: FactNode, after: FactNode, name: str) -> Iterator[RunChange]:
    noun = fact_label(after, name)
    one, two = _comparable_data(before), _comparable_data(after)
    yield place.make_change(noun.kind, f"{noun.text}: {format_differences(one, two)}", before=one, after=two)


def _compare_asked(place: ChangePlace, before: FactNode, after: FactNode, _: str) -> Iterator[RunChange]:
    if before.get("route") != after.get("route"):
        yield place.value_change("route", "the model that is asked", before.get("route"), after.get("route"))
    if before.get("hidden") != after.get("hidden"):
        one, two = before.get("hidden") or [], after.get("hidden") or []
        yield place.value_change("tools", "tools hidden from the model", one, two)


def _compare_ruled(place: ChangePlace, before: FactNode, after: FactNode, name: str) -> Iterator[RunChange]:
    was, now = (format_rules(fact.get("rules"), fact.get("reason")) for fact in (before, after))
    one, two = (short_text(str(fact.get("ruling")), MAX_FACT_NAME) for fact in (before, after))
    if one != two:
        words = f"the ruling on {name} changed: {one} → {two} ({now}; was {was})"
        yield place.make_change("ruling", words, before=before.data, after=after.data)
    elif was != now:
        words = f"the ruling on {name} is still {two}, now {now}; was {was}"
        yield place.make_change("ruling", words, before=before.data, after=after.data)
    for key in ("arguments", "text", "messages", "granted"):
        if not same_json(before.get(key), after.get(key)):
            yield from compare_data(
                place, "ruling", f"the change that the policy makes to {name}", before.get(key), after.get(key)
            )


def _compare_approval(place: ChangePlace, before: FactNode, after: FactNode, name: str) -> Iterator[RunChange]:
    one, two = (f"{fact.get('answer')} by {fact.get('by')}" for fact in (before, after))
    words = f"the approval of {name}: {short_text(one)} → {short_text(two)}"
    yield place.make_change("approval", words, before=before.data, after=after.data)


def _compare_hook(place: ChangePlace, before: FactNode, after: FactNode, name: str) -> Iterator[RunChange]:
    one, two = (format_hook_answer(fact.get("answer")) for fact in (before, after))
    if one != two:
        noun = fact_label(after, name)
        yield place.make_change("hook", f"{noun.text}: {one} → {two}", before=before.data, after=after.data)


def _compare_failed(place: ChangePlace, before: FactNode, after: FactNode, _: str) -> Iterator[RunChange]:
    one, two = (format_fault(fact.get("fault")) for fact in (before, after))
    if one != two:
        yield place.make_change(
            "fault", f"the failure of the request: {one} → {two}", before=before.data, after=after.data
        )


def _compare_delivered(place: ChangePlace, before: FactNode, after: FactNode, name: str) -> Iterator[RunChange]:
    one, two = (
        "delivered" if fact.get("fault") is None else format_fault(fact.get("fault")) for fact in (before, after)
    )
    if one != two:
        noun = fact_label(after, name)
        yield place.make_change("delivery", f"{noun.text}: {one} → {two}", before=before.data, after=after.data)


def _compare_model_told(place: ChangePlace, before: FactNode, after: FactNode, name: str) -> Iterator[RunChange]:
    one, two = (
        "\n\n".join(map(message_text, messages)) if isinstance(messages := fact.get("messages"), list) else ""
        for fact in (before, after)
    )
    yield from compare_text(place, "told", fact_label(after, name).text, one, two)


def _compare_replied(place: ChangePlace, before: FactNode, after: FactNode, _: str) -> Iterator[RunChange]:
    """A reply without its calls and its cost."""
    one, two = (message_text(fact.get("reply", "message")) for fact in (before, after))
    yield from compare_reply(place, "reply", "the reply", one, two)
    names: tuple[tuple[ChangeKind, str], ...] = (
        ("finish", "the finish reason"),
        ("model", "the model that answered"),
    )
    for key, name in names:
        if before.get("reply", key) != after.get("reply", key):
            yield place.value_change(key, name, before.get("reply", key), after.get("reply", key))


def compare_reply(place: ChangePlace, kind: ChangeKind, name: str, before: str, after: str) -> Iterator[RunChange]:
    """A text that may be JSON or have several lines. Only the first line that differs is reported."""
    one, two = parse_json_text(before), parse_json_text(after)
    if not isinstance(one, str) and not isinstance(two, str):
        yield from compare_data(place, kind, name, one, two)
    elif before != after:
        found = compare_lines(before, after) if before and after and "\n" in before + after else []
        first = f"line {found[0].number}: {_side_by_side(found[0])}" if found else _format_texts(before, after)
        more = f", and {plural(len(found) - 1, 'more line')}" if len(found) > 1 else ""
        yield place.make_change(kind, f"{name}: {first}{more}", before=before, after=after)


def _side_by_side(line: LineDifference) -> str:
    return _format_texts(line.before or "", line.after or "")


def _format_texts(before: str, after: str) -> str:
    if not before or not after:
        return f"{format_value(before) if before else 'nothing'} → {format_value(after) if after else 'nothing'}"
    return format_change(before, after)


_PAIRS: Mapping[str, Callable[[ChangePlace, FactNode, FactNode, str], Iterator[RunChange]]] = {
    "model_asked": _compare_asked,
    "model_replied": _compare_replied,
    "model_failed": _compare_failed,
    "model_told": _compare_model_told,
    "results_given": _compare_results_given,
    "ruled": _compare_ruled,
    "approval_answered": _compare_approval,
    "hook_answered": _compare_hook,
    "delivery_finished": _compare_delivered,
    "delivery_skipped": _compare_delivered,
}


# --- labels of facts: `the ruling on refund (ask, by big-refunds)` --------------------------------------


MAX_FACT_NAME = 60


class FactLabel(NamedTuple):
    kind: ChangeKind
    text: str
    """The kind of fact and its subject."""
    detail: str = ""
    """The content of this fact."""

    def full_text(self) -> str:
        return f"{self.text} ({self.detail})" if self.detail else self.text


def fact_label(fact: FactNode, name: str) -> FactLabel:
    """`name`: the name of the fact's subject."""
    make = _LABELS.get(fact.kind)
    return FactLabel("other", f"the fact {short_text(fact.kind, MAX_FACT_NAME)}") if make is None else make(fact, name)


def fact_key(fact: FactNode) -> tuple[str, ...]:
    """Facts of two journals with the same key are compared with each other."""
    about = _KEY_FIELDS.get(fact.kind, ())
    subject = str(fact.get("subject"))
    # The number of a call changes if there is a new call before it.
    who = "" if isinstance(parse_effect_id(subject), CallId) else subject
    return (fact.kind, who, *(str(fact.get(name)) for name in about))


def format_rules(rules: Any, reason: Any = None) -> str:
    """`by big-refunds: a person signs off`."""
    names = [short_text(str(rule), MAX_FACT_NAME) for rule in rules] if isinstance(rules, list) else []
    why = f": {preview_text(reason)}" if isinstance(reason, str) else ""
    return (f"by {', '.join(names)}" if names else "by default") + why


def format_fault(fault: Any) -> str:
    """`provider.overloaded: the provider is busy`."""
    if not isinstance(fault, dict):
        return "nothing"
    message = get_path(fault, "message")
    code = short_text(str(get_path(fault, "code")), MAX_FACT_NAME)
    return f"{code}: {preview_text(message)}" if isinstance(message, str) and message else code


def format_hook_answer(answer: Any) -> str:
    """`deny: too large`."""
    more = (
        get_path(answer, "reason")
        or get_path(answer, "text")
        or get_path(answer, "fault", "message")
        or get_path(answer, "value")
    )
    kind = short_text(str(get_path(answer, "answer")), MAX_FACT_NAME)
    return kind if more is None else f"{kind}: {preview_text(more if isinstance(more, str) else str(more))}"


def _preview_messages(messages: Any) -> str:
    return preview_text(" ".join(message_text(each) for each in messages)) if isinstance(messages, list) else ""


def _short_field(fact: FactNode, key: str) -> str:
    return short_text(str(fact.get(key)), MAX_FACT_NAME)


_KEY_FIELDS: dict[str, tuple[str, ...]] = {
    "ruled": ("stage",),
    "hook_asked": ("hook", "point"),
    "hook_answered": ("hook", "point"),
    "model_asked": ("purpose",),
    "model_told": ("why",),
    "delivery_started": ("sink",),
    "delivery_finished": ("sink",),
    "delivery_skipped": ("sink",),
}
_LABELS: Mapping[str, Callable[[FactNode, str], FactLabel]] = {
    "message_queued": lambda f, _: FactLabel(
        "input", "the message sent during the run", preview_text(message_text(f.get("message")))
    ),
    "cancel_requested": lambda f, _: FactLabel(
        "outcome", "the request to cancel the run", f"by {_short_field(f, 'by')}"
    ),
    "work_lost": lambda f, _: FactLabel("fault", "the lost effect", _short_field(f, "effect")),
    "model_asked": lambda f, _: FactLabel("fault", "the request to the model", _short_field(f, "route")),
    "model_replied": lambda f, _: FactLabel(
        "reply", "the reply", preview_text(message_text(f.get("reply", "message")))
    ),
    "model_failed": lambda f, _: FactLabel("fault", "the failed request", format_fault(f.get("fault"))),
    "retry_planned": lambda _, __: FactLabel("fault", "the retry"),
    "route_switched": lambda f, _: FactLabel(
        "route",
        f"the switch from {_short_field(f, 'source')} to {_short_field(f, 'target')}",
        format_fault(f.get("fault")),
    ),
    "reply_discarded": lambda f, _: FactLabel(
        "fault", "the reply that was cut off and requested again", f"cap {_short_field(f, 'cap')}"
    ),
    "model_told": lambda f, _: FactLabel(
        "told", f"the message to the model ({_short_field(f, 'why')})", _preview_messages(f.get("messages"))
    ),
    "context_compacted": lambda f, _: FactLabel(
        "compaction", "the compaction", f"{_short_field(f, 'replaced')} messages"
    ),
    "compaction_failed": lambda f, _: FactLabel("compaction", "the failed compaction", _short_field(f, "reason")),
    "output_refused": lambda f, _: FactLabel("repair", "the repair of the answer", _first_error(f.get("errors"))),
    "answer_reached": lambda f, _: FactLabel(
        "outcome", "the answer", _short_field(f, "label") if f.get("label") else ""
    ),
    "delivery_started": lambda f, _: FactLabel("delivery", f"the delivery to {_short_field(f, 'sink')}"),
    "delivery_finished": lambda f, _: FactLabel(
        "delivery", f"the delivery to {_short_field(f, 'sink')}", format_fault(f.get("fault")) if f.get("fault") else ""
    ),
    "delivery_skipped": lambda f, _: FactLabel(
        "delivery", f"the skipped delivery to {_short_field(f, 'sink')}", format_fault(f.get("fault"))
    ),
    "run_ending": lambda _, __: FactLabel("outcome", "the start of the end"),
    "run_stopped": lambda f, _: FactLabel("outcome", "the end", format_outcome(f)),
    "hook_asked": lambda f, name: FactLabel("hook", f"the question to the hook {_short_field(f, 'hook')} about {name}"),
    "hook_answered": lambda f, name: FactLabel(
        "hook",
        f"the answer of the hook {_short_field(f, 'hook')} ({_short_field(f, 'point')}) about {name}",
        format_hook_answer(f.get("answer")),
    ),
    "ruled": lambda f, name: FactLabel(
        "ruling",
        f"the ruling on {name}",
        f"{_short_field(f, 'ruling')}, {format_rules(f.get('rules'), f.get('reason'))}",
    ),
    "approval_asked": lambda f, name: FactLabel(
        "approval", f"the question about {name}", format_rules(f.get("rules"), f.get("reason"))
    ),
    "approval_answered": lambda f, name: FactLabel(
        "approval", f"the approval of {name}", f"{_short_field(f, 'answer')} by {_short_field(f, 'by')}"
    ),
    "call_refused": lambda f, name: FactLabel("result", f"the refusal of {name}", _short_field(f, "code")),
    "call_cancelled": lambda _, name: FactLabel("result", f"the cancellation of {name}"),
    "tool_started": lambda _, name: FactLabel("result", f"the start of {name}"),
    "child_started": lambda _, name: FactLabel("result", f"the start of the sub-agent {name}"),
    "tool_finished": lambda f, name: FactLabel(
        "result", f"the result of {name}", preview_text(parts_text(f.get("parts")))
    ),
    "child_suspended": lambda _, name: FactLabel("result", f"the suspension of the sub-agent {name}"),
    "call_settled": lambda f, name: FactLabel(
        "result", f"the decision about {name}", f"{_short_field(f, 'how')} by {_short_field(f, 'by')}"
    ),
    "results_given": lambda _, __: FactLabel("result", "the step in which the model reads the results"),
}


def _first_error(errors: Any) -> str:
    return preview_text(str(errors[0])) if isinstance(errors, list) and errors else ""


def format_outcome(stopped: FactNode | None) -> str:
    """`completed`, `completed (truncated)`, or the code."""
    if stopped is None:
        return "not finished"
    if fault := stopped.get("fault"):
        return short_text(str(get_path(fault, "code")), MAX_FACT_NAME)
    label = stopped.get("label")
    return _short_field(stopped, "status") + (f" ({short_text(str(label), MAX_FACT_NAME)})" if label else "")
