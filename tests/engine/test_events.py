"""The event bus, with its scopes and cursors, and with slow and asynchronous subscribers."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core.facts import Fact, Record, RunStopped, TimePassed
from agentrun.engine.events import (
    ALL_EVENTS,
    Cursor,
    Event,
    EventBus,
    Gap,
    Scope,
    Subscription,
    agent_scope,
    filter_scope,
    run_scope,
)
from agentrun.engine.ports import ReplyDelta

from ..core.script import RUN_STARTED

RUN_STOPPED = RunStopped("completed")


class Runs:
    """Journals, and a bus that is told of them."""

    def __init__(self, queue: int = 256) -> None:
        self.bus = EventBus(queue=queue)
        self.journals: dict[str, list[Record]] = {}

    def write(self, run: str, fact: Fact) -> None:
        journal = self.journals.setdefault(run, [])
        journal.append(Record(len(journal) + 1, 0, 1, "", fact))
        self.bus.publish(run, journal[-1])

    def start(self, run: str, agent: str = "triage") -> None:
        self.write(run, replace(RUN_STARTED, run=run, agent=agent))

    def passes(self, run: str, text: str = "x") -> None:
        self.bus.publish(run, ReplyDelta(run, "m1.1", text))

    def subscribe(self, scope: Scope = ALL_EVENTS, cursor: Cursor | None = None) -> Subscription:
        return self.bus.subscribe(scope, self.journals.__getitem__, cursor)


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
    scopes = [ALL_EVENTS, run_scope("a"), agent_scope("billing"), filter_scope("ends", lambda event: event.is_terminal)]
    subscriptions = [runs.subscribe(scope) for scope in scopes]
    runs.start("a")
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
    scope = data.draw(st.sampled_from([ALL_EVENTS, run_scope("a"), agent_scope("triage")]))
    live = runs.subscribe(scope)
    runs.start("a")
    runs.start("b")
    for run in written:
        runs.write(run, TimePassed())
    events = list(live)
    for index, event in enumerate(events):
        assert list(runs.subscribe(scope, event.cursor)) == events[index + 1 :]


def test_subscription_from_a_cursor_gets_history_then_live_events() -> None:
    runs = Runs()
    runs.start("a")
    runs.write("a", TimePassed())
    subscription = runs.subscribe(run_scope("a"), Cursor("run:a", 0))
    runs.write("a", RUN_STOPPED)
    assert list(kinds(subscription)) == ["RunStarted", "TimePassed", "RunStopped"]


def test_cursor_of_another_scope_is_refused() -> None:
    runs = Runs()
    everything = runs.subscribe()
    runs.start("a")
    (event,) = everything
    for scope in (run_scope("a"), agent_scope("triage"), filter_scope("x", lambda event: True)):
        with pytest.raises(ValueError, match="a cursor of the scope all"):
            runs.subscribe(scope, event.cursor)
    with pytest.raises(ValueError, match="a cursor of the scope run:b"):
        runs.subscribe(run_scope("a"), Cursor("run:b", 0))


# --- slow subscribers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "deltas"), [(3, 2), (2, 1), (1, 0)])
def test_full_queue_drops_deltas(size: int, deltas: int) -> None:
    """A delta for which there is no room is dropped; for a record, deltas make room."""
    runs = Runs(queue=size)
    slow = runs.subscribe()
    runs.start("a")
    runs.passes("a", "one")
    runs.passes("a", "two")
    runs.passes("a", "three")
    assert list(kinds(slow)) == ["RunStarted", *["ReplyDelta"] * deltas]


def test_records_replace_deltas_in_a_full_queue() -> None:
    runs = Runs(queue=3)
    slow = runs.subscribe()
    for _ in range(3):
        runs.passes("a")
    runs.start("a")
    runs.write("a", TimePassed())
    runs.write("a", TimePassed())
    assert list(kinds(slow)) == ["RunStarted", "TimePassed", "TimePassed"]


def test_lost_records_are_a_gap_that_a_new_subscription_fills() -> None:
    runs = Runs(queue=2)
    slow = runs.subscribe()
    runs.start("a")
    for _ in range(5):
        runs.write("a", TimePassed())
    runs.write("a", RUN_STOPPED)
    events = list(slow)
    assert [type(event.what).__name__ for event in events] == ["Record", "Record", "Gap", "Record"]
    gap = events[2].what
    assert isinstance(gap, Gap)
    assert gap.since == events[1].cursor
    assert events[3].is_terminal
    seen = [event.what for event in runs.subscribe(ALL_EVENTS, gap.since)]
    assert [*(event.what for event in events[:2]), *seen] == runs.journals["a"]


def test_events_continue_after_a_gap() -> None:
    runs = Runs(queue=1)
    slow = runs.subscribe()
    runs.start("a")
    runs.write("a", TimePassed())
    assert list(kinds(slow)) == ["RunStarted", "Gap"]
    runs.write("a", RUN_STOPPED)
    assert list(kinds(slow)) == ["RunStopped"]


@given(st.lists(st.sampled_from(["read", "delta", "record", "other"]), max_size=60), st.integers(1, 4))
def test_every_record_is_seen_once_gaps_are_filled(steps: list[str], size: int) -> None:
    """Whatever is written and whenever it is read: with the gaps repaired every record is seen, in order, and the
    terminal ones even without."""
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
        else:
            runs.write("a" if step == "record" else "b", TimePassed())
    runs.write("a", RUN_STOPPED)
    runs.write("b", RUN_STOPPED)
    seen += list(slow)
    assert [event.run for event in seen if event.is_terminal] == ["a", "b"]
    records = {event.cursor.seen: event.what for event in seen if isinstance(event.what, Record)}
    for event in seen:
        if isinstance(event.what, Gap):
            repaired = runs.subscribe(ALL_EVENTS, event.what.since)
            records |= {again.cursor.seen: again.what for again in repaired if isinstance(again.what, Record)}
    assert sorted(records) == list(range(1, sum(map(len, runs.journals.values())) + 1))
    assert len(list(slow)) == 0


# --- waiting for more -----------------------------------------------------------------------------------------


def test_async_subscription_ends_with_its_run() -> None:
    async def main() -> list[str]:
        runs = Runs()
        runs.start("a")
        subscription = runs.subscribe(run_scope("a"), Cursor("run:a", 0))

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
