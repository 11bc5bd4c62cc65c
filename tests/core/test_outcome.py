"""The outcome of a run, and the messages that a later run of its session gets."""

import pytest
from msgspec.structs import replace

from agentrun.core.decide import decide
from agentrun.core.effects import Wait
from agentrun.core.evolve import fold
from agentrun.core.facts import ApprovalAsked, EarlierRuns, Modify, Record, RunStopped
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Text, Usage
from agentrun.core.model_request import find_history_fault
from agentrun.core.outcome import interrupted_outcome, outcome_of, parked_outcome, suspended_outcome
from agentrun.errors import ERROR_CODES, AgentrunError, ProviderError, RequestError, code_of

from ..packages import package, typed
from .script import RUN_STARTED, Run, calls_reply, hook, rule, session_messages, text_reply, tool
from .shape_parts import ALLOW, BAD, GOOD, policy
from .shapes import SHAPES


def test_completed_outcome_has_output_and_totals() -> None:
    run = Run(typed(tools={"a": tool()}, policy=ALLOW), calls_reply("a"), text_reply(GOOD))
    outcome = run.finish()
    assert (outcome.run, outcome.agent, outcome.status) == ("run-1", "triage", "completed")
    assert (outcome.code, outcome.fields, outcome.retry, outcome.exit_code) == (None, {}, None, 0)
    assert (outcome.turns, outcome.tokens, outcome.cost, outcome.tool_calls) == (2, 50, 0, 1)
    assert outcome == outcome_of(run.state) == outcome_of(fold(run.records))


def test_cause_of_a_failure_names_its_place() -> None:
    """Where a failure comes from, beside its evidence."""
    denied = package(tools={"a": tool(on_denied="stop")}, policy={"rules": [rule("deny", "a", id="no")]})
    run = Run(denied, calls_reply("a"))
    assert run.finish().cause == {
        "run": "run-1",
        "turn": 1,
        "attempt": 1,
        "call": "c1.0",
        "seq": len(run.records),
        "source": "tool",
        "rules": ["no"],
    }
    assert Run(package(), text_reply("Hi.")).finish().cause == {}


def test_failed_outcome_has_code_and_fields() -> None:
    fault = Fault("provider.decode", "what?", {"offset": 3})
    outcome = Run(package(), fault).finish()
    assert (outcome.status, outcome.answer, outcome.output, outcome.label) == ("failed", None, None, None)
    assert (outcome.code, outcome.fields) == ("provider.decode", {"offset": 3, "turn": 1, "attempts": 1})
    assert (outcome.retry, outcome.exit_code) == ("not_retryable", 6)


def test_outcome_has_no_truth_value() -> None:
    """A failed outcome would be true, and a program that asks `if outcome:` would go on."""
    for said in (text_reply("Yes."), Fault("provider.decode", "what?")):
        with pytest.raises(TypeError, match=r"use outcome\.ok"):
            bool(Run(package(), said).finish())


def test_raise_for_status_returns_a_completed_outcome_and_raises_the_error_of_a_failed_one() -> None:
    completed = Run(package(), text_reply("Yes.")).finish()
    assert completed.raise_for_status() is completed
    assert (completed.ok, completed.text) == (True, "Yes.")
    failed = Run(package(), Fault("provider.decode", "what?", {"offset": 3})).finish()
    assert (failed.ok, failed.text) == (False, "")
    with pytest.raises(ProviderError, match="what") as caught:
        failed.raise_for_status()
    assert (caught.value.code, caught.value.fields["offset"], caught.value.fields["run"]) == (
        "provider.decode",
        3,
        "run-1",
    )


def test_raise_for_status_of_a_suspended_run_names_what_it_waits_for() -> None:
    run = Run(package(tools={"a": tool()}, policy=policy(rule("ask"))), calls_reply("a"))
    run.until(ApprovalAsked)
    step = decide(run.agent, run.state)
    assert isinstance(step, Wait)
    outcome = suspended_outcome(run.state, step.questions, step.waits_for)
    assert (outcome.status, outcome.ok, outcome.is_finished, outcome.exit_code) == ("suspended", False, False, 8)
    with pytest.raises(RequestError, match="it waits for an answer about a") as caught:
        outcome.raise_for_status()
    assert (caught.value.code, caught.value.fields["actual"]) == ("run.invalid_state", "suspended")


@pytest.mark.parametrize("code", [code for code in ERROR_CODES if code != "spec"])
def test_raise_for_status_raises_every_code(code: str) -> None:
    outcome = replace(Run(package(), text_reply("Yes.")).finish(), status="failed", fault=Fault(code, "no"))
    with pytest.raises(AgentrunError) as caught:
        outcome.raise_for_status()
    assert (caught.value.code, caught.value.exit_code) == (code, outcome.exit_code)
    assert type(caught.value) is not AgentrunError


