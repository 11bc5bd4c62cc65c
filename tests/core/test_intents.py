"""`perform_of`: the effect of an intent in a journal."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from agentrun.core.decide import perform_of
from agentrun.core.effects import Effect, Intent, RunChild, effect_id_of
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import ChildStarted, Fact, ModelAsked, RunResumed, ToolStarted
from agentrun.core.state import State
from agentrun.errors import StorageError

from ..packages import package
from .script import Run, agent_tool, calls_reply, text_reply, tool
from .shape_parts import ALLOW
from .shapes import SHAPES


def effects_of(run: Run) -> Iterator[Effect]:
    """The effects of a run, found again from its journal."""
    agent, state = run.first, State()
    for record in run.records:
        if isinstance(record.fact, RunResumed):
            agent = run.others.get(record.fact.package, agent)
        if isinstance(record.fact, Intent):
            yield perform_of(agent, state, record.fact)
        state = evolve(state, record)


@pytest.mark.parametrize("name", SHAPES)
def test_every_intent_gives_its_effect(name: str) -> None:
    run = SHAPES[name]()
    run.finish()
    assert list(effects_of(run)) == run.effects
    assert [effect_id_of(fact) for fact in run.facts if isinstance(fact, Intent)] == [each.id for each in run.effects]


def test_late_child_intent_keeps_its_recorded_time() -> None:
    """A child keeps the time that was written for it, although less is left when its intent is read."""
    agent = package(
        tools={"child": agent_tool()}, agents={"child": package(name="child")}, policy=ALLOW, budgets={"time": 10_000}
    )
    asked = ('{"message": "one"}', '{"message": "two"}')
    run = Run(agent, calls_reply(*(("child", text) for text in asked)), text_reply("done"))
    run.until(ChildStarted)
    second = run.records[-1]
    before = fold(run.records[:-1])
    late = replace(before, now=before.now + 20_000)
    effect = perform_of(agent, late, run.of(ChildStarted)[1])
    assert isinstance(effect, RunChild)
    assert effect == run.effects[-1]
    assert effect.parent.share == run.of(ChildStarted)[1].share
    assert second.fact == run.of(ChildStarted)[1]


def error_for_intent(run: Run, kind: type, fact: Fact) -> StorageError:
    place = next(record.seq for record in run.records if isinstance(record.fact, kind))
    with pytest.raises(StorageError) as raised:
        perform_of(run.first, fold(run.records[: place - 1]), fact)  # type: ignore[arg-type]  # also what is no intent
    return raised.value


def test_intent_that_does_not_match_the_package_raises_recovery_failed() -> None:
    """What the package would not do exactly so is not found: another key, another attempt, or nothing to do."""
    run = Run(package(tools={"read": tool()}, policy=ALLOW), calls_reply(("read", '{"q": "x"}')), text_reply("done"))
    run.finish()
    started, asked = run.of(ToolStarted)[0], run.of(ModelAsked)[0]
    error = error_for_intent(run, ToolStarted, replace(started, key="sha256:0"))
    assert (error.code, error.fields) == ("recovery.failed", {"seq": 5})
    assert error_for_intent(run, ModelAsked, replace(asked, attempt=2)).code == "recovery.failed"
    assert error_for_intent(run, ModelAsked, started).code == "recovery.failed"
    with pytest.raises(StorageError, match=r"record 4 \(tool_started\) does not belong to an effect of this package"):
        perform_of(run.first, fold(run.records[:3]), started)
