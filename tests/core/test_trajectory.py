"""`Trajectory`: the calls, rulings and approvals of a journal, and `Outcome`, which has them."""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.core import facts
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Reply, Text, ToolCall, ToolResult, Usage, message_hash, user_message
from agentrun.core.outcome import Outcome, Question
from agentrun.core.spend import BudgetShare
from agentrun.core.trajectory import RunTrail, Trajectory
from agentrun.errors import AgentrunError


def journal(*happened: facts.Fact) -> tuple[facts.Record, ...]:
    return tuple(facts.Record(seq, 0, 1, "", fact) for seq, fact in enumerate(happened, 1))


def replied(*tools: str, turn: int = 1, arguments: str = "{}") -> facts.ModelReplied:
    calls = tuple(ToolCall(f"c{turn}.{index}", tool, arguments) for index, tool in enumerate(tools))
    return facts.ModelReplied(f"m{turn}.1", turn, 1, Reply(Assistant(calls), "tool_calls", None, None, None))


def ruled(subject: str, stage: Any, ruling: Any, **more: Any) -> facts.Ruled:
    return facts.Ruled(subject, stage, ruling, ("rule",), "why", **more)


def calls(*happened: facts.Fact, **children: tuple[facts.Record, ...]) -> list[tuple[str, str, str]]:
    found = Trajectory(journal(*happened), children.__getitem__).calls
    return [(call.tool, call.status, call.result) for call in found]


def done(text: str) -> tuple[Text, ...]:
    return (Text(text),)


@pytest.mark.parametrize(
    ("end", "status", "result"),
    [
        (facts.ToolFinished("c1.0", done("42")), "ok", "42"),
        (facts.ToolFinished("c1.0", done("no"), Fault("tool.timeout", "no")), "tool.timeout", "no"),
        (facts.CallRefused("c1.0", "tool.unknown", "unknown"), "tool.unknown", "unknown"),
        (facts.CallCancelled("c1.0", "not needed"), "tool.aborted", "not needed"),
        (facts.CallSettled("c1.0", "result", "Ada", done("paid")), "ok", "paid"),
        (facts.CallSettled("c1.0", "stop", "Ada"), "tool.indeterminate", ""),
        (facts.CallSettled("c1.0", "retry", "Ada"), "open", ""),
        (facts.TimePassed(), "open", ""),
    ],
)
def test_call_ends_with_the_status_of_its_fact(end: facts.Fact, status: str, result: str) -> None:
    assert calls(replied("pay"), end) == [("pay", status, result)]


@pytest.mark.parametrize(
    "denial",
    [
        ruled("c1.0", "tool_call", "deny"),
        facts.HookAnswered("h.a.c1.0.1", "a", "before_tool", "c1.0", facts.Deny("no"), closes=True),
        facts.ApprovalAnswered("c1.0", "q", "denied", "Ada"),
    ],
)
def test_cancelled_call_that_was_denied_is_denied(denial: facts.Fact) -> None:
    assert calls(replied("pay"), denial, facts.CallCancelled("c1.0", "no")) == [("pay", "tool.denied", "no")]


def test_result_is_what_a_hook_or_a_rule_made_of_it() -> None:
    hook = facts.HookAnswered("h.a.c1.0.1", "a", "after_tool", "c1.0", facts.Modify("short"))
    finished = facts.ToolFinished("c1.0", done("long"))
    assert calls(replied("pay"), finished, hook) == [("pay", "ok", "short")]
    assert calls(replied("pay"), finished, ruled("c1.0", "tool_result", "modify", text="***")) == [("pay", "ok", "***")]
    assert calls(replied("pay"), finished, ruled("c1.0", "tool_result", "allow")) == [("pay", "ok", "long")]


def test_discarded_reply_has_no_calls() -> None:
    assert calls(replied("look"), replied("pay", turn=2), facts.ReplyDiscarded(2, 9)) == [("look", "open", "")]