def test_outcome_says_that_the_run_was_replayed() -> None:
    assert Run(package(), text_reply("Yes."), started=replace(RUN_STARTED, replayed=True)).finish().replayed


@pytest.mark.parametrize("code", [code for code in ERROR_CODES if code != "spec"])
def test_every_code_gives_its_retry_and_exit_code(code: str) -> None:
    stopped = Record(2, 0, 1, "", RunStopped("failed", fault=Fault(code, "x")))
    outcome = outcome_of(fold([Record(1, 0, 1, "", RUN_STARTED), stopped]))
    assert (outcome.retry, outcome.exit_code) == tuple(code_of(code))


def test_unreported_usage_makes_the_total_unknown() -> None:
    run = Run(typed(), text_reply(BAD), text_reply(GOOD, usage=None))
    assert run.finish().usage == Usage(None, None, None, None)
    run = Run(typed(), text_reply(BAD, usage=Usage(3, 4, None, 1)), text_reply(GOOD, usage=Usage(3, 4, 2, 1)))
    assert run.finish().usage == Usage(6, 8, None, 2)


def test_suspended_outcome_has_questions_and_exit_code_8() -> None:
    run = Run(package(tools={"a": tool()}, policy=policy(rule("ask"))), calls_reply("a"))
    run.until(ApprovalAsked)
    next = decide(run.agent, run.state)
    assert isinstance(next, Wait)
    waiting = suspended_outcome(run.state, next.questions, next.waits_for)
    assert (waiting.run, waiting.agent, waiting.questions, waiting.waits_for) == ("run-1", "triage", next.questions, ())
    assert waiting.exit_code == 8


def kinds(run: Run) -> list[str]:
    assert find_history_fault(session_messages(run.state)) is None
    return [type(message).__name__ for message in session_messages(run.state)]


def test_session_messages_include_calls_and_results() -> None:
    run = Run(package(tools={"a": tool()}, policy=ALLOW), calls_reply("a"), text_reply("Yes."))
    run.finish()
    assert kinds(run) == ["User", "Assistant", "ToolResult", "Assistant"]
    assert session_messages(run.state)[-1] == Assistant((Text("Yes."),))


def test_session_messages_have_the_answer_as_modified_by_a_hook() -> None:
    run = Run(package(hooks=[hook("on_output")]), text_reply("Yes."), hooks={"watch": Modify("No.")})
    run.finish()
    assert session_messages(run.state)[-1] == Assistant((Text("No."),))


def test_session_messages_of_a_truncated_answer() -> None:
    run = Run(package(), text_reply("One ", finish="length"), text_reply("two."))
    run.finish()
    assert kinds(run) == ["User", "Assistant", "User", "Assistant"]


def test_session_messages_after_a_terminal_tool() -> None:
    run = SHAPES["terminal"]()
    run.finish()
    assert kinds(run) == ["User", "Assistant", "ToolResult", "ToolResult", "ToolResult"]


def test_session_messages_of_a_run_that_failed_in_its_calls() -> None:
    run = SHAPES["fatal"]()
    run.finish()
    assert kinds(run) == ["User", "Assistant", "ToolResult", "ToolResult"]


def test_session_messages_of_a_run_that_failed_before_a_reply() -> None:
    run = SHAPES["gave_up"]()
    run.finish()
    assert kinds(run) == ["User"]


def test_session_messages_of_a_run_with_an_invalid_answer() -> None:
    run = SHAPES["unrepaired"]()
    run.finish()
    assert kinds(run) == ["User", "Assistant", "User", "Assistant"]


@pytest.mark.parametrize("name", SHAPES)
def test_every_run_can_be_continued_in_a_session(name: str) -> None:
    run = SHAPES[name]()
    run.finish()
    assert find_history_fault(session_messages(run.state)) is None
    later = Run(
        package(),
        text_reply("Yes."),
        started=replace(RUN_STARTED, earlier=EarlierRuns(messages=session_messages(run.state))),
    )
    assert later.finish().answer == "Yes."


def test_run_without_a_terminal_record_is_parked_or_failed_by_its_host() -> None:
    run = Run(package(), text_reply("Hello."))
    parked = parked_outcome(run.state)
    assert (parked.status, parked.seq, parked.exit_code, parked.is_finished) == ("parked", 1, 8, False)
    failed = interrupted_outcome(run.state, Fault("storage.failed", "the disk is full"))
    assert (failed.status, failed.code, failed.exit_code, failed.is_finished) == ("failed", "storage.failed", 7, True)
