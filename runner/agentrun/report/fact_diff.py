"""Compare two lists of facts about one thing.

Rule 1  Facts are paired by their subject. Several facts with the same subject are paired in order.
Rule 2  A consequence of another change is not reported: a retry after a failure, a question before its answer, or that
        the model reads the results of its calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from agentrun.canonical_json import same_json
from agentrun.core.effect_ids import CallId, parse_effect_id
from agentrun.report.change import ChangeKind, ChangePlace, ChangeStatus, RunChange
from agentrun.report.formatting import preview_text
from agentrun.report.journal_tree import FactNode, get_path, message_text, parts_text
from agentrun.report.value_diff import compare_lines, format_change, format_differences, format_value, parse_json_text
from agentrun.spec.safe_text import plural, short_text

MAX_REPORTED_LINES = 5

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
MAX_FACT_NAME = 60
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


def compare_facts(
    place: ChangePlace, before: Iterable[FactNode], after: Iterable[FactNode], name: Callable[[FactNode], str]
) -> Iterator[RunChange]:
    """The differences of two lists of facts. `name` returns the name of a fact's subject."""
    one, two = _by_key(before), _by_key(after)
    gone = [fact for key, fact in one.items() if key not in two]
    new = [fact for key, fact in two.items() if key not in one]
    both = [(fact, two[key]) for key, fact in one.items() if key in two]
    changed = [pair for pair in both if not same_json(*map(_comparable_data, pair))]
    differ = {fact.kind for fact, _ in changed}
    for fact, other in changed:
        if not _FOLLOWS.get(fact.kind, frozenset()) & differ:
            yield from _compare_pair(place, fact, other, name(other))
    sides: tuple[tuple[ChangeStatus, list[FactNode]], ...] = (("gone", gone), ("new", new))
    for how, facts in sides:
        for fact in facts:
            causes = _FOLLOWS.get(fact.kind, frozenset())
            if fact.kind != "results_given" and not causes & ({each.kind for each in facts} | differ):
                noun = fact_label(fact, name(fact))
                data = {"before" if how == "gone" else "after": fact.data}
                yield place.make_change(noun.kind, f"{noun.full_text()} is {how}", how, **data)


def compare_text(place: ChangePlace, kind: ChangeKind, name: str, before: str, after: str) -> Iterator[RunChange]:
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


def _comparable_data(fact: FactNode) -> dict[str, Any]:
    """The data of a fact without its place, which moves when something before it is new.

    The calls and the usage of a reply are left out, because they are compared elsewhere.
    """
    if fact.kind == "results_given":
        return {"ended_by": _ended_by(fact)}
    if fact.kind == "model_replied":
        parts = fact.get("reply", "message", "parts")
        kinds = parts
        if isinstance(parts, list):
            kinds = sorted({str(get_path(part, "kind")) for part in parts} - {"tool_call"})
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
    yield from found
    if not found:
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


def _compare_formatted(
    kind: ChangeKind, write: Callable[[FactNode], str], place: ChangePlace, before: FactNode, after: FactNode, name: str
) -> Iterator[RunChange]:
    one, two = write(before), write(after)
    if one != two:
        label = "the failure of the request" if kind == "fault" else fact_label(after, name).text
        yield place.make_change(kind, f"{label}: {one} → {two}", before=before.data, after=after.data)


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
    names: dict[ChangeKind, str] = {"finish": "the finish reason", "model": "the model that answered"}
    for key, name in names.items():
        if before.get("reply", key) != after.get("reply", key):
            yield place.value_change(key, name, before.get("reply", key), after.get("reply", key))


def compare_reply(place: ChangePlace, kind: ChangeKind, name: str, before: str, after: str) -> Iterator[RunChange]:
    """A text that may be JSON or have several lines. Only the first line that differs is reported."""
    one, two = parse_json_text(before), parse_json_text(after)
    if not isinstance(one, str) and not isinstance(two, str):
        yield from compare_data(place, kind, name, one, two)
    elif before != after:
        found = compare_lines(before, after) if before and after and "\n" in before + after else []
        first = _format_texts(before, after)
        if found:
            first = f"line {found[0].number}: {_format_texts(found[0].before or '', found[0].after or '')}"
        more = f", and {plural(len(found) - 1, 'more line')}" if len(found) > 1 else ""
        yield place.make_change(kind, f"{name}: {first}{more}", before=before, after=after)


def _format_texts(before: str, after: str) -> str:
    if not before or not after:
        return f"{format_value(before) if before else 'nothing'} → {format_value(after) if after else 'nothing'}"
    return format_change(before, after)


def _format_delivery(fact: FactNode) -> str:
    return "delivered" if fact.get("fault") is None else format_fault(fact.get("fault"))


_PAIRS: Mapping[str, Callable[[ChangePlace, FactNode, FactNode, str], Iterator[RunChange]]] = {
    "model_asked": _compare_asked,
    "model_replied": _compare_replied,
    "model_failed": partial(_compare_formatted, "fault", lambda fact: format_fault(fact.get("fault"))),
    "model_told": _compare_model_told,
    "results_given": _compare_results_given,
    "ruled": _compare_ruled,
    "approval_answered": _compare_approval,
    "hook_answered": partial(_compare_formatted, "hook", lambda fact: format_hook_answer(fact.get("answer"))),
    "delivery_finished": partial(_compare_formatted, "delivery", _format_delivery),
    "delivery_skipped": partial(_compare_formatted, "delivery", _format_delivery),
}


