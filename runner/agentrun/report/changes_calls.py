"""What came differently of the calls of a turn.

Rule 1  Calls with the same tool and arguments are the same call, wherever in the batch they stand; then those with the
        same tool, in their order.
Rule 2  How a call ended is one thing, whatever facts say it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from agentrun.canon import compact, same
from agentrun.report.change import Change, How, Place
from agentrun.report.changes_facts import compared, of_reply
from agentrun.report.fields import fields, listed, shown
from agentrun.report.line import gist
from agentrun.report.nouns import NAME, fault_words
from agentrun.report.steps import Call, Fact, look, text_of
from agentrun.spec.text import short

_ENDS = frozenset(
    {"tool_started", "child_started", "tool_finished", "call_refused", "call_cancelled", "child_suspended"}
)
_NONE = frozenset({"cancelled", "no result yet", "it does not run"})
ARGUMENTS = 160


class End(NamedTuple):
    """How a call ended."""

    status: str
    """`a result`, or why there is none."""
    text: str = ""
    others: Any = ()
    """What is no text."""


def same_call(call: Call) -> Hashable:
    return call.tool, compact(call.arguments)


def call_words(call: Call) -> str:
    """`refund(amount=20, order="1042")`."""
    if not isinstance(call.arguments, dict):
        return f"{short(call.tool, NAME)}({shown(call.arguments)})"
    given = ", ".join(f"{short(str(key), NAME)}={shown(value, str(key))}" for key, value in call.arguments.items())
    return f"{short(call.tool, NAME)}({given if len(given) <= ARGUMENTS else given[: ARGUMENTS - 1] + '…'})"


def call_name(call: Call, calls: Sequence[Call]) -> str:
    """The tool, and the id as well where another call has the same tool."""
    name = short(call.tool, NAME)
    return name if sum(each.tool == call.tool for each in calls) < 2 else f"{name} {short(call.id, NAME)}"


def calls_compared(
    place: Place, before: list[Call], after: list[Call], nested: Callable[[Place, Any, Any], Iterator[Change]]
) -> Iterator[Change]:
    """What differs in the calls of a turn. `nested` compares the journals of sub-agents."""
    pairs = _pairs(before, after)
    kept = [(one, two) for one, two in pairs if one is not None and two is not None]
    order = [next(n for n, call in enumerate(before) if call is one) for one, _ in kept]
    if order != sorted(order):
        one, two = (", ".join(call_name(call, calls) for call in calls) for calls in (before, after))
        yield place.told("call", f"the order of the calls: {one} → {two}", "moved", before=one, after=two)
    for was, now in pairs:
        if now is None and was is not None:
            yield place.of_call(was.id).told(
                "call", f"the call of {call_words(was)} is gone", "gone", before=_plain(was)
            )
        elif was is None and now is not None:
            yield place.of_call(now.id).told("call", f"the call of {call_words(now)} is new", "new", after=_plain(now))
        elif was is not None and now is not None:
            yield from _call(place.of_call(now.id), was, now, call_name(now, after), nested)


def _plain(call: Call) -> dict[str, Any]:
    return {"tool": call.tool, "arguments": call.arguments}


def _pairs(before: list[Call], after: list[Call]) -> list[tuple[Call | None, Call | None]]:
    """In the order of now; what is gone comes last."""
    partner: dict[int, Call] = {}
    left = list(before)
    for key in (same_call, lambda call: call.tool):
        waiting: dict[Hashable, list[Call]] = defaultdict(list)
        for call in left:
            waiting[key(call)].append(call)
        for index, call in enumerate(after):
            if index not in partner and waiting[key(call)]:
                partner[index] = waiting[key(call)].pop(0)
        left = [call for call in left if not any(call is each for each in partner.values())]
    return [*((partner.get(index), call) for index, call in enumerate(after)), *((call, None) for call in left)]


def _call(
    place: Place, was: Call, now: Call, name: str, nested: Callable[[Place, Any, Any], Iterator[Change]]
) -> Iterator[Change]:
    if not same(was.arguments, now.arguments):
        words = f"the call of {name}: {listed(was.arguments, now.arguments, 'arguments')}"
        yield place.told("argument", words, before=was.arguments, after=now.arguments)
    one, two = ([fact for fact in call.facts if fact.kind not in _ENDS] for call in (was, now))
    yield from compared(place, one, two, lambda fact: f"the result of {name}" if _of_result(fact) else name)
    begun, begins = _child(was), _child(now)
    inside = list(_sub_agent(place, name, begun, begins, nested)) if begun and begins else []
    yield from inside
    if not any(change.kind in ("reply", "output") for change in inside):  # the answer of a sub-agent is its result
        yield from _ends(place, name, _end(was), _end(now))


def _of_result(fact: Fact) -> bool:
    return bool(fact.get("stage") == "tool_result" or fact.get("point") == "after_tool")


def _child(call: Call) -> Fact | None:
    return next((fact for fact in call.facts if fact.kind == "child_started"), None)


def _sub_agent(
    place: Place, name: str, before: Fact, after: Fact, nested: Callable[[Place, Any, Any], Iterator[Change]]
) -> Iterator[Change]:
    yield from nested(place.in_agent(name, str(place.call)), before.get("journal"), after.get("journal"))
    if not same(before.get("share"), after.get("share")):
        words = f"what the sub-agent {name} may spend: {listed(before.get('share'), after.get('share'))}"
        yield place.told("share", words, before=before.get("share"), after=after.get("share"))


def _end(call: Call) -> End:
    for fact in reversed(call.facts):
        match fact.kind:
            case "tool_finished" if fact.get("fault") is not None:
                return End(fault_words(fact.get("fault")), text_of(fact.get("parts")))
            case "tool_finished":
                return End("a result", text_of(fact.get("parts")), _others(fact.get("parts")))
            case "call_refused":
                return End(short(str(fact.get("code")), NAME), str(fact.get("told")), fact.get("fields"))
            case "call_cancelled":
                return End("cancelled", str(fact.get("told")))
            case "child_suspended":
                return End("the sub-agent waits for somebody", "", fact.get("waits_for"))
    started = any(fact.kind in _ENDS for fact in call.facts)
    return End("no result yet" if started else "it does not run")


def _others(parts: Any) -> list[Any]:
    return [part for part in parts if look(part, "kind") != "text"] if isinstance(parts, list) else []


def _ends(place: Place, name: str, was: End, now: End) -> Iterator[Change]:
    if was.status != now.status:
        one, two = (
            f"{end.status} ({gist(end.text)})" if end.status == "a result" else end.status for end in (was, now)
        )
        how: How = "gone" if now.status in _NONE else "new" if was.status in _NONE else "changed"
        yield place.told("result", f"{name} ends otherwise: {one} → {two}", how, before=_data(was), after=_data(now))
        return
    if was.text != now.text:
        yield from of_reply(place, "result", f"the result of {name} changed", was.text, now.text)
        if was.status != "a result":  # what was refused, and why, says the text
            return
    if any(fields(was.others, now.others)):
        words = f"the result of {name} changed: {listed(was.others, now.others)}"
        yield place.told("result", words, before=was.others, after=now.others)


def _data(end: End) -> dict[str, Any]:
    return {"status": end.status, "text": end.text}
