"""`StepCrew`, which runs effects under a step clock."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.effects import Effect
from agentrun.core.facts import ApprovalAnswered, CancelRequested, Fact
from agentrun.core.outcome import Question
from agentrun.engine.clock import StepClock
from agentrun.engine.crew import StepCrew
from agentrun.errors import InternalError

from .crew_effects import effect, fact, question


class Site:
    """Work that takes a while, and what was seen of it."""

    def __init__(self, delays: Mapping[str, int], **options: Any) -> None:
        self.clock = StepClock()
        self.delays = delays
        self.seen: list[str] = []
        self.crew = StepCrew(self.perform, width=options.pop("width", 10), clock=self.clock, **options)

    async def perform(self, effect: Effect) -> Fact:
        try:
            await self.clock.sleep_until(self.clock.now() + self.delays[effect.id])
        except GeneratorExit:
            self.seen.append(f"{effect.id} stopped")
            raise
        return fact(effect)

    def start(self, *names: str) -> None:
        for name in names:
            self.crew.start(effect(name))

    def settled(self, deadline: int | None = None) -> Fact | None:
        return self.clock.run(self.crew.next_fact(deadline))


@given(st.lists(st.integers(0, 5), max_size=8))
def test_facts_come_in_order_of_end_then_of_start(delays: list[int]) -> None:
    """By time, and at one moment by start."""
    site = Site({str(index): delay for index, delay in enumerate(delays)})
    site.start(*site.delays)
    for delay, index in sorted((delay, index) for index, delay in enumerate(delays)):
        assert site.settled() == fact(str(index))
        assert site.clock.now() == delay
    assert not site.crew.busy
    assert site.crew.free == 10


@pytest.mark.parametrize("wanted", list(permutations("abcd")))
def test_order_function_decides_among_ready_effects(wanted: Sequence[str]) -> None:
    """`order` decides among those that could go on."""
    rank = {name: place for place, name in enumerate(wanted)}
    site = Site(dict.fromkeys("abcd", 3), order=lambda ready: min(range(len(ready)), key=lambda i: rank[ready[i]]))
    site.start(*"abcd")
    assert [site.settled() for _ in wanted] == [fact(name) for name in wanted]


def test_order_function_gets_only_ready_effects() -> None:
    asked: list[list[str]] = []

    def order(ready: Sequence[str]) -> int:
        asked.append(list(ready))
        return len(ready) - 1

    site = Site({"a": 0, "b": 5, "c": 0}, order=order)
    site.start("a", "b", "c")
    assert [site.settled() for _ in "abc"] == [fact("c"), fact("a"), fact("b")]
    assert asked == [["a", "b", "c"], ["a", "b"], ["a"], ["b"]]


def test_free_and_busy_count_the_running_effects() -> None:
    site = Site({"a": 1, "b": 2}, width=2)
    assert (site.crew.free, site.crew.busy) == (2, False)
    site.start("a", "b")
    assert (site.crew.free, site.crew.busy) == (0, True)
    site.settled()
    assert (site.crew.free, site.crew.busy) == (1, True)
    site.settled()
    assert (site.crew.free, site.crew.busy) == (2, False)


@pytest.mark.parametrize(("deadline", "given"), [(9, None), (10, fact("a")), (11, fact("a"))])
def test_next_fact_returns_none_at_the_deadline(deadline: int, given: Fact | None) -> None:
    """Work that ends at the deadline is in time."""
    site = Site({"a": 10})
    site.start("a")
    assert site.settled(deadline) == given
    assert site.clock.now() == min(deadline, 10)
    if given is None:
        assert site.settled() == fact("a")


def test_deadline_is_waited_for_without_running_effects() -> None:
    site = Site({})
    assert site.settled(7) is None
    assert site.clock.now() == 7
    assert site.settled(3) is None
    assert site.clock.now() == 7


def test_waiting_with_no_effect_and_no_deadline_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="no effect is running"):
        Site({}).settled()


def test_keep_only_stops_the_other_effects() -> None:
    site = Site({"a": 1, "b": 2, "c": 3})
    site.start("a", "b", "c")
    assert site.settled(0) is None
    site.crew.keep_only(["b", "unknown"])
    assert site.seen == ["a stopped", "c stopped"]
    assert site.settled() == fact("b")
    assert not site.crew.busy


def test_keep_only_drops_effects_that_have_not_begun() -> None:
    site = Site({"a": 1})
    site.start("a")
    site.crew.keep_only([])
    assert not site.crew.busy
    assert site.seen == []


def test_close_stops_all_effects() -> None:
    site = Site({"a": 1, "b": 2}, consult=None)
    site.start("a", "b")
    assert site.settled(0) is None
    site.clock.run(site.crew.close())
    assert sorted(site.seen) == ["a stopped", "b stopped"]
    assert not site.crew.busy


def test_exception_of_a_stopped_effect_is_ignored() -> None:
    clock, seen = StepClock(), []

    async def perform(effect: Effect) -> Fact:
        try:
            await clock.sleep_until(1)
        finally:
            seen.append(effect.id)
            raise OSError("while being stopped")

    crew = StepCrew(perform, width=2, clock=clock)
    crew.start(effect("a"))
    crew.start(effect("b"))
    assert clock.run(crew.next_fact(0)) is None
    clock.run(crew.close())
    assert sorted(seen) == ["a", "b"]


def test_exception_of_an_effect_is_raised() -> None:
    clock = StepClock()

    async def perform(effect: Effect) -> Fact:
        raise KeyError(effect.id)

    crew = StepCrew(perform, width=1, clock=clock)
    crew.start(effect("a"))
    with pytest.raises(KeyError):
        clock.run(crew.next_fact(None))
    assert not crew.busy


def test_posted_facts_come_before_effects() -> None:
    site = Site({"a": 0})
    site.start("a")
    site.crew.post(CancelRequested("one"))
    site.crew.post(CancelRequested("two"))
    assert site.settled() == CancelRequested("one")
    assert site.crew.take_posted() == (CancelRequested("two"),)
    assert site.crew.take_posted() == ()
    assert site.settled() == fact("a")
    site.crew.post(CancelRequested("three"))
    assert site.crew.busy
    assert site.settled() == CancelRequested("three")


def test_fact_posted_by_a_running_effect_is_returned_at_once() -> None:
    """What is posted while others sleep is given at that moment."""
    clock = StepClock()

    async def perform(effect: Effect) -> Fact:
        await clock.sleep_until(5)
        crew.post(CancelRequested(effect.id))
        await clock.sleep_until(10)
        return fact(effect)

    crew = StepCrew(perform, width=1, clock=clock)
    crew.start(effect("a"))
    assert clock.run(crew.next_fact(None)) == CancelRequested("a")
    assert clock.now() == 5


class Desk:
    """People who answer after a while."""

    def __init__(self, wait: int) -> None:
        self.wait = wait
        self.asked: list[str] = []
        self.gone: list[str] = []
        self.clock = StepClock()
        self.crew = StepCrew(self.perform, width=1, clock=self.clock, consult=self.consult)

    async def perform(self, effect: Effect) -> Fact:
        await self.clock.sleep_until(self.clock.now() + 100)
        return fact(effect)

    async def consult(self, question: Question) -> Fact:
        self.asked.append(question.subject)
        try:
            await self.clock.sleep_until(self.clock.now() + self.wait)
        except GeneratorExit:
            self.gone.append(question.subject)
            raise
        return ApprovalAnswered(question.subject, question.question, "approved", "desk")

    def settled(self, deadline: int | None = None) -> Fact | None:
        return self.clock.run(self.crew.next_fact(deadline))


def test_each_question_is_asked_once() -> None:
    desk = Desk(wait=10)
    desk.crew.consult([question("c1.0"), question("c1.1")])
    assert (desk.crew.free, desk.crew.busy) == (1, True)
    desk.crew.consult([question("c1.0"), question("c1.1")])
    assert desk.settled() == ApprovalAnswered("c1.0", "c1.0?", "approved", "desk")
    desk.crew.consult([question("c1.0"), question("c1.1")])
    assert desk.settled() == ApprovalAnswered("c1.1", "c1.1?", "approved", "desk")
    desk.crew.consult([question("c1.0"), question("c1.1")])
    assert (desk.crew.free, desk.crew.busy) == (1, False)
    assert desk.asked == ["c1.0", "c1.1"]


def test_changed_question_about_the_same_call_is_asked_again() -> None:
    desk = Desk(wait=10)
    desk.crew.consult([question("c1.0", " refund 10")])
    desk.settled()
    desk.crew.consult([question("c1.0", " refund 20")])
    assert desk.settled() == ApprovalAnswered("c1.0", "c1.0 refund 20", "approved", "desk")


def test_withdrawn_question_is_stopped_and_asked_again_if_it_returns() -> None:
    """It is no longer waited for; if it comes back it is asked again."""
    desk = Desk(wait=10)
    desk.crew.consult([question("c1.0"), question("c1.1")])
    assert desk.settled(0) is None
    desk.crew.consult([question("c1.1")])
    assert desk.gone == ["c1.0"]
    desk.crew.consult([question("c1.0"), question("c1.1")])
    desk.settled()
    desk.settled()
    assert desk.asked == ["c1.0", "c1.1", "c1.0"]


def test_keep_only_does_not_stop_questions() -> None:
    desk = Desk(wait=10)
    desk.crew.start(effect("a"))
    desk.crew.consult([question("c1.0")])
    desk.crew.keep_only([])
    assert isinstance(desk.settled(), ApprovalAnswered)
    assert not desk.crew.busy


def test_close_stops_questions() -> None:
    desk = Desk(wait=10)
    desk.crew.consult([question("c1.0")])
    assert desk.settled(0) is None
    desk.clock.run(desk.crew.close())
    assert desk.gone == ["c1.0"]


def test_questions_are_ignored_without_an_approver() -> None:
    site = Site({})
    site.crew.consult([question("c1.0")])
    assert not site.crew.busy


def test_nested_crews_share_one_clock() -> None:
    """The work of a child and that of its parent's other calls share one time."""
    story: list[tuple[int, str]] = []
    work = {name: effect(name) for name in ("one", "two")}
    clock = StepClock()

    async def inner(effect: Effect) -> Fact:
        await clock.sleep_until(clock.now() + 4)
        return fact(effect)

    async def outer(effect: Effect) -> Fact:
        if effect.id == "child":
            crew = StepCrew(inner, width=1, clock=clock)
            for name in ("one", "two"):
                crew.start(work[name])
                await crew.next_fact(None)
                story.append((clock.now(), name))
        else:
            await clock.sleep_until(clock.now() + 6)
        story.append((clock.now(), effect.id))
        return fact(effect)

    crew = StepCrew(outer, width=2, clock=clock)
    crew.start(effect("child"))
    crew.start(effect("tool"))
    assert clock.run(crew.next_fact(None)) == fact("tool")
    assert clock.run(crew.next_fact(None)) == fact("child")
    assert story == [(4, "one"), (6, "tool"), (8, "two"), (8, "child")]
