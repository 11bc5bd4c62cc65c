"""Sub-agents run as child runs in the world of their parent."""

import asyncio
from typing import Any

import msgspec
import pytest

from agentrun.compiler.package_file import seal_package
from agentrun.core.effects import RunChild, RunTool, ToolReturn
from agentrun.core.facts import (
    ApprovalAnswered,
    CancelRequested,
    ChildSuspended,
    RunResumed,
    RunStarted,
    RunStopped,
    ToolFinished,
    WorkLost,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Text, ToolResult, text_of
from agentrun.core.outcome import Question
from agentrun.core.package import Package
from agentrun.core.spend import BudgetShare, ChildSpend
from agentrun.engine.begin import begin, check_start
from agentrun.engine.clock import Sleep, step
from agentrun.engine.driver import drive, open_run_log
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.perform import make_crew, run_child
from agentrun.engine.request import Request
from agentrun.engine.world import world_of_run

from ..packages import package
from .memory_worlds import AGENT, PYTHON, Model, Place, calls, child, reply

RUN = "root.c1.0"
ASKING_AGENT = package(tools={"refund": PYTHON}, policy={"default": "ask"})
"""A child that needs a person for each call."""


class Refunds:
    """Counts refunds."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def run(self, call: RunTool) -> ToolReturn:
        self.keys.append(call.key)
        return ToolReturn((Text("refunded"),))


def place_of(model: Model, **parts: Any) -> Place:
    place = Place(providers={"openai": model}, **parts)
    model.clock = place.clock
    return place


def work(place: Place, effect: RunChild) -> ToolFinished | ChildSuspended | None:
    return place.clock.run(run_child(place.world, effect))


def finished(place: Place, effect: RunChild) -> ToolFinished:
    fact = work(place, effect)
    assert isinstance(fact, ToolFinished)
    return fact


@pytest.mark.parametrize("replayed", [False, True])
def test_sub_agent_has_its_own_run_and_journal(replayed: bool) -> None:
    place = place_of(Model(reply("paid")), replayed=replayed)
    effect = child(package(), "pay", share=BudgetShare(tokens=100))
    assert finished(place, effect) == ToolFinished("c1.0", (Text("paid"),), spent=ChildSpend(tokens=25))
    first, *_, last = place.facts(RUN)
    assert isinstance(first, RunStarted)
    assert (first.run, first.agent, first.replayed) == (RUN, "triage", replayed)
    assert first.package == seal_package(package()).fingerprint
    assert first.parent == effect.parent
    assert first.input is not None
    assert text_of(first.input.parts) == "pay"
    assert last == RunStopped("completed")
    assert [run for run, _ in place.heard] == [RUN] * len(place.facts(RUN))


def test_sub_agent_without_a_message_uses_its_own_input() -> None:
    place = place_of(Model(reply("x")))
    work(place, child(message=None))
    (first, *_) = place.facts(RUN)
    assert text_of(first.input.parts) == "The printer of support is on fire."


def test_result_of_a_sub_agent_has_its_spend() -> None:
    place = place_of(Model(calls(("refund", {})), reply("done")), executors={"python": Refunds()})
    agent = package(tools={"refund": PYTHON}, policy={"default": "allow"})
    assert finished(place, child(agent)).spent == ChildSpend(tokens=50, cost=0, tool_calls=1)


@pytest.mark.parametrize(
    ("agent", "answer", "code"),
    [
        (package(), Fault("provider.fatal", "no key", {"status": 401}), "provider.fatal"),
        (package(), ZeroDivisionError(), "internal"),
        (package(budgets={"tokens": 1}), reply("x"), "budget.tokens"),
        (package(output={"schema": {"type": "object"}, "repairs": 0}), reply("no JSON"), "output.invalid"),
    ],
)
def test_failed_sub_agent_is_a_tool_execution_fault(agent: Package, answer: Any, code: str) -> None:
    place = place_of(Model(answer))
    fact = finished(place, child(agent))
    assert fact.fault is not None
    assert (fact.fault.code, fact.fault.fields) == ("tool.execution", {"tool": "billing", "code": code})
    assert text_of(fact.parts).startswith(f"tool.execution: the sub-agent failed: {code}")
    assert fact.spent is not None


def test_cassette_miss_in_a_sub_agent_is_passed_on() -> None:
    miss = Fault("cassette.miss", "not on the cassette", {"nearest": 3})
    fault = finished(place_of(Model(miss)), child()).fault
    assert fault is not None
    assert fault.code == "cassette.miss"
    assert fault.fields["nearest"] == 3


def test_budget_share_of_the_parent_limits_the_sub_agent() -> None:
    """Whatever the child's own budgets say."""
    fact = finished(place_of(Model(reply("x"))), child(share=BudgetShare(tokens=1)))
    assert fact.fault is not None
    assert fact.fault.fields["code"] == "budget.tokens"


def test_long_answer_of_a_sub_agent_is_stored_as_a_blob() -> None:
    place = place_of(Model(reply("x" * 1000)))
    fact = finished(place, child(max_bytes=100))
    assert fact.blob is not None
    assert place.blobs.get(fact.blob) == b"x" * 1000
    assert len(text_of(fact.parts)) < 200


DENIES: dict[str, Any] = {
    "id": "never",
    "targets": ["*"],
    "on": "run_start",
    "when": None,
    "set": {},
    "mask": [],
    "reason": None,
}


@pytest.mark.parametrize(
    ("agent", "message", "code"),
    [
        (package(), "  ", "input.rejected"),
        (package(admission={"max_chars": 3}), "four", "input.rejected"),
        (package(policy={"rules": [{**DENIES, "ruling": "deny"}]}), "pay", "policy.denied"),
        (package(policy={"rules": [{**DENIES, "ruling": "interrupt"}]}), "pay", "policy.interrupted"),
    ],
)
def test_refused_sub_agent_leaves_no_run_and_gives_a_fault(agent: Package, message: str, code: str) -> None:
    """The model reads why; there is no run."""
    model = Model()
    place = place_of(model)
    fact = finished(place, child(agent, message))
    assert fact.fault is not None
    assert (fact.fault.code, fact.fault.fields) == ("tool.execution", {"tool": "billing", "code": code})
    assert fact.spent is None
    assert RUN not in place.journals
    assert model.asked == []


def test_finished_sub_agent_is_not_run_again() -> None:
    model = Model(reply("paid"))
    place = place_of(model)
    before = work(place, child())
    text = place.journals.text(RUN)
    assert work(place, child()) == before
    assert place.journals.text(RUN) == text
    assert len(model.asked) == 1


def test_suspended_sub_agent_continues_after_its_approval() -> None:
    refunds = Refunds()
    place = place_of(Model(calls(("refund", {"amount": 7})), reply("paid")), executors={"python": refunds})
    assert work(place, child(ASKING_AGENT)) == ChildSuspended("c1.0", ("c1.0",))
    assert work(place, child(ASKING_AGENT)) == ChildSuspended("c1.0", ("c1.0",))
    assert refunds.keys == []
    asked = open_run_log(world_of_run(place.world, RUN)).state.calls[0].gate.question
    assert asked is not None
    open_run_log(world_of_run(place.world, RUN)).commit_if_acceptable(
        ApprovalAnswered("c1.0", asked, "approved", "ada")
    )
    fact = finished(place, child(ASKING_AGENT))
    assert (text_of(fact.parts), len(refunds.keys)) == ("paid", 1)
    facts = place.facts(RUN)
    assert sum(isinstance(each, RunStarted) for each in facts) == 1
    assert sum(isinstance(each, RunResumed) for each in facts) == 2


class Ada:
    async def answer(self, question: Question) -> Any:
        return "approved", "ada"


def test_approver_of_the_parent_answers_for_the_sub_agent() -> None:
    place = place_of(Model(calls(("refund", {})), reply("paid")), executors={"python": Refunds()}, approver=Ada())
    assert text_of(finished(place, child(ASKING_AGENT)).parts) == "paid"


def test_sub_agent_continues_after_a_crash_with_work_lost() -> None:
    """What was under way is named, and the child goes on."""
    place = place_of(Model(500, reply("never read")))
    lost = run_child(place.world, child())
    assert isinstance(step(lost), Sleep)
    records = place.journals.records(RUN)
    lost.close()
    place.journals.restore(RUN, records)
    model = Model(reply("paid"))
    again = Place(providers={"openai": model}, journals=place.journals)
    assert text_of(finished(again, child()).parts) == "paid"
    facts = place.facts(RUN)
    assert [type(each) for each in facts[len(records) :][:2]] == [RunResumed, WorkLost]


def test_stopped_sub_agent_is_recorded_as_cancelled() -> None:
    place = place_of(Model(500, reply("never read")))
    stopped = run_child(place.world, child())
    assert isinstance(step(stopped), Sleep)
    stopped.close()
    *_, last = place.facts(RUN)
    assert isinstance(last, RunStopped)
    assert last.fault is not None
    assert last.fault.code == "cancelled"


# --- with the parent ----------------------------------------------------------------------------------------------


def parent_of(agent: Package, **changes: Any) -> Package:
    tools = {"billing": {**AGENT, "parallel": True, **changes}}
    return package(
        name="front", tools=tools, agents={"billing": msgspec.to_builtins(agent)}, policy={"default": "allow"}
    )


def root(place: Place, agent: Package) -> Any:
    world = world_of_run(place.world, "root")
    log = open_run_log(world)
    if log.state.phase == "fresh":
        request = Request(agent=agent.name, package="sha256:0", message="hello")
        begin(world, check_start(world, agent, request), log=log)
    else:
        log.take_over("sha256:0")
    return drive(agent, log, make_crew(world, agent))


def test_spend_of_a_sub_agent_is_added_to_the_parent_once() -> None:
    model = Model(calls(("billing", {"message": "pay"})), reply("paid"), reply("all done"))
    place = place_of(model)
    outcome = place.clock.run(root(place, parent_of(package())))
    assert (outcome.answer, outcome.tokens, outcome.tool_calls) == ("all done", 75, 1)
    assert set(place.journals.runs) == {"root", RUN}
    *_, result = model.asked[-1].request.messages
    assert result == ToolResult("c1.0", (Text("paid"),))


def test_parallel_sub_agents_run_at_the_same_time() -> None:
    """Two children that take half a second each take half a second together."""
    slow = Model(calls(("billing", {"message": "a"}), ("billing", {"message": "b"})), reply("done"))

    class Half:
        async def ask(self, effect: Any, delta: Any) -> Any:
            if effect.request.instructions.startswith("You sort") and effect.request.tools:
                return await slow.ask(effect, delta)
            await place.clock.sleep_until(place.clock.now() + 500)
            return reply("paid")

    place = Place(providers={"openai": Half()})
    outcome = place.clock.run(root(place, parent_of(package())))
    assert (outcome.answer, place.clock.now()) == ("done", 1_000_500)


def test_parent_is_suspended_while_its_sub_agent_is() -> None:
    place = place_of(
        Model(calls(("billing", {"message": "pay"})), calls(("refund", {})), reply("paid"), reply("all done")),
        executors={"python": Refunds()},
    )
    agent = parent_of(ASKING_AGENT)
    waiting = place.clock.run(root(place, agent))
    assert waiting.status == "suspended"
    assert waiting.waits_for == ("c1.0",)
    asked = open_run_log(world_of_run(place.world, RUN)).state.calls[0].gate.question
    assert asked is not None
    open_run_log(world_of_run(place.world, RUN)).commit_if_acceptable(
        ApprovalAnswered("c1.0", asked, "approved", "ada")
    )
    outcome = place.clock.run(root(place, agent))
    assert outcome.answer == "all done"


@pytest.mark.parametrize("cancel", ["task", "post"])
def test_cancelling_the_parent_cancels_its_sub_agent(cancel: str) -> None:
    """In real time: both journals end, and nothing is left running."""
    begun = asyncio.Event()

    class Endless:
        async def ask(self, effect: Any, delta: Any) -> Any:
            if effect.request.tools:
                return calls(("billing", {"message": "pay"}))
            begun.set()
            await asyncio.sleep(3600)

    place = Place(providers={"openai": Endless()}, clock=SystemClock())

    async def whole() -> None:
        running = asyncio.create_task(root(place, parent_of(package())))
        await asyncio.wait_for(begun.wait(), 60)
        if cancel == "task":
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            place.world.crews.post("root", CancelRequested("ada"))
            outcome = await asyncio.wait_for(running, 60)
            assert (outcome.code, outcome.fields["by"]) == ("cancelled", "ada")
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(whole())
    for run in ("root", RUN):
        *_, last = place.facts(run)
        assert isinstance(last, RunStopped)
        assert last.fault is not None
        assert last.fault.code == "cancelled"
