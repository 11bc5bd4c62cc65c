"""What two runs did differently: how they began, turn by turn, how they ended, and what they spent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentrun.canon import same
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.report.align import aligned
from agentrun.report.change import Change, Place
from agentrun.report.changes_calls import call_words, calls_compared, same_call
from agentrun.report.changes_facts import compared, of_fields, of_reply, of_text
from agentrun.report.fields import fields, listed
from agentrun.report.line import gist
from agentrun.report.nouns import NAME, fault_words, outcome_words
from agentrun.report.steps import Fact, Run, Turn, look, runs_of, said
from agentrun.spec.text import short

_START = frozenset({"agent", "rules", "params", "instructions", "input", "prompts", "earlier", "parent"})


def runs_compared(place: Place, before: list[Run], after: list[Run]) -> Iterator[Change]:
    """The runs of two journals, first with first."""
    several = max(len(before), len(after)) > 1
    for number in range(1, max(len(before), len(after)) + 1):
        here = place.in_run(number) if several else place
        if number > len(after):
            yield here.told("run", f"it is gone: {_message(before[number - 1])}", "gone")
        elif number > len(before):
            yield here.told("run", f"it is new: {_message(after[number - 1])}", "new")
        else:
            yield from run_compared(here, before[number - 1], after[number - 1])


def run_compared(place: Place, before: Run, after: Run) -> Iterator[Change]:
    yield from _started(place, before.started, after.started)
    yield from compared(place, before.begin, after.begin, _about)
    yield from _turns(place, before, after)
    yield from _ended(place, before, after)


def nested(place: Place, before: Any, after: Any) -> Iterator[Change]:
    """The journals of a sub-agent."""
    one, two = (runs_of(facts if isinstance(facts, list) else ()) for facts in (before, after))
    yield from runs_compared(place, one, two)


def _message(run: Run) -> str:
    return f"“{gist(said(run.started.get('input')))}”"


def _started(place: Place, before: Fact, after: Fact) -> Iterator[Change]:
    if before.get("agent") != after.get("agent"):
        yield place.changed("agent", "the agent", before.get("agent"), after.get("agent"))
    for field in fields(before.get("params") or {}, after.get("params") or {}):
        yield place.of_field("params", field, "params.")
    one, two = before.get("instructions"), after.get("instructions")
    if isinstance(one, str) and isinstance(two, str):
        yield from of_text(place, "instructions", "instructions", one, two)
    else:
        yield from of_fields(place, "instructions", "the instructions", one, two)
    yield from _input(place, before.get("input"), after.get("input"))
    for field in fields(before.get("prompts") or {}, after.get("prompts") or {}):
        yield place.of_field("prompt", field, "the prompt ")
    if not same(before.get("earlier"), after.get("earlier")):
        words = f"what is known of the conversation before: {listed(before.get('earlier'), after.get('earlier'))}"
        yield place.told("history", words, before=before.get("earlier"), after=after.get("earlier"))
    yield from of_fields(place, "other", "the rules of the runtime", before.get("rules"), after.get("rules"))
    one, two = ({key: value for key, value in fact.data.items() if key not in _START} for fact in (before, after))
    yield from of_fields(place, "other", "the start", one, two)


def _input(place: Place, before: Any, after: Any) -> Iterator[Change]:
    one, two = said(before), said(after)
    yield from of_reply(place, "input", "the message", one, two)
    if one == two:
        yield from of_fields(place, "input", "the message", before, after)


def _turns(place: Place, before: Run, after: Run) -> Iterator[Change]:
    parsed = before.has_output and after.has_output
    pairs = aligned(before.turns, after.turns, _exact, _tools)
    gone = {_exact(was): was.number for was, now in pairs if was is not None and now is None and was.calls}
    moved = {_exact(now): now.number for was, now in pairs if now is not None and was is None} if gone else {}
    for was, now in pairs:
        if was is not None and now is not None:
            last = was is before.turns[-1] and now is after.turns[-1]
            yield from _turn(place.in_turn(now.number), was, now, last=last, parsed=parsed)
        elif was is not None and _exact(was) not in moved:
            yield place.in_turn(was.number).told("step", f"the step is gone: {_step(was)}", "gone", before=_plain(was))
        elif now is not None and _exact(now) in gone:
            words = f"the step moved here from turn {gone[_exact(now)]}: {_step(now)}"
            yield place.in_turn(now.number).told("step", words, "moved", before=_plain(now), after=_plain(now))
        elif now is not None:
            yield place.in_turn(now.number).told("step", f"the step is new: {_step(now)}", "new", after=_plain(now))


def _exact(turn: Turn) -> tuple[Any, ...]:
    return tuple(map(same_call, turn.calls)), turn.text if not turn.calls else ""


def _tools(turn: Turn) -> tuple[tuple[str, ...], bool]:
    """The tools; of a turn without calls whether it says anything: one that got no reply is no answer."""
    return tuple(call.tool for call in turn.calls), bool(turn.calls or turn.text)


def _step(turn: Turn) -> str:
    if turn.calls:
        return f"it calls {', '.join(map(call_words, turn.calls[:4]))}{' and more' * (len(turn.calls) > 4)}"
    return f"it says “{gist(turn.text)}”" if turn.text else "it has no reply"


def _plain(turn: Turn) -> dict[str, Any]:
    return {"text": turn.text, "calls": [{"tool": call.tool, "arguments": call.arguments} for call in turn.calls]}


def _turn(place: Place, was: Turn, now: Turn, *, last: bool, parsed: bool) -> Iterator[Change]:
    for change in compared(place, was.facts, now.facts, _about):
        if not (change.kind == "finish" and bool(was.calls) != bool(now.calls)):  # follows from the calls
            yield from _as_answer(change, place, parsed=parsed) if last and not now.calls else [change]
    yield from calls_compared(place, was.calls, now.calls, nested)


def _as_answer(change: Change, place: Place, *, parsed: bool) -> Iterator[Change]:
    """The last reply is the answer. One that is parsed is told as the output."""
    if change.kind != "reply" or change.how != "changed":
        yield change
    elif isinstance(change.before, str):
        yield from of_reply(place, "reply", "the answer", change.before, change.after)
    elif not parsed:
        yield change


def _about(fact: Fact) -> str:
    subject = short(str(fact.get("subject")), NAME)
    names = {
        "input": "the message",
        "request": "the request",
        "reply": "the reply",
        "output": "the answer",
        "stop": "the end",
    }
    if isinstance(delivery := parse_effect_id(subject), DeliveryId):
        return f"the delivery to {delivery.sink}"
    return names.get(subject, subject)


def _ended(place: Place, before: Run, after: Run) -> Iterator[Change]:
    was, now = before.stopped, after.stopped
    one, two = outcome_words(was), outcome_words(now)
    if one != two:
        why = f" ({fault_words(now.get('fault'))})" if now is not None and now.get("fault") else ""
        yield place.told("outcome", f"the outcome: {one} → {two}{why}", before=one, after=two)
    elif was is not None and now is not None:
        yield from of_fields(place, "outcome", "the outcome", _fault(was), _fault(now))
    old, new = (None if fact is None else fact.get("output") for fact in (was, now))
    if before.has_output and after.has_output:
        for field in fields(old, new):
            yield place.of_field("output", field, "the output: ", "it")
    elif one == two:
        yield from of_fields(place, "output", "the output", old, new)
    rest, more = ([fact for fact in run.end if fact.kind not in _TOLD] for run in (before, after))
    yield from compared(place, rest, more, _about)


_TOLD = frozenset({"run_stopped", "run_ending", "answer_reached"})


def _fault(stopped: Fact) -> Any:
    return look(stopped.data, "fault")
