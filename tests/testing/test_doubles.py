"""The shipped test doubles: scripted models, stubs, approvers, hooks, sinks and failing journals."""

from typing import Any

import pytest

import agentrun
from agentrun.core.effects import ToolReturn
from agentrun.core.facts import ApprovalAnswer, Continue, Deny, ModelFailed, ModelReplied
from agentrun.core.fault import Fault
from agentrun.core.messages import Usage, text_of
from agentrun.core.outcome import Outcome
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import StorageError
from agentrun.testing import (
    Crash,
    CrashingJournals,
    FailingJournal,
    FailingJournals,
    Script,
    StepClock,
    after,
    approving,
    call,
    calls,
    fails,
    hook,
    replies,
    reply,
    scripted,
    sink,
    stub,
    text,
)

from ..core import script
from ..core.script import rule, tool, writing
from ..packages import package

TOOLS = package(tools={"search": tool(), "pay": writing()}, policy={"default": "allow"})


def run(agent: Any = TOOLS, **world: Any) -> Outcome:
    own = {"search": stub("3 results"), "pay": stub()} | dict(world.pop("tools", {}))
    tools = {name: each for name, each in own.items() if name in agent.tools}
    outcome = agentrun.run(agent, "Hi.", tools=tools, **{"clock": StepClock(), **world})
    assert outcome.is_finished
    return outcome


# --- models ---------------------------------------------------------------------------------------------------


def test_scripted_model_replies_in_order() -> None:
    model = scripted(calls("search", q="vcr"), "Found 3 results.")
    assert run(model=model).answer == "Found 3 results."
    assert [len(request.messages) for request in model.requests] == [1, 3]


def test_scripted_reply_with_text_and_two_calls() -> None:
    search = stub(lambda q: f"found {q}")
    model = scripted(reply("Let me look.", call("search", q="a"), call("search", q="b")), text("Done."))
    assert run(model=model, tools={"search": search}).answer == "Done."
    assert [each.arguments for each in search.calls] == [{"q": "a"}, {"q": "b"}]
    assert [each.call for each in search.calls] == ["c1.0", "c1.1"]


def test_scripted_call_with_invalid_arguments_does_not_run() -> None:
    search = stub()
    assert (
        run(model=scripted(calls(call("search", "{oops")), text("Sorry.")), tools={"search": search}).answer == "Sorry."
    )
    assert search.count == 0


def test_failures_are_retried_on_the_clock() -> None:
    clock, journals = StepClock(), MemoryJournals()
    model = scripted(fails("provider.rate_limited", retry_after=3), text("Hello."))
    assert run(model=model, clock=clock, journals=journals).answer == "Hello."
    assert clock.now() >= 3000
    failed = [record.fact for record in journals.records("run-1") if isinstance(record.fact, ModelFailed)]
    assert [(fact.fault.code, fact.fault.fields) for fact in failed] == [("provider.rate_limited", {"retry_after": 3})]


def test_scripted_delay_advances_the_clock() -> None:
    clock = StepClock()
    run(model=scripted(after(700, text("Hello."), clock=clock)), clock=clock)
    assert clock.now() == 700


def test_scripted_usage_and_finish() -> None:
    journals = MemoryJournals()
    run(model=scripted(reply("Hel", finish="length", usage=None), text("lo.")), journals=journals)
    first, second = (record.fact for record in journals.records("run-1") if isinstance(record.fact, ModelReplied))
    assert (first.reply.finish, first.reply.usage) == ("length", None)
    assert (second.reply.finish, second.reply.usage) == ("stop", Usage(input=10, output=5, cached=0, reasoning=0))


def test_function_as_reply_gets_the_request() -> None:
    model = scripted(lambda request: text(request.instructions[:3]))
    assert run(model=model).answer == "You"
    model = replies(lambda request: text(f"{len(request.messages)} message"))
    assert run(model=model).answer == run(model=model).answer == "1 message"


@pytest.mark.parametrize("model", [scripted(), scripted(calls("search", q="x"))])
def test_request_beyond_the_script_is_fatal(model: Script) -> None:
    outcome = run(model=model)
    assert outcome.code == "provider.fatal"
    assert outcome.fault is not None
    assert "the script has no reply for request" in outcome.fault.message


# --- tools ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (stub("3 results"), "3 results"),
        (stub({"hits": [1, 2]}), '{"hits":[1,2]}'),
        (stub(lambda q: q * 2), "xx"),
        (stub(ToolReturn(())), ""),
        (stub(fails="tool.execution"), "tool.execution: the stub fails"),
        (stub(fails=Fault("tool.execution", "no", {"tool": "search"})), "tool.execution: no"),
        (stub(fails=ValueError("oh")), "tool.execution: ValueError: oh"),
    ],
)
def test_stub_returns_its_result_and_counts_calls(made: Any, read: str) -> None:
    model = scripted(calls("search", q="x"), text("Done."))
    run(model=model, tools={"search": made})
    assert text_of(tuple(model.requests[1].messages)[2].parts) == read  # type: ignore[arg-type]  # the test gives the right kind
    assert made.count == 1
    assert set(made.times.values()) == {1}