class FactLabel(NamedTuple):
    kind: ChangeKind
    text: str
    detail: str = ""

    def full_text(self) -> str:
        return f"{self.text} ({self.detail})" if self.detail else self.text


def fact_label(fact: FactNode, name: str) -> FactLabel:
    if fact.kind not in _LABELS:
        return FactLabel("other", f"the fact {short_text(fact.kind, MAX_FACT_NAME)}")
    kind, text, detail = _LABELS[fact.kind]
    fields = _ShortFields(fact, name)
    return FactLabel(
        kind, text.format_map(fields), detail.format_map(fields) if isinstance(detail, str) else detail(fact)
    )


class _ShortFields(dict[str, str]):
    """The fields of a fact for a template. `{name}` is the name of its subject."""

    def __init__(self, fact: FactNode, name: str) -> None:
        super().__init__(name=name)
        self._fact = fact

    def __missing__(self, key: str) -> str:
        return _short_field(self._fact, key)


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


def _short_field(fact: FactNode, key: str) -> str:
    return short_text(str(fact.get(key)), MAX_FACT_NAME)


def _preview_messages(fact: FactNode) -> str:
    messages = fact.get("messages")
    return preview_text(" ".join(message_text(each) for each in messages)) if isinstance(messages, list) else ""


def _first_error(fact: FactNode) -> str:
    errors = fact.get("errors")
    return preview_text(str(errors[0])) if isinstance(errors, list) and errors else ""


def _fault_detail(fact: FactNode) -> str:
    return format_fault(fact.get("fault"))


def _rules_detail(fact: FactNode) -> str:
    return format_rules(fact.get("rules"), fact.get("reason"))


def format_outcome(stopped: FactNode | None) -> str:
    """`completed`, `completed (truncated)`, or the code."""
    if stopped is None:
        return "not finished"
    if fault := stopped.get("fault"):
        return short_text(str(get_path(fault, "code")), MAX_FACT_NAME)
    label = stopped.get("label")
    return _short_field(stopped, "status") + (f" ({short_text(str(label), MAX_FACT_NAME)})" if label else "")


_LABELS: Mapping[str, tuple[ChangeKind, str, str | Callable[[FactNode], str]]] = {
    "message_queued": (
        "input",
        "the message sent during the run",
        lambda fact: preview_text(message_text(fact.get("message"))),
    ),
    "cancel_requested": ("outcome", "the request to cancel the run", "by {by}"),
    "work_lost": ("fault", "the lost effect", "{effect}"),
    "model_asked": ("fault", "the request to the model", "{route}"),
    "model_replied": ("reply", "the reply", lambda fact: preview_text(message_text(fact.get("reply", "message")))),
    "model_failed": ("fault", "the failed request", _fault_detail),
    "retry_planned": ("fault", "the retry", ""),
    "route_switched": ("route", "the switch from {source} to {target}", _fault_detail),
    "reply_discarded": ("fault", "the reply that was cut off and requested again", "cap {cap}"),
    "model_told": ("told", "the message to the model ({why})", _preview_messages),
    "context_compacted": ("compaction", "the compaction", "{replaced} messages"),
    "compaction_failed": ("compaction", "the failed compaction", "{reason}"),
    "output_refused": ("repair", "the repair of the answer", _first_error),
    "answer_reached": ("outcome", "the answer", lambda fact: _short_field(fact, "label") if fact.get("label") else ""),
    "delivery_started": ("delivery", "the delivery to {sink}", ""),
    "delivery_finished": (
        "delivery",
        "the delivery to {sink}",
        lambda fact: _fault_detail(fact) if fact.get("fault") else "",
    ),
    "delivery_skipped": ("delivery", "the skipped delivery to {sink}", _fault_detail),
    "run_ending": ("outcome", "the decision to end the run", ""),
    "run_stopped": ("outcome", "the end", format_outcome),
    "hook_asked": ("hook", "the question to the hook {hook} about {name}", ""),
    "hook_answered": (
        "hook",
        "the answer of the hook {hook} ({point}) about {name}",
        lambda fact: format_hook_answer(fact.get("answer")),
    ),
    "ruled": ("ruling", "the ruling on {name}", lambda fact: f"{_short_field(fact, 'ruling')}, {_rules_detail(fact)}"),
    "approval_asked": ("approval", "the question about {name}", _rules_detail),
    "approval_answered": ("approval", "the approval of {name}", "{answer} by {by}"),
    "arguments_completed": ("argument", "the defaults of {name}", lambda fact: format_value(fact.get("arguments"))),
    "call_refused": ("result", "the refusal of {name}", "{code}"),
    "call_cancelled": ("result", "the cancellation of {name}", ""),
    "tool_started": ("result", "the start of {name}", ""),
    "result_shared": ("result", "the shared result of {name}", ""),
    "child_started": ("result", "the start of the sub-agent {name}", ""),
    "tool_finished": ("result", "the result of {name}", lambda fact: preview_text(parts_text(fact.get("parts")))),
    "child_suspended": ("result", "the suspension of the sub-agent {name}", ""),
    "call_settled": ("result", "the decision about {name}", "{how} by {by}"),
    "results_given": ("result", "the step in which the model reads the results", ""),
}
