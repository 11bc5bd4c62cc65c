"""What a resume would do with a run: continue, wait again, or nothing because all that is left is deferred."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from agentrun.core.facts import Record, RunStarted
from agentrun.core.package import Package
from agentrun.engine.due import is_due, try_resume
from agentrun.engine.memory import MemoryJournals, stored_package
from agentrun.testing import call, calls, text

from ..core.script import agent_tool, rule, tool, writing
from ..packages import package
from .memory_runtime import Home

HOUR = 3_600_000
REPLIES = (calls("pay", n=1), text("Done."))


def agent(*rules: dict[str, Any], **changes: Any) -> Package:
    numbered = [{**each, "id": f"r{number}"} for number, each in enumerate(rules)]
    tools = {"pay": writing(parallel=True), "search": tool()}
    return package(**{"tools": tools, "policy": {"default": "allow", "rules": numbered}, **changes})


def suspended(what: Package, *replies: Any) -> Home:
    home = Home(*(replies or REPLIES))
    assert home.run(what).status == "suspended"
    return home


def effect(home: Home, at: int = 0) -> str:
    package = stored_package(home.journals, "r1").agent
    before = home.journals.text("r1")
    found = try_resume(home.journals, "r1", package, at)
    assert is_due(home.journals, "r1", at) == (found == "continues")
    assert home.journals.text("r1") == before, "nothing is written"
    return found


def cut_before(home: Home, kind: str, what: Package) -> Home:
    """The run of another process, which ended before a record."""
    home.run(what)
    end = home.kinds().index(kind)
    cut = Home()
    cut.journals.restore("r1", tuple(home.journals.records("r1"))[:end])
    cut.journals.keep("r1", stored_package(home.journals, "r1"))
    return cut


@pytest.mark.parametrize("end", [{"wait": HOUR}, {"until": HOUR}])
def test_deferral_until_a_time_is_due_from_then_on(end: dict[str, int]) -> None:
    home = suspended(agent(rule("defer", "pay", **end)))
    assert [effect(home, at) for at in (0, HOUR - 1, HOUR)] == ["deferred", "deferred", "continues"]


def test_deferral_to_a_person_is_due_when_it_is_answered() -> None:
    home = suspended(agent(rule("defer", "pay", person=True)))
    (question,) = home.runtime.questions("r1")
    assert (effect(home, 9 * HOUR), question.deferred) == ("deferred", True)
    Home(journals=home.journals).runtime.answer("r1", question, "approved", "ann")
    assert effect(home) == "continues"


def test_approver_of_a_host_does_not_lift_a_deferral() -> None:
    home = Home(*REPLIES, approver=lambda question: True)
    waiting = home.run(agent(rule("defer", "pay", person=True)))
    assert waiting.status == "suspended"
    assert (waiting.waits_for, [question.deferred for question in waiting.questions]) == (("c1.0",), [True])
    (question,) = waiting.questions
    home.runtime.answer("r1", question, "approved", "ann")
    assert home.wait(home.runtime.resume("r1", finished_ok=True)).is_finished
    assert [call.tool for call in home.pay.calls] == ["pay"]


def test_rule_without_an_end_is_due_if_it_would_not_defer_again() -> None:
    home = suspended(agent(rule("defer", "pay", when=f"now < timestamp({HOUR // 1000})")))
    assert [effect(home, at) for at in (0, HOUR - 1, HOUR)] == ["waits", "waits", "continues"]


def test_open_question_is_not_due() -> None:
    home = suspended(agent(rule("ask", "pay")))
    assert effect(home) == "waits"
    both = agent(rule("ask", "pay"), rule("defer", "search", wait=HOUR))
    home = suspended(both, calls(call("pay", n=1), call("search", n=1)))
    assert [effect(home, at) for at in (0, HOUR)] == ["waits", "continues"]


def test_question_that_a_resume_would_ask_first_is_due() -> None:
    home = suspended(agent(rule("defer", "pay", wait=HOUR), rule("ask", "pay")))
    assert [effect(home, at) for at in (0, HOUR)] == ["deferred", "continues"]


def test_interrupted_run_is_due_unless_a_person_must_settle_a_call() -> None:
    assert effect(cut_before(Home(*REPLIES), "ModelReplied", agent())) == "continues"
    assert effect(cut_before(Home(*REPLIES), "ToolFinished", agent())) == "waits"
    reads = (calls("search", n=1), text("Done."))
    assert effect(cut_before(Home(*reads), "ToolFinished", agent())) == "continues"
    assert effect(cut_before(Home(*REPLIES), "RunStopped", agent())) == "continues"


def test_run_with_a_sub_agent_is_due_when_the_sub_agent_is() -> None:
    inner = msgspec.to_builtins(agent(rule("defer", "pay", wait=HOUR), name="inner"))
    outer = agent(tools={"ask": agent_tool()}, agents={"ask": inner})
    home = suspended(outer, calls("ask", message="x"), *REPLIES)
    assert [effect(home, at) for at in (0, HOUR)] == ["deferred", "continues"]


def test_run_that_is_finished_or_cannot_be_resumed_is_not_due() -> None:
    home = Home("Hello.")
    home.run()
    assert not is_due(home.journals, "r1", 0)
    assert not is_due(home.journals, "unknown", 0)
    cut = cut_before(Home(*REPLIES), "ModelReplied", agent())
    first, *rest = cut.journals.records("r1")
    assert isinstance(first.fact, RunStarted)
    mixed = MemoryJournals()
    mixed.restore("r1", chained(replace(first, fact=replace(first.fact, stand_ins="case")), *rest))
    mixed.keep("r1", stored_package(cut.journals, "r1"))
    assert not is_due(mixed, "r1", 0)


def chained(*records: Record) -> tuple[Record, ...]:
    """Records whose hashes fit again."""
    journals = MemoryJournals()
    journal = journals.open("r1")
    for record in records:
        journal.append(replace(record, epoch=journal.epoch, prev=journal.head))
    return tuple(journals.records("r1"))