def test_stub_with_a_fatal_fault_ends_the_run() -> None:
    assert run(model=scripted(calls("pay")), tools={"pay": stub(fails="tool.fatal")}).code == "tool.fatal"


def test_stub_delay_advances_the_clock() -> None:
    clock = StepClock()
    slow = stub("late", delay=29_999, clock=clock)
    assert run(model=scripted(calls("search"), text("Done.")), tools={"search": slow}, clock=clock).tool_calls == 1
    assert clock.now() == 29_999
    with pytest.raises(ValueError, match="needs a clock"):
        stub(delay=1)


# --- people, hooks, sinks -------------------------------------------------------------------------------------

ASKING_AGENT = package(tools={"pay": writing()}, policy={"default": "deny", "rules": [rule("ask", "pay")]})


@pytest.mark.parametrize(
    ("answers", "ran"),
    [
        ("approved", 1),
        ("denied", 0),
        ({"pay": "approved"}, 1),
        ({"other": "approved"}, 0),
        (["approved"], 1),
        ([], 0),
        (lambda question: "approved" if question.value == {"n": 1} else "denied", 1),
    ],
)
def test_approving_double_answers_and_keeps_the_questions(answers: ApprovalAnswer, ran: int) -> None:
    person, pay = approving(answers), stub()
    assert run(
        ASKING_AGENT, model=scripted(calls("pay", n=1), text("Done.")), tools={"pay": pay}, approver=person
    ).answer
    assert pay.count == ran
    assert [(question.target, question.value) for question in person.questions] == [("pay", {"n": 1})]


def test_approving_double_that_is_too_late_times_out() -> None:
    clock, pay = StepClock(), stub()
    with pytest.raises(ValueError, match="needs a clock"):
        approving(delay=1)
    person = approving(delay=120_001, clock=clock)
    run(
        ASKING_AGENT, model=scripted(calls("pay", n=1), text("Done.")), tools={"pay": pay}, approver=person, clock=clock
    )
    assert (pay.count, clock.now()) == (0, 120_000)


def test_run_without_an_approver_is_suspended() -> None:
    waiting = agentrun.run(ASKING_AGENT, "Hi.", model=scripted(calls("pay")), tools={"pay": stub()}, clock=StepClock())
    assert waiting.status == "suspended"


AGENT_WITH_HOOK = package(hooks=[script.hook("on_input", id="guard")])


def test_hook_double_answers_and_keeps_the_questions() -> None:
    guard = hook()
    assert run(AGENT_WITH_HOOK, model=scripted("Hello."), hooks={"guard": guard}).answer == "Hello."
    assert [question.value for question in guard.questions] == ["Hi."]
    assert run(AGENT_WITH_HOOK, model=scripted("Hello."), hooks={"guard": hook(Deny("no"))}).code == "policy.denied"
    assert run(AGENT_WITH_HOOK, model=scripted("Hello."), hooks={"guard": hook(ValueError())}).code == "policy.denied"
    seen = hook(lambda question: Continue() if question.value == "Hi." else Deny("?"))
    assert run(AGENT_WITH_HOOK, model=scripted("Hello."), hooks={"guard": seen}).answer == "Hello."


def test_sink_double_keeps_or_fails_deliveries() -> None:
    agent, report = package(sinks={"report": script.SINK}), sink()
    assert run(agent, model=scripted("Hello."), sinks={"report": report}).answer == "Hello."
    assert list(report.kept.values()) == ["Hello."]
    for fault in (ValueError(), Fault("delivery.failed", "full")):
        outcome = run(agent, model=scripted("Hello."), sinks={"report": sink(fails=fault)})
        assert outcome.code == "delivery.failed"


# --- journals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(1, 6))
def test_failing_journals_stop_the_run_before_the_next_effect(at: int) -> None:
    journals, model = FailingJournals(at), scripted("Hello.")
    with pytest.raises(StorageError, match=r"storage\.failed"):
        run(package(), model=model, journals=journals).raise_for_status()
    assert sum(len(journals.records(run)) for run in journals.runs) == at - 1
    assert len(model.requests) == (at > 2), "nothing is sent whose intent is not written"


def test_failing_journal_is_poisoned_after_the_failure() -> None:
    """The record and all after it."""
    journal, whole = FailingJournal(3), MemoryJournals()
    run(package(), model=scripted("Hello."), journals=whole)
    codes = []
    for record in whole.records("run-1"):
        try:
            journal.append(record)
        except StorageError as error:
            codes.append(error.code)
    assert codes == ["storage.failed", "journal.poisoned", "journal.poisoned"]
    assert journal.records() == whole.records("run-1")[:2]


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("when", ["before", "after"])
def test_crashing_journals_crash_before_or_after_a_record(at: int, when: Any) -> None:
    journals = CrashingJournals(at, when)
    with pytest.raises(Crash):
        run(package(), model=scripted("Hello."), journals=journals)
    assert sum(len(journals.records(run)) for run in journals.runs) == at - (when == "before")