def test_calls_of_a_sub_agent_follow_its_own_and_are_read_once() -> None:
    inner = journal(replied("search"), facts.ToolFinished("c1.0", done("found")))
    started = facts.ChildStarted("c1.0", "read", "inner", BudgetShare())
    finished = facts.ToolFinished("c1.0", done("done"))
    expected = [("read", "ok", "done"), ("read/search", "ok", "found")]
    assert calls(replied("read"), started, started, finished, inner=inner) == expected


def test_arguments_that_are_no_object_are_none() -> None:
    found = Trajectory(journal(replied("pay", arguments="[]")), dict[str, Any]().__getitem__).calls
    assert [(call.id, call.args, call.turn) for call in found] == [("c1.0", None, 1)]


def test_rulings_and_approvals_have_their_targets() -> None:
    found = Trajectory(
        journal(
            replied("pay"),
            ruled("c1.0", "tool_call", "allow"),
            ruled("output", "output", "allow"),
            ruled("deliver:mail", "delivery", "ask"),
            facts.ApprovalAsked("deliver:mail", "q", "g", "mail", ("rule",)),
            facts.ApprovalAnswered("deliver:mail", "q", "approved", "Ada"),
            facts.ApprovalAnswered("c1.0", "other", "denied", "Ada"),
        ),
        dict[str, Any]().__getitem__,
    )
    assert [ruling.target for ruling in found.rulings] == ["pay", "output", "mail"]
    assert [(each.target, each.answer) for each in found.approvals] == [("mail", "approved"), ("c1.0", "denied")]


# --- outcomes ---------------------------------------------------------------------------------------------------------


def outcome(status: Any, **fields: Any) -> Outcome:
    spent: dict[str, Any] = {"turns": 1, "usage": Usage(0, 0), "tokens": 0, "cost": 0, "tool_calls": 0}
    return Outcome(run="run-1", agent="a", status=status, replayed=False, attempt=1, seq=2, **spent, **fields)


def test_outcome_has_the_journal_and_the_calls_of_its_run() -> None:
    ended = outcome("completed", answer="Done.")
    assert (ended.journal, ended.calls, ended.text) == ((), (), "Done.")
    ended.with_trail(RunTrail("run-1", {"run-1": journal(replied("pay"))}.__getitem__))
    assert (len(ended.journal), [call.tool for call in ended.calls]) == (1, ["pay"])
    other = outcome("completed", answer="Done.").with_trail_of(ended)
    assert (other.journal, other == ended) == (ended.journal, True)


def test_only_a_completed_outcome_passes_raise_for_status() -> None:
    assert outcome("completed").raise_for_status().ok
    question = Question("c1.0", "q", "pay", {}, (), None)
    for ended, code in (
        (outcome("failed", fault=Fault("budget.turns", "no turns", {"used": 1})), "budget.turns"),
        (outcome("suspended", questions=(question,)), "run.invalid_state"),
        (outcome("parked"), "run.invalid_state"),
    ):
        with pytest.raises(AgentrunError) as raised:
            ended.raise_for_status()
        assert (raised.value.code, raised.value.fields["run"]) == (code, "run-1")


def test_json_has_the_fields_of_the_status() -> None:
    waiting = outcome("suspended", waits_for=("c1.0",)).as_json()
    assert waiting.keys() == {"run", "agent", "questions", "waits_for", "until", "exit_code"}
    assert outcome("parked").as_json() == {"run": "run-1", "agent": "a", "seq": 2, "exit_code": 8}
    assert "output" not in outcome("completed").as_json()
    assert outcome("completed", output=7).as_json()["output"] == 7
    assert not {"questions", "waits_for", "until"} & outcome("completed").as_json().keys()


def test_texts_of_messages() -> None:
    assert (user_message("Hello").text, ToolResult("c1.0", done("42")).text) == ("Hello", "42")
    assert message_hash(" Hello\n") == message_hash("Hello") != message_hash("hello")
