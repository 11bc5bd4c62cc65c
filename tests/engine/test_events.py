"""Subscriptions, with their scopes and cursors, and with slow and asynchronous subscribers."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core.facts import ChildStarted, Fact, Parent, Record, RunStopped, TimePassed
from agentrun.core.spend import BudgetShare
from agentrun.engine.event_bus import EventBus, Subscription
from agentrun.engine.events import (
    ALL_EVENTS,
    Cursor,
    Event,
    Gap,
    Scope,
    agent_scope,
    family_scope,
    filter_scope,
    run_scope,
)
from agentrun.engine.follower import follow_journals
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import Journal, ReplyDelta
from agentrun.errors import AgentrunError
from agentrun.store.run_order import RunPlace

from ..core.script import RUN_STARTED

RUN_STOPPED = RunStopped("completed")
FROM_START = Cursor("all")


class Runs:
    """Journals, and a bus that is told of them."""

    def __init__(self, queue: int = 256) -> None:
        self.bus = EventBus(queue=queue)
        self.journals = MemoryJournals()
        self._open: dict[str, Journal] = {}

    def append(self, run: str, fact: Fact) -> Record:
        """As another process writes: the bus does not know."""
        if run not in self._open:
            self._open[run] = self.journals.open(run)
        journal = self._open[run]
        seq = len(tuple(journal.records())) + 1
        journal.append(Record(seq, 0, journal.epoch, journal.head, fact))
        return self.records(run)[-1]

    def write(self, run: str, fact: Fact) -> None:
        self.bus.publish(run, self.append(run, fact))

    def start(self, run: str, agent: str = "triage", **changes: Any) -> None:
        self.write(run, replace(RUN_STARTED, run=run, agent=agent, **changes))

    def start_child(self, run: str, call: str, agent: str = "billing") -> str:
        """A sub-agent of a run. Its run."""
        child = f"{run}.{call}"
        self.write(run, ChildStarted(call, agent, child, BudgetShare()))
        self.start(child, agent, parent=Parent(run, call, 1, BudgetShare()))
        return child

    def records(self, run: str) -> tuple[Record, ...]:
        return self.journals.records(run)

    def passes(self, run: str, text: str = "x") -> None:
        self.bus.publish(run, ReplyDelta(run, "m1.1", text))

    def subscribe(self, scope: Scope = ALL_EVENTS, cursor: Cursor | None = None) -> Subscription:
        return self.bus.subscribe(scope, self.journals, cursor)


def kinds(events: Subscription) -> Iterator[str]:
    for event in events:
        fact = event.what.fact if isinstance(event.what, Record) else event.what
        yield type(fact).__name__


def test_subscriber_gets_events_in_order_and_once() -> None:
    runs = Runs()
    everything = runs.subscribe()
    runs.start("a")
    runs.passes("a")
    runs.write("a", RUN_STOPPED)
    assert list(kinds(everything)) == ["RunStarted", "ReplyDelta", "RunStopped"]
    assert list(everything) == [], "each is seen once"


def test_subscription_gets_only_events_of_its_scope() -> None:
    runs = Runs()
    runs.start("a")
    scopes = [ALL_EVENTS, run_scope("a"), agent_scope("billing"), filter_scope("ends", lambda event: event.is_terminal)]
    subscriptions = [runs.subscribe(scope, Cursor(scope.name)) for scope in scopes]
    runs.start("b", "billing")
    runs.passes("b")
    runs.write("a", RUN_STOPPED)
    runs.write("b", RUN_STOPPED)
    seen = [[event.run for event in subscription] for subscription in subscriptions]
    assert seen == [["a", "b", "b", "a", "b"], ["a", "a"], ["b", "b", "b"], ["a", "b"]]


def test_subscription_without_a_cursor_starts_now() -> None:
    runs = Runs()
    runs.start("a")
    late = runs.subscribe()
    assert list(late) == []
    runs.write("a", RUN_STOPPED)
    assert list(kinds(late)) == ["RunStopped"]


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=30), st.data())
def test_subscription_from_any_cursor_gets_the_events_after_it(written: list[str], data: st.DataObject) -> None:
    """What follows an event, seen live, is what a new subscription from its cursor sees."""
    runs = Runs()
    runs.start("a")
    scope = data.draw(st.sampled_from([ALL_EVENTS, run_scope("a"), agent_scope("triage")]))
    live = runs.subscribe(scope)
    runs.start("b")
    for run in written:
        runs.write(run, TimePassed())
    events = list(live)
    for index, event in enumerate(events):
        later = [each.what for each in runs.subscribe(scope, Cursor.parse(str(event.cursor)))]
        for run in "ab":
            expected = [each.what for each in events[index + 1 :] if each.run == run]
            assert [what for what in later if what in runs.records(run)] == expected
        assert len(later) == len(events) - index - 1


def test_subscription_from_a_cursor_gets_history_then_live_events() -> None:
    runs = Runs()
    runs.start("a")
    runs.write("a", TimePassed())
    subscription = runs.subscribe(run_scope("a"), Cursor("run:a"))
    runs.write("a", RUN_STOPPED)
    assert list(kinds(subscription)) == ["RunStarted", "TimePassed", "RunStopped"]


def error_of(runs: Runs, scope: Scope, cursor: Cursor | None) -> AgentrunError:
    with pytest.raises(AgentrunError) as caught:
        runs.subscribe(scope, cursor)
    assert (caught.value.retry, caught.value.exit_code) == ("repair", 2)
    return caught.value


def test_cursor_of_another_scope_is_refused() -> None:
    runs = Runs()
    everything = runs.subscribe()
    runs.start("a")
    runs.start("b")
    cursor = next(iter(everything)).cursor
    for scope in (run_scope("a"), family_scope("a"), agent_scope("triage"), filter_scope("x", lambda event: True)):
        error = error_of(runs, scope, cursor)
        assert (error.code, error.fields) == ("cursor.scope", {"cursor": str(cursor), "scope": scope.name})
    assert error_of(runs, run_scope("a"), Cursor("run:b")).code == "cursor.scope"


def test_cursor_of_other_journals_is_refused() -> None:
    """Its place in the order of runs is not there, or another run is there."""
    runs, others = Runs(), Runs()
    everything = runs.subscribe()
    for run in ("a", "b"):
        runs.start(run)
    others.start("b")
    for event in everything:
        error = error_of(others, ALL_EVENTS, event.cursor)
        assert (error.code, error.fields["scope"]) == ("cursor.scope", "all")


@pytest.mark.parametrize("scope", [run_scope("a"), family_scope("a")])
@pytest.mark.parametrize("has_cursor", [True, False])
def test_events_of_an_unknown_run_are_refused(scope: Scope, has_cursor: bool) -> None:
    error = error_of(Runs(), scope, Cursor(scope.name) if has_cursor else None)
    assert (error.code, error.fields) == ("run.not_found", {"run": "a"})


# --- cursors --------------------------------------------------------------------------------------------------


CURSORS = (
    Cursor("all"),
    Cursor("run:a", RunPlace(), {"a": 3}),
    Cursor("agent:Ärzte", RunPlace(52, "run-b"), {"run-a": 0, "run-a.c1.0": 17}),
)


@pytest.mark.parametrize("cursor", CURSORS, ids=lambda cursor: str(cursor.scope))
def test_text_of_a_cursor_is_the_cursor(cursor: Cursor) -> None:
    assert Cursor.parse(str(cursor)) == cursor
    assert str(cursor).replace("-", "").replace("_", "").isalnum(), "a shell does not change it"


@pytest.mark.parametrize("cursor", CURSORS, ids=lambda cursor: str(cursor.scope))
def test_damaged_text_of_a_cursor_is_refused(cursor: Cursor) -> None:
    """Cut off anywhere, or with another character anywhere."""
    whole = str(cursor)
    damaged = {whole[:end] for end in range(len(whole))} | {f"{whole}A", f"{whole}=", f" {whole}", whole.upper()}
    damaged |= {f"{whole[:n]}{'A' if whole[n] != 'A' else 'B'}{whole[n + 1 :]}" for n in range(len(whole))}
    for text in damaged:
        with pytest.raises(AgentrunError) as caught:
            Cursor.parse(text)
        assert (caught.value.code, caught.value.exit_code, caught.value.fields) == (
            "cursor.invalid",
            2,
            {"cursor": text},
        )


def test_cursor_names_only_runs_that_are_not_finished() -> None:
    """So it is short however many runs there are."""
    runs = Runs()
    for number in range(50):
        runs.start(f"r{number}")
        runs.write(f"r{number}", RUN_STOPPED)
    runs.start("a")
    *_, last = runs.subscribe(ALL_EVENTS, FROM_START)
    assert last.cursor == Cursor("all", RunPlace(51, "a"), {"a": 1})
    longest = max(len(str(event.cursor)) for event in runs.subscribe(ALL_EVENTS, FROM_START))
    assert longest < 100


def test_subscription_has_the_cursor_of_what_was_read() -> None:
    runs = Runs()
    runs.start("a")
    everything = runs.subscribe(ALL_EVENTS, FROM_START)
    assert everything.cursor == FROM_START
    (event,) = everything
    assert everything.cursor == event.cursor


# --- sub-agents -----------------------------------------------------------------------------------------------


def run_with_sub_agents() -> Runs:
    runs = Runs()
    runs.start("a")
    child = runs.start_child("a", "c1.0")
    runs.write(child, TimePassed())
    runs.write(child, RUN_STOPPED)
    runs.write("a", ChildStarted("c1.0", "billing", child, BudgetShare()))  # as when it continues
    never = "a.c2.0"
    runs.write("a", ChildStarted("c2.0", "billing", never, BudgetShare()))
    runs.start("b")
    runs.write("a", RUN_STOPPED)
    return runs


def test_scope_of_a_run_is_without_sub_agents_and_that_of_a_family_has_them() -> None:
    runs = run_with_sub_agents()
    alone = list(runs.subscribe(run_scope("a"), Cursor("run:a")))
    assert [event.what for event in alone] == [*runs.records("a")]
    family = list(runs.subscribe(family_scope("a"), Cursor("family:a")))
    assert [event.run for event in family] == ["a", "a", "a.c1.0", "a.c1.0", "a.c1.0", "a", "a", "a"]
    agents = runs.subscribe(agent_scope("billing"), Cursor("agent:billing"))
    assert [event.run for event in agents] == ["a.c1.0"] * 3


@pytest.mark.parametrize("scope", [family_scope("a"), ALL_EVENTS, agent_scope("billing")], ids=lambda each: each.name)
def test_every_cursor_of_runs_with_sub_agents_continues_after_its_event(scope: Scope) -> None:
    runs = run_with_sub_agents()
    events = list(runs.subscribe(scope, Cursor(scope.name)))
    for index, event in enumerate(events):
        assert list(runs.subscribe(scope, event.cursor)) == events[index + 1 :]


def test_sub_agent_that_ends_after_its_parent_is_not_lost() -> None:
    runs = Runs()
    runs.start("a")
    child = runs.start_child("a", "c1.0")
    runs.write("a", RUN_STOPPED)
    *_, last = runs.subscribe(ALL_EVENTS, FROM_START)
    assert last.cursor.runs == {child: 1}
    runs.write(child, RUN_STOPPED)
    (later,) = runs.subscribe(ALL_EVENTS, last.cursor)
    assert (later.run, later.is_terminal, later.cursor.runs) == (child, True, {})


def test_record_of_a_sub_agent_comes_before_the_end_of_its_parent() -> None:
    """Even if it is written while the records of the parent are read, after those of the sub-agent."""
    runs = Runs()
    runs.start("a")
    child = runs.start_child("a", "c1.0")
    runs.write("a", TimePassed())
    runs.write("a", RUN_STOPPED)

    def write_late(event: Event) -> bool:
        if event.run == "a" and isinstance(event.what, Record) and event.what.seq == 3:
            runs.append(child, RUN_STOPPED)
        return True

    events = list(runs.subscribe(replace(family_scope("a"), sees=write_late), Cursor("family:a")))
    assert [(event.run, event.is_terminal) for event in events[-2:]] == [(child, True), ("a", True)]


# --- slow subscribers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "deltas"), [(4, 3), (3, 2), (2, 1)])
def test_full_queue_drops_deltas_and_a_gap_says_so(size: int, deltas: int) -> None:
    """A delta for which there is no room is dropped."""
    runs = Runs(queue=size)
    slow = runs.subscribe()
    runs.start("a")
    for text in ("one", "two", "three"):
        runs.passes("a", text)
    lost = ["Gap"] if deltas < 3 else []
    assert list(kinds(slow)) == [*lost, "RunStarted", *["ReplyDelta"] * deltas]


def test_records_replace_deltas_in_a_full_queue() -> None:
    runs = Runs(queue=3)
    slow = runs.subscribe()
    runs.start("a")
    for _ in range(2):
        runs.passes("a")
    runs.write("a", TimePassed())
    runs.write("a", TimePassed())
    assert list(kinds(slow)) == ["Gap", "RunStarted", "TimePassed", "TimePassed"]


def test_slow_subscriber_loses_no_record() -> None:
    """Not even if the queue has no room for one more."""
    runs = Runs(queue=2)
    slow = runs.subscribe()
    runs.start("a")
    for _ in range(5):
        runs.write("a", TimePassed())
        runs.passes("a")
    runs.write("a", RUN_STOPPED)
    gap, *events = slow
    assert gap.what == Gap(Cursor("all"))
    assert tuple(event.what for event in events) == runs.records("a")
    assert events[-1].is_terminal


def test_records_that_overflow_the_queue_while_it_is_read_come_too() -> None:
    """The one of another run has no room, and is found in its journal."""
    runs = Runs(queue=1)
    runs.start("a")
    runs.start("b")
    slow = runs.subscribe()
    assert list(slow) == []
    runs.append("a", TimePassed())
    found = []
    for event in slow:
        found.append(event.run)
        if len(found) == 1:
            runs.write("a", TimePassed())
            runs.write("b", TimePassed())
    assert sorted(map(str, found)) == ["a", "a", "b"]


def test_cursor_of_a_gap_continues_before_what_was_lost() -> None:
    runs = Runs(queue=1)
    slow = runs.subscribe()
    runs.start("a")
    assert list(kinds(slow)) == ["RunStarted"]
    runs.passes("a")
    runs.passes("a")
    runs.write("a", TimePassed())
    gap = next(iter(slow)).what
    assert isinstance(gap, Gap)
    assert gap.error is None
    repaired = runs.subscribe(ALL_EVENTS, gap.since)
    assert [event.what for event in repaired] == [*runs.records("a")[1:]]


@given(st.lists(st.sampled_from(["read", "delta", "record", "other", "outside"]), max_size=60), st.integers(1, 4))
def test_every_record_is_seen_once(steps: list[str], size: int) -> None:
    """Whatever is written and whenever it is read, also if another process writes it."""
    runs = Runs(queue=size)
    slow = runs.subscribe()
    seen: list[Event] = []
    runs.start("a")
    runs.start("b")
    for step in steps:
        if step == "read":
            seen += [event for _, event in zip(range(1), slow, strict=False)]
        elif step == "delta":
            runs.passes("a")
        elif step == "outside":
            runs.append("b", TimePassed())
        else:
            runs.write("a" if step == "record" else "b", TimePassed())
    runs.write("a", RUN_STOPPED)
    runs.write("b", RUN_STOPPED)
    seen += list(slow)
    for run in "ab":
        found = [event.what for event in seen if event.run == run and isinstance(event.what, Record)]
        assert found == [*runs.records(run)]
    assert len(list(slow)) == 0


def test_deltas_come_between_their_records() -> None:
    """Even if the records before them were there when the subscription began, but were not read yet."""
    runs = Runs()
    runs.start("a")
    late = runs.subscribe(ALL_EVENTS, FROM_START)
    runs.write("a", TimePassed())
    runs.passes("a")
    runs.write("a", RUN_STOPPED)
    assert list(kinds(late)) == ["RunStarted", "TimePassed", "ReplyDelta", "RunStopped"]


# --- waiting for more -----------------------------------------------------------------------------------------


def test_async_subscription_ends_with_its_run() -> None:
    async def main() -> list[str]:
        runs = Runs()
        runs.start("a")
        subscription = runs.subscribe(run_scope("a"), Cursor("run:a"))

        async def write() -> None:
            for fact in (TimePassed(), RUN_STOPPED):
                await asyncio.sleep(0)
                runs.write("a", fact)

        writing = asyncio.create_task(write())
        seen = [type(event.what.fact).__name__ async for event in subscription if isinstance(event.what, Record)]
        await writing
        return seen

    assert asyncio.run(main()) == ["RunStarted", "TimePassed", "RunStopped"]


def test_closing_a_subscription_ends_its_async_iteration() -> None:
    async def main() -> int:
        runs = Runs()
        subscription = runs.subscribe()
        asyncio.get_running_loop().call_later(0.01, subscription.close)
        runs.start("a")
        seen = 0
        async for _ in subscription:
            seen += 1
        subscription.close()
        runs.write("a", RUN_STOPPED)
        return seen + len(list(subscription))

    assert asyncio.run(main()) == 1


def test_event_published_in_another_thread_wakes_the_subscriber() -> None:
    async def main() -> int:
        runs = Runs()
        runs.start("a")
        subscription = runs.subscribe(run_scope("a"))
        told = asyncio.create_task(asyncio.to_thread(runs.write, "a", RUN_STOPPED))
        seen = 0
        async for _ in subscription:
            seen += 1
        await told
        return seen

    assert asyncio.run(asyncio.wait_for(main(), 60)) == 1


def test_run_with_journals_that_can_only_be_read_as_a_whole_can_be_followed() -> None:
    """As journals of a host may be, which have only what a run needs."""
    runs = Runs()
    runs.start("a")

    class Plain:
        keep = runs.journals.keep
        open = runs.journals.open
        package = runs.journals.package
        records = runs.journals.records
        __contains__ = runs.journals.__contains__

    journals = follow_journals(Plain())
    subscription = runs.bus.subscribe(run_scope("a"), journals, Cursor("run:a"))
    runs.write("a", RUN_STOPPED)
    assert list(kinds(subscription)) == ["RunStarted", "RunStopped"]
    with pytest.raises(AgentrunError) as caught:
        runs.bus.subscribe(ALL_EVENTS, journals)
    assert (caught.value.code, caught.value.fields) == ("host.missing", {"name": "journal"})
