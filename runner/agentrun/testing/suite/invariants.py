"""Invariants of every run, whatever fails in it, checked on its journal.

    check_terminal_record    a finished run has one terminal record at its end; a suspended run has none
    check_budgets            nothing is started beyond a limit; a reply that exceeds one is kept
    check_gates              no call and no delivery is started that was refused, denied or not approved
    check_at_most_once       no call that must not be repeated is started twice without an explicit retry
    check_calls_ended        every started call ends before the run does
    check_calls_journaled    no call reaches its tool more often than the journal says
    check_audit              the journal folds, and the current code makes the same decisions

Each function yields a text for each violation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from agentrun.core import facts
from agentrun.core.audit import find_divergence
from agentrun.core.budget import allowance
from agentrun.core.effect_ids import DeliveryId
from agentrun.core.evolve import evolve
from agentrun.core.package import Package, find_tool, tool_effect
from agentrun.core.state import State
from agentrun.errors import AgentrunError
from agentrun.spec.safe_text import plural

APPROVING_ANSWERS = ("approved", "approved_for_session")
"""Defined again here, because a check must not depend on the code that it checks."""
POLICY_ASKS = "the policy says ask"
"""The only obstacle that an approval removes."""

Invariant: TypeAlias = Callable[[Package, Sequence[facts.Record]], Iterator[str]]


def check_terminal_record(records: Sequence[facts.Record], *, waits: bool) -> Iterator[str]:
    """`waits`: whether the run is suspended."""
    stops = [record.seq for record in records if isinstance(record.fact, facts.RunStopped)]
    if not stops and not waits:
        yield "the run has ended without a terminal record"
    elif stops and waits:
        yield f"the run is suspended, but record {stops[0]} is a terminal record"
    elif len(stops) > 1:
        yield f"there are {len(stops)} terminal records: {', '.join(map(str, stops))}"
    elif stops and stops[0] != records[-1].seq:
        yield f"the terminal record {stops[0]} is followed by {plural(len(records) - stops[0], 'record')}"


def check_budgets(package: Package, records: Sequence[facts.Record]) -> Iterator[str]:
    state = State()
    for record in records:
        before, state = state, evolve(state, record)
        match record.fact:
            case facts.ModelAsked() as fact:
                yield from _check_model_budget(package, before, fact, record)
            case facts.ToolStarted() | facts.ChildStarted():
                limit = allowance(package, state).tool_calls
                if limit is not None and state.meter.tool_calls > limit:
                    yield f"record {record.seq} starts call {state.meter.tool_calls}, but the limit is {limit}"
            case facts.DeliveryStarted():
                pass
            case _:
                continue
        time = allowance(package, state).time
        if time is not None and state.elapsed > time:
            yield f"record {record.seq} starts work after {state.elapsed} ms, but the limit is {time} ms"


def _check_model_budget(package: Package, before: State, fact: facts.ModelAsked, record: facts.Record) -> Iterator[str]:
    limit, used = allowance(package, before), before.meter
    if fact.turn > package.budgets.turns:
        yield f"record {record.seq} begins turn {fact.turn}, but the limit is {package.budgets.turns}"
    if limit.tokens is not None and used.tokens + fact.reserved > limit.tokens:
        yield f"record {record.seq} may use {fact.reserved} tokens, but {used.tokens} of {limit.tokens} are used"
    if limit.cost is not None and used.cost + fact.cost > limit.cost:
        yield f"record {record.seq} may cost {fact.cost} micro-dollars, but {used.cost} of {limit.cost} are spent"


def check_gates(package: Package, records: Sequence[facts.Record]) -> Iterator[str]:  # noqa: ARG001  # the same for every agent
    """Uses the last decision on each call in the journal, and not the state, which made the decision."""
    obstacles: dict[str, str | None] = {}
    """By call or delivery. None: there is no obstacle. Absent: there was no ruling."""
    for record in records:
        match record.fact:
            case facts.CallRefused() as fact:
                obstacles[fact.call] = f"it was refused with {fact.code}"
            case facts.Ruled(stage="tool_call" | "delivery") as fact:
                is_modified_delivery = fact.stage == "delivery" and fact.ruling == "modify"
                is_open = fact.ruling == "allow" or fact.granted or is_modified_delivery
                obstacles[fact.subject] = None if is_open else f"the policy says {fact.ruling}"
            case facts.HookAnswered(point="before_tool", closes=True) as fact:
                obstacles[fact.subject] = f"the hook {fact.hook} denied it"
            case facts.ApprovalAnswered() as fact if fact.answer not in APPROVING_ANSWERS:
                obstacles[fact.subject] = f"the answer was {fact.answer}"
            case facts.ApprovalAnswered() as fact if obstacles.get(fact.subject) == POLICY_ASKS:
                obstacles[fact.subject] = None
            case facts.ToolStarted() | facts.ResultShared() | facts.ChildStarted() as fact:
                if (obstacle := obstacles.get(fact.call, "there was no ruling")) is not None:
                    yield f"record {record.seq} runs {fact.tool} ({fact.call}), although {obstacle}"
            case facts.DeliveryStarted() as fact:
                if (obstacle := obstacles.get(str(DeliveryId(fact.sink)))) is not None:
                    yield f"record {record.seq} delivers the answer to {fact.sink}, although {obstacle}"


def check_at_most_once(package: Package, records: Sequence[facts.Record]) -> Iterator[str]:
    started: dict[str, int] = {}
    for record in records:
        match record.fact:
            case facts.CallSettled(how="retry") as fact:
                started.pop(fact.call, None)
            case facts.ToolStarted() as fact:
                tool = find_tool(package, fact.tool)
                if tool is None or tool_effect(tool, fact.tool) != "at_most_once":
                    continue
                if fact.call in started:
                    first = started[fact.call]
                    yield f"record {record.seq} starts {fact.tool} ({fact.call}) again after record {first}"
                started.setdefault(fact.call, record.seq)


def check_calls_ended(package: Package, records: Sequence[facts.Record]) -> Iterator[str]:  # noqa: ARG001  # the same for every agent
    """Not for a run that ended with a miss, because its calls could not be replayed."""
    last = records[-1].fact if records else None
    if not isinstance(last, facts.RunStopped) or (last.fault is not None and last.fault.code.startswith("cassette.")):
        return
    open_: dict[str, str] = {}
    for record in records:
        match record.fact:
            case facts.ToolStarted() | facts.ResultShared() | facts.ChildStarted() as fact:
                open_[fact.call] = fact.tool
            case facts.ToolFinished() | facts.CallCancelled() | facts.CallSettled() as fact:
                open_.pop(fact.call, None)
    for call, tool in open_.items():
        yield f"{tool} ({call}) was started and never ended"


def check_calls_journaled(records: Sequence[facts.Record], tool_runs: Mapping[str, int]) -> Iterator[str]:
    """`tool_runs`: how often each call reached its tool."""
    starts = Counter(record.fact.call for record in records if isinstance(record.fact, facts.ToolStarted))
    for call, times in tool_runs.items():
        if times > starts[call]:
            journaled = plural(starts[call], "time")
            yield f"the call {call} reached its tool {plural(times, 'time')}, but the journal has it {journaled}"


def check_audit(package: Package, records: Sequence[facts.Record]) -> Iterator[str]:
    divergence = find_divergence(package, records)
    if divergence is not None:
        now = next(map(facts.fact_kind, divergence.instead), "nothing")
        yield f"record {divergence.seq} is {facts.fact_kind(divergence.was)}, but the current code would write {now}"


INVARIANTS: tuple[Invariant, ...] = (check_budgets, check_gates, check_at_most_once, check_calls_ended, check_audit)


def broken_invariants(package: Package, records: Sequence[facts.Record], *, waits: bool) -> tuple[str, ...]:
    violations = list(check_terminal_record(records, waits=waits))
    for check in INVARIANTS:
        try:
            violations += check(package, records)
        except AgentrunError as error:
            violations.append(f"the journal cannot be folded: {error.message}")
    return tuple(dict.fromkeys(violations))
