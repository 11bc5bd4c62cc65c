"""`State`: pending effects and lost work."""

import pytest

from agentrun.core.decide import decide
from agentrun.core.effects import Wait
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import DeliveryStarted, HookAsked, ModelAsked, Record, RunResumed, ToolFinished, ToolStarted
from agentrun.core.state import State, pending_effects
from agentrun.core.transitions import lost_work
from agentrun.errors import InternalError

from ..packages import package
from .script import SINK, Run, calls_reply, hook, text_reply, tool, writing
from .shape_parts import ALLOW
from .shapes import SHAPES


def test_new_state_has_no_pending_effects() -> None:
    assert pending_effects(State()) == ()
    assert State().elapsed == 0


def test_started_of_a_new_state_raises() -> None:
    with pytest.raises(InternalError, match="the run has not started"):
        _ = State().started


def test_reply_of_a_new_state_raises() -> None:
    with pytest.raises(InternalError, match="there is no reply"):
        _ = State().reply


EXPECTED_EFFECTS: dict[type, tuple[str, ...]] = {
    ModelAsked: ("m1.1",),
    ToolStarted: ("c1.0", "c1.1"),
    DeliveryStarted: ("deliver:first",),
}


@pytest.mark.parametrize("kind", EXPECTED_EFFECTS)
def test_pending_effects_after_each_kind_of_fact(kind: type) -> None:
    agent = package(tools={"a": tool()}, policy=ALLOW, sinks={"first": SINK})
    run = Run(agent, calls_reply("a", ("a", '{"q": "x"}')), text_reply("Done."))
    run.until(kind)
    assert pending_effects(run.state) == EXPECTED_EFFECTS[kind]


def test_pending_hooks_of_a_batch() -> None:
    agent = package(
        tools={"a": tool(), "b": writing()}, policy=ALLOW, hooks=[hook("before_tool"), hook("after_tool", id="x")]
    )
    run = Run(agent, calls_reply("a", "b"), text_reply("Done."))
    run.until(HookAsked)
    assert pending_effects(run.state) == ("h.watch.c1.0.1", "h.watch.c1.1.1"), "hooks of a batch are asked together"
    run.until(ToolFinished)
    run.step()
    assert "h.x.c1.0.1" in pending_effects(run.state)


@pytest.mark.parametrize("name", SHAPES)
def test_lost_work_is_the_pending_effects(name: str) -> None:
    """Every effect under way has its intent in the journal, and a new owner can name it."""
    run = SHAPES[name]()
    run.finish()
    for cut in range(1, len(run.records)):
        state = fold(run.records[:cut])
        lost = lost_work(state)
        assert tuple(fact.effect for fact in lost) == pending_effects(state)
        for fact in lost:
            state = evolve(state, Record(state.seq + 1, 0, 2, "", fact))
        assert pending_effects(state) == ()
    assert pending_effects(run.state) == ()


@pytest.mark.parametrize("name", SHAPES)
def test_wait_always_has_something_to_wait_for(name: str) -> None:
    """A run never waits for nothing: something is under way, somebody is asked, or a moment is waited for."""
    run = SHAPES[name]()
    run.finish()
    package = run.first
    for record in run.records:
        if isinstance(record.fact, RunResumed):
            package = run.others.get(record.fact.package, package)
        next = decide(package, fold(run.records[: record.seq]))
        if isinstance(next, Wait):
            assert next.inflight or next.questions or next.waits_for or next.deadline is not None
            assert set(next.inflight) <= set(pending_effects(fold(run.records[: record.seq])))
