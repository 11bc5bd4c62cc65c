"""What must hold of every run, whatever goes wrong in it, read from its journal.

    ends         a finished run has one terminal record, and it is the last; a run that waits has none
    budgets      nothing is started beyond a limit; a reply that overshoots one is kept
    gates        no call is run, and no sink served, that was refused, denied, or not approved
    once         no call that must not be repeated is started twice, unless somebody decided so
    closed       every call that was started has its end before the run has
    told         no call reaches its tool of which the journal does not say so, or more often than it says
    audit        the journal folds, and today's code makes its decisions

Each is a function of a journal that says what is broken; `check_calls_journaled` also knows what tools saw of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from agentrun.core.audit import find_divergence
from agentrun.core.budget import allowance
from agentrun.core.effect_ids import DeliveryId
from agentrun.core.evolve import evolve
from agentrun.core.facts import (
    ApprovalAnswered,
    CallCancelled,
    CallRefused,
    CallSettled,
    ChildStarted,
    DeliveryStarted,
    Fact,
    HookAnswered,
    ModelAsked,
    Record,
    Ruled,
    RunStopped,
    ToolFinished,
    ToolStarted,
    fact_kind,
)
from agentrun.core.package import Package
from agentrun.core.package_lookup import find_tool, tool_effect
from agentrun.core.state import State
from agentrun.errors import AgentrunError
from agentrun.spec.safe_text import plural

APPROVING_ANSWERS = ("approved", "approved_for_session")
"""Said again here: what judges the runtime does not ask it."""
POLICY_ASKS = "the policy says ask"
"""What an approval answers. Nothing else that stands against something is."""

Invariant: TypeAlias = Callable[[Package, Sequence[Record]], Iterator[str]]


def check_terminal_record(records: Sequence[Record], *, waits: bool) -> Iterator[str]:
    """`waits`: whether it is for somebody outside that the run stands still."""
    stops = [record.seq for record in records if isinstance(record.fact, RunStopped)]
    if not stops and not waits:
        yield "the run is over, and has no terminal record"
    elif stops and waits:
        yield f"the run waits for somebody, and record {stops[0]} is a terminal one"
    elif len(stops) > 1:
        yield f"there are {len(stops)} terminal records: {', '.join(map(str, stops))}"
    elif stops and stops[0] != records[-1].seq:
        yield f"record {stops[0]} is the terminal one, and {len(records) - stops[0]} come after it"


def check_budgets(package: Package, records: Sequence[Record]) -> Iterator[str]:
    state = State()
    for record in records:
        before, state = state, evolve(state, record)
        match record.fact:
            case ModelAsked() as fact:
                yield from _check_model_budget(package, before, fact, record)
            case ToolStarted() | ChildStarted():
                limit = allowance(package, state).tool_calls
                if limit is not None and state.meter.tool_calls > limit:
                    yield f"record {record.seq} starts call {state.meter.tool_calls} of {limit}"
            case DeliveryStarted():
                pass
            case _:
                continue
        time = allowance(package, state).time
        if time is not None and state.elapsed > time:
            yield f"record {record.seq} starts something after {state.elapsed} of {time} ms"


def _check_model_budget(package: Package, before: State, fact: ModelAsked, record: Record) -> Iterator[str]:
    limit, used = allowance(package, before), before.meter
    if fact.turn > package.budgets.turns:
        yield f"record {record.seq} begins turn {fact.turn} of {package.budgets.turns}"
    if limit.tokens is not None and used.tokens + fact.reserved > limit.tokens:
        yield f"record {record.seq} may take {fact.reserved} tokens, after {used.tokens} of {limit.tokens}"
    if limit.cost is not None and used.cost + fact.cost > limit.cost:
        yield f"record {record.seq} may cost {fact.cost} micro-dollars, after {used.cost} of {limit.cost}"


def check_gates(package: Package, records: Sequence[Record]) -> Iterator[str]:  # noqa: ARG001  # the same for every agent
    """Read from what was said last about each call: not from the state, which decided over it."""
    stands: dict[str, str | None] = {}
    """By call or delivery: what stands against it. None: nothing. Absent: nobody was asked."""
    for record in records:
        match record.fact:
            case CallRefused() as fact:
                stands[fact.call] = f"it was refused with {fact.code}"
            case Ruled(stage="tool_call" | "delivery") as fact:
                is_open = (
                    fact.ruling == "allow" or fact.granted or (fact.stage == "delivery" and fact.ruling == "modify")
                )
                stands[fact.subject] = None if is_open else f"the policy says {fact.ruling}"
            case HookAnswered(point="before_tool", closes=True) as fact:
                stands[fact.subject] = f"the hook {fact.hook} said no"
            case ApprovalAnswered() as fact if fact.answer not in APPROVING_ANSWERS:
                stands[fact.subject] = f"the answer was {fact.answer}"
            case ApprovalAnswered() as fact if stands.get(fact.subject) == POLICY_ASKS:
                stands[fact.subject] = None
            case ToolStarted() | ChildStarted() as fact:
                if (against := stands.get(fact.call, "nobody ruled on it")) is not None:
                    yield f"record {record.seq} runs {fact.tool} ({fact.call}), although {against}"
            case DeliveryStarted() as fact:
                if (against := stands.get(str(DeliveryId(fact.sink)))) is not None:
                    yield f"record {record.seq} gives the answer to {fact.sink}, although {against}"


def check_at_most_once(package: Package, records: Sequence[Record]) -> Iterator[str]:
    started: dict[str, int] = {}
    for record in records:
        match record.fact:
            case CallSettled(how="retry") as fact:
                started.pop(fact.call, None)
            case ToolStarted() as fact:
                tool = find_tool(package, fact.tool)
                if tool is None or tool_effect(tool, fact.tool) != "at_most_once":
                    continue
                if fact.call in started:
                    yield f"record {record.seq} starts {fact.tool} ({fact.call}) again: record {started[fact.call]} did"
                started.setdefault(fact.call, record.seq)


def check_calls_ended(package: Package, records: Sequence[Record]) -> Iterator[str]:  # noqa: ARG001  # the same for every agent
    """But for a run that a recording cut off: it does not tell what would have become of its calls."""
    last = records[-1].fact if records else None
    if not isinstance(last, RunStopped) or (last.fault is not None and last.fault.code.startswith("cassette.")):
        return
    open_: dict[str, str] = {}
    for record in records:
        match record.fact:
            case ToolStarted() | ChildStarted() as fact:
                open_[fact.call] = fact.tool
            case ToolFinished() | CallCancelled() | CallSettled() as fact:
                open_.pop(fact.call, None)
    for call, tool in open_.items():
        yield f"{tool} ({call}) was started and never ended"


def check_calls_journaled(records: Sequence[Record], carried_out: Mapping[str, int]) -> Iterator[str]:
    """`carried_out`: how often each call reached its tool. The journal alone cannot tell of what is not in it."""
    starts = Counter(record.fact.call for record in records if isinstance(record.fact, ToolStarted))
    for call, times in carried_out.items():
        if times > starts[call]:
            said = plural(starts[call], "time")
            yield f"the call {call} reached its tool {plural(times, 'time')}, and was started {said}"


def check_audit(package: Package, records: Sequence[Record]) -> Iterator[str]:
    found = find_divergence(package, records)
    if found is not None:
        instead: list[Fact] = list(found.instead)
        now = fact_kind(instead[0]) if instead else "nothing"
        yield f"record {found.seq} is {fact_kind(found.was)}, and {now} would be written today"


INVARIANTS: tuple[Invariant, ...] = (check_budgets, check_gates, check_at_most_once, check_calls_ended, check_audit)


def broken_invariants(package: Package, records: Sequence[Record], *, waits: bool) -> tuple[str, ...]:
    """All that does not hold of one run."""
    found = list(check_terminal_record(records, waits=waits))
    for law in INVARIANTS:
        try:
            found += law(package, records)
        except AgentrunError as error:
            found.append(f"the journal cannot be folded: {error.message}")
    return tuple(dict.fromkeys(found))
