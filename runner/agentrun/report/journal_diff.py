"""Explain how two canonical journals differ, aligned by run, turn and call, never by line.

Rule 1  Two journals that differ have at least one change.
Rule 2  A snapshot has less usage than a journal. What only one of them has is not compared.
Rule 3  The texts of changes are masked, escaped and cut, so they are safe in a terminal. Their values are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from agentrun.canonical_json import same_json, sorted_json
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.journal.yaml_text import YamlTextError
from agentrun.report.change import ChangePlace, ChangeStatus, RunChange
from agentrun.report.fact_diff import (
    MAX_FACT_NAME,
    compare_data,
    compare_facts,
    compare_reply,
    compare_text,
    format_fault,
    format_outcome,
)
from agentrun.report.formatting import preview_text
from agentrun.report.journal_spend import compare_spend, sum_spend
from agentrun.report.journal_tree import (
    CallNode,
    FactNode,
    RunNode,
    TurnNode,
    get_path,
    message_text,
    parse_runs,
    parts_text,
)
from agentrun.report.render_facts import SUBJECT_LABELS
from agentrun.report.snapshot_form import parse_snapshot, spent_text, usage_detail, without_usage
from agentrun.report.value_diff import align_lists, compare_fields, format_differences, format_value
from agentrun.spec.safe_text import short_text, truncate_text

_NOT_OVER = frozenset({"outcome", "output", "spend", "share"})
_IN_EVERY_TURN = frozenset({"route", "model"})
_START = frozenset({"agent", "rules", "params", "instructions", "input", "prompts", "earlier", "parent"})
_REPORTED_ELSEWHERE = frozenset({"run_stopped", "run_ending", "answer_reached"})
_STARTS = frozenset({"tool_started", "result_shared", "child_started"})
_ENDS = frozenset({*_STARTS, "tool_finished", "call_refused", "call_cancelled", "child_suspended"})
_WITHOUT_RESULT = frozenset({"cancelled", "no result yet", "did not run"})
MAX_ARGUMENTS = 160


def compare_journals(before: str, after: str, *, cut: bool = False) -> tuple[RunChange, ...]:
    """The differences between two canonical journals, in the order of the run."""
    if before == after:
        return ()
    facts = []
    for which, text in (("old", before), ("new", after)):
        try:
            facts.append(parse_snapshot(text))
        except YamlTextError as error:
            return (RunChange(text=f"the {which} journal cannot be read: {error}"),)
    found = compare_journal_facts(*facts, cut=cut)
    was, now = map(usage_detail, facts)
    if was != now and not cut:
        found += (RunChange(text=f"the usage in the journal: {was} → {now}", kind="spend"),)
    return found or (() if cut else (RunChange(text="the journals have the same content in another format"),))


def compare_journal_facts(before: Sequence[Any], after: Sequence[Any], *, cut: bool = False) -> tuple[RunChange, ...]:
    """The same for facts as plain data. `cut`: the new run did not finish, so missing facts are not reported."""
    if same_json(list(before), list(after)):
        return ()
    is_exact = usage_detail(before) == usage_detail(after) == "exact"
    if is_exact:
        sums = sum_spend(before), sum_spend(after)
        spend = list(compare_spend(*sums))
    else:
        spend = list(_compare_totals(spent_text(before), spent_text(after)))
        before, after = without_usage(before), without_usage(after)
    one, two = parse_runs(before), parse_runs(after)
    found = list(_drop_repeated(compare_runs(ChangePlace(), one, two)))
    if cut:
        return tuple(each for each in found if each.how != "gone" and each.kind not in _NOT_OVER)
    found += spend
    reported = [each for each in found if each.kind != "share"] if is_exact and spend else found
    return tuple(reported or found) or tuple(_first_raw_difference(before, after))


def _compare_totals(before: str | None, after: str | None) -> Iterator[RunChange]:
    """The rounded totals of two journals. A journal without usage is not compared."""
    if before is not None and after is not None and before != after:
        words = f"spend: {short_text(before)} → {short_text(after)}"
        yield ChangePlace().make_change("spend", words, before=before, after=after)


def _drop_repeated(found: Iterable[RunChange]) -> Iterator[RunChange]:
    """Report another model only in the first turn of a run, or of its sub-agents, that uses it."""
    seen = set()
    for each in found:
        what = each.kind, each.run, bool(each.path), str(each.before), str(each.after)
        if each.kind not in _IN_EVERY_TURN or what not in seen:
            yield each
        seen.add(what)


def _first_raw_difference(before: Sequence[Any], after: Sequence[Any]) -> Iterator[RunChange]:
    """The first difference in the data, if no other text describes it."""
    for field in compare_fields(list(before), list(after)):
        yield RunChange(text=f"the journal differs in {field.text()}", before=field.before, after=field.after)
        return


def compare_runs(place: ChangePlace, before: list[RunNode], after: list[RunNode]) -> Iterator[RunChange]:
    several = max(len(before), len(after)) > 1
    for number, (was, now) in enumerate(zip_longest(before, after), 1):
        here = place.in_run(number) if several else place
        if now is None:
            yield here.make_change("run", f"it is gone: {_input_text(was)}", "gone")
        elif was is None:
            yield here.make_change("run", f"it is new: {_input_text(now)}", "new")
        else:
            yield from _compare_start(here, was.started, now.started)
            yield from compare_facts(here, was.begin, now.begin, _subject_name)
            yield from _compare_turns(here, was, now)
            yield from _compare_end(here, was, now)


def _input_text(run: RunNode) -> str:
    return f"“{preview_text(message_text(run.started.get('input')))}”"


def _compare_start(place: ChangePlace, before: FactNode, after: FactNode) -> Iterator[RunChange]:
    if before.get("agent") != after.get("agent"):
        yield place.value_change("agent", "the agent", before.get("agent"), after.get("agent"))
    for field in compare_fields(before.get("params") or {}, after.get("params") or {}):
        yield place.field_change("params", field, "params.")
    one, two = before.get("instructions"), after.get("instructions")
    if isinstance(one, str) and isinstance(two, str):
        yield from compare_text(place, "instructions", "instructions", one, two)
    else:
        yield from compare_data(place, "instructions", "the instructions", one, two)
    one, two = message_text(before.get("input")), message_text(after.get("input"))
    yield from compare_reply(place, "input", "the message", one, two)
    if one == two:
        yield from compare_data(place, "input", "the message", before.get("input"), after.get("input"))
    for field in compare_fields(before.get("prompts") or {}, after.get("prompts") or {}):
        yield place.field_change("prompt", field, "the prompt ")
    if not same_json(before.get("earlier"), after.get("earlier")):
        differences = format_differences(before.get("earlier"), after.get("earlier"))
        words = f"the earlier conversation: {differences}"
        yield place.make_change("history", words, before=before.get("earlier"), after=after.get("earlier"))
    yield from compare_data(place, "other", "the rules of the runtime", before.get("rules"), after.get("rules"))
    one, two = ({key: value for key, value in fact.data.items() if key not in _START} for fact in (before, after))
    yield from compare_data(place, "other", "the start", one, two)


def _compare_turns(place: ChangePlace, before: RunNode, after: RunNode) -> Iterator[RunChange]:
    parsed = before.has_output and after.has_output
    pairs = align_lists(before.turns, after.turns, _exact_key, _tools_key)
    gone = {_exact_key(was): was.number for was, now in pairs if was is not None and now is None and was.calls}
    moved = {_exact_key(now): now.number for was, now in pairs if now is not None and was is None} if gone else {}
    for was, now in pairs:
        here = place.in_turn((now or was).number)  # type: ignore[union-attr]  # one of them is there
        if was is not None and now is not None:
            last = was is before.turns[-1] and now is after.turns[-1]
            yield from _compare_turn(here, was, now, last=last, parsed=parsed)
        elif was is not None and _exact_key(was) not in moved:
            words = f"the step is gone: {_describe_turn(was)}"
            yield here.make_change("step", words, "gone", before=_turn_data(was))
        elif now is not None and _exact_key(now) in gone:
            words = f"the step moved here from turn {gone[_exact_key(now)]}: {_describe_turn(now)}"
            yield here.make_change("step", words, "moved", before=_turn_data(now), after=_turn_data(now))
        elif now is not None:
            yield here.make_change("step", f"the step is new: {_describe_turn(now)}", "new", after=_turn_data(now))


def _exact_key(turn: TurnNode) -> tuple[Any, ...]:
    return tuple(map(call_key, turn.calls)), turn.text if not turn.calls else ""


def _tools_key(turn: TurnNode) -> tuple[tuple[str, ...], bool]:
    """The tools. For a turn without calls: whether it has a text, because a turn without a reply is not an answer."""
    return tuple(call.tool for call in turn.calls), bool(turn.calls or turn.text)


def _describe_turn(turn: TurnNode) -> str:
    if turn.calls:
        return f"it calls {', '.join(map(format_call, turn.calls[:4]))}{' and more' * (len(turn.calls) > 4)}"
    return f"it says “{preview_text(turn.text)}”" if turn.text else "it has no reply"


def _turn_data(turn: TurnNode) -> dict[str, Any]:
    return {"text": turn.text, "calls": [_call_data(call) for call in turn.calls]}


def _compare_turn(place: ChangePlace, was: TurnNode, now: TurnNode, *, last: bool, parsed: bool) -> Iterator[RunChange]:
    for change in compare_facts(place, was.facts, now.facts, _subject_name):
        if not (change.kind == "finish" and bool(was.calls) != bool(now.calls)):  # follows from the calls
            yield from _as_answer(change, place, parsed=parsed) if last and not now.calls else [change]
    yield from compare_calls(place, was.calls, now.calls)


def _as_answer(change: RunChange, place: ChangePlace, *, parsed: bool) -> Iterator[RunChange]:
    """The last reply is the answer. If it was parsed, the change is reported as the output."""
    if change.kind != "reply" or change.how != "changed":
        yield change
    elif isinstance(change.before, str):
        yield from compare_reply(place, "reply", "the answer", change.before, change.after)
    elif not parsed:
        yield change


def _subject_name(fact: FactNode) -> str:
    subject = short_text(str(fact.get("subject")), MAX_FACT_NAME)
    if isinstance(delivery := parse_effect_id(subject), DeliveryId):
        return f"the delivery to {delivery.sink}"
    return (SUBJECT_LABELS | {"input": "the message"}).get(subject, subject)


def _compare_end(place: ChangePlace, before: RunNode, after: RunNode) -> Iterator[RunChange]:
    was, now = before.stop_fact, after.stop_fact
    one, two = format_outcome(was), format_outcome(now)
    if one != two:
        why = f" ({format_fault(now.get('fault'))})" if now is not None and now.get("fault") else ""
        yield place.make_change("outcome", f"the outcome: {one} → {two}{why}", before=one, after=two)
    elif was is not None and now is not None:
        yield from compare_data(place, "outcome", "the outcome", was.get("fault"), now.get("fault"))
    old, new = (None if fact is None else fact.get("output") for fact in (was, now))
    if before.has_output and after.has_output:
        for field in compare_fields(old, new):
            yield place.field_change("output", field, "the output: ", "it")
    elif one == two:
        yield from compare_data(place, "output", "the output", old, new)
    rest, more = ([fact for fact in run.end if fact.kind not in _REPORTED_ELSEWHERE] for run in (before, after))
    yield from compare_facts(place, rest, more, _subject_name)


class CallEnd(NamedTuple):
    status: str
    """`a result`, or why there is none."""
    text: str = ""
    others: Any = ()
    """Parts that are not text."""


def call_key(call: CallNode) -> Hashable:
    return call.tool, sorted_json(call.arguments)


def format_call(call: CallNode) -> str:
    """`refund(amount=20, order="1042")`."""
    if not isinstance(call.arguments, dict):
        return f"{short_text(call.tool, MAX_FACT_NAME)}({format_value(call.arguments)})"
    listed = ", ".join(
        f"{short_text(str(key), MAX_FACT_NAME)}={format_value(value, str(key))}"
        for key, value in call.arguments.items()
    )
    return f"{short_text(call.tool, MAX_FACT_NAME)}({truncate_text(listed, MAX_ARGUMENTS)})"


def call_name(call: CallNode, calls: Sequence[CallNode]) -> str:
    """The name of the tool, with the id of the call if another call has the same tool."""
    name = short_text(call.tool, MAX_FACT_NAME)
    return name if sum(each.tool == call.tool for each in calls) < 2 else f"{name} {short_text(call.id, MAX_FACT_NAME)}"


def compare_calls(place: ChangePlace, before: list[CallNode], after: list[CallNode]) -> Iterator[RunChange]:
    pairs = _pair_calls(before, after)
    matched = [(one, two) for one, two in pairs if one is not None and two is not None]
    order = [next(n for n, call in enumerate(before) if call is one) for one, _ in matched]
    if order != sorted(order):
        one, two = (", ".join(call_name(call, calls) for call in calls) for calls in (before, after))
        yield place.make_change("call", f"the order of the calls: {one} → {two}", "moved", before=one, after=two)
    for was, now in pairs:
        if now is None and was is not None:
            words = f"the call of {format_call(was)} is gone"
            yield place.in_call(was.id).make_change("call", words, "gone", before=_call_data(was))
        elif was is None and now is not None:
            words = f"the call of {format_call(now)} is new"
            yield place.in_call(now.id).make_change("call", words, "new", after=_call_data(now))
        elif was is not None and now is not None:
            yield from _compare_call(place.in_call(now.id), was, now, call_name(now, after))


def _call_data(call: CallNode) -> dict[str, Any]:
    return {"tool": call.tool, "arguments": call.arguments}


def _pair_calls(before: list[CallNode], after: list[CallNode]) -> list[tuple[CallNode | None, CallNode | None]]:
    """Pairs in the new order. Calls that are gone come last."""
    partner: dict[int, CallNode] = {}
    left = list(before)
    for key in (call_key, lambda call: call.tool):
        waiting: dict[Hashable, list[CallNode]] = defaultdict(list)
        for call in left:
            waiting[key(call)].append(call)
        for index, call in enumerate(after):
            if index not in partner and waiting[key(call)]:
                partner[index] = waiting[key(call)].pop(0)
        left = [call for call in left if not any(call is each for each in partner.values())]
    return [*((partner.get(index), call) for index, call in enumerate(after)), *((call, None) for call in left)]


def _compare_call(place: ChangePlace, was: CallNode, now: CallNode, name: str) -> Iterator[RunChange]:
    if not same_json(was.arguments, now.arguments):
        words = f"the call of {name}: {format_differences(was.arguments, now.arguments, 'arguments')}"
        yield place.make_change("argument", words, before=was.arguments, after=now.arguments)
    one, two = ([fact for fact in call.facts if fact.kind not in _ENDS] for call in (was, now))

    def subject(fact: FactNode) -> str:
        is_result = fact.get("stage") == "tool_result" or fact.get("point") == "after_tool"
        return f"the result of {name}" if is_result else name

    yield from compare_facts(place, one, two, subject)
    begun, begins = _child(was), _child(now)
    inside = list(_compare_sub_agents(place, name, begun, begins)) if begun and begins else []
    yield from inside
    if not any(change.kind in ("reply", "output") for change in inside):  # the answer of a sub-agent is its result
        yield from _compare_ends(place, name, _call_end(was), _call_end(now))


def _child(call: CallNode) -> FactNode | None:
    return next((fact for fact in call.facts if fact.kind == "child_started"), None)


def _compare_sub_agents(place: ChangePlace, name: str, before: FactNode, after: FactNode) -> Iterator[RunChange]:
    journals = (fact.get("journal") for fact in (before, after))
    one, two = (parse_runs(facts if isinstance(facts, list) else ()) for facts in journals)
    yield from compare_runs(place.in_agent(name, str(place.call)), one, two)
    if not same_json(before.get("share"), after.get("share")):
        words = f"the budget of the sub-agent {name}: {format_differences(before.get('share'), after.get('share'))}"
        yield place.make_change("share", words, before=before.get("share"), after=after.get("share"))


def _call_end(call: CallNode) -> CallEnd:
    for fact in reversed(call.facts):
        match fact.kind:
            case "tool_finished" if fact.get("fault") is not None:
                return CallEnd(format_fault(fact.get("fault")), parts_text(fact.get("parts")))
            case "tool_finished":
                parts = fact.get("parts")
                listed = parts if isinstance(parts, list) else []
                others = [part for part in listed if get_path(part, "kind") != "text"]
                return CallEnd("a result", parts_text(parts), others)
            case "call_refused":
                code = short_text(str(fact.get("code")), MAX_FACT_NAME)
                return CallEnd(code, str(fact.get("told")), fact.get("fields"))
            case "call_cancelled":
                return CallEnd("cancelled", str(fact.get("told")))
            case "child_suspended":
                return CallEnd("the sub-agent is suspended", "", fact.get("waits_for"))
    started = any(fact.kind in _ENDS for fact in call.facts)
    return CallEnd("no result yet" if started else "did not run")


def _compare_ends(place: ChangePlace, name: str, was: CallEnd, now: CallEnd) -> Iterator[RunChange]:
    if was.status != now.status:
        one, two = (
            f"{end.status} ({preview_text(end.text)})" if end.status == "a result" else end.status for end in (was, now)
        )
        how: ChangeStatus = "new" if was.status in _WITHOUT_RESULT else "changed"
        how = "gone" if now.status in _WITHOUT_RESULT else how
        old, new = ({"status": end.status, "text": end.text} for end in (was, now))
        yield place.make_change("result", f"the end of {name}: {one} → {two}", how, before=old, after=new)
        return
    if was.text != now.text:
        yield from compare_reply(place, "result", f"the result of {name} changed", was.text, now.text)
        if was.status != "a result":  # the text of a refusal has all of it
            return
    if any(compare_fields(was.others, now.others)):
        words = f"the result of {name} changed: {format_differences(was.others, now.others)}"
        yield place.make_change("result", words, before=was.others, after=now.others)
