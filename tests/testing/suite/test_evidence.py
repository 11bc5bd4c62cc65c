"""Evidence from runs with refused, cancelled, discarded or unfinished calls."""

from typing import Any

import pytest

from agentrun.cassette.redaction import RunRedaction
from agentrun.core.facts import Record, ReplyDiscarded
from agentrun.core.package import Package
from agentrun.engine.run import FinishedRun
from agentrun.errors import PolicyError
from agentrun.testing import call, calls
from agentrun.testing.suite.evidence import Evidence, collect_evidence
from agentrun.testing.suite.replay import CaseRuns

from ...core.script import rule, tool, writing
from ...engine.memory_runtime import ASKING_AGENT, TOOLS, Home
from ...packages import package


def finished(agent: Package, *script: Any, **given: Any) -> FinishedRun:
    home = Home(*script, **given)
    ended = home.run(agent)
    return FinishedRun(ended, tuple(home.journals.records("r1")), {}, RunRedaction())


def collect(agent: Package, *script: Any, **given: Any) -> Evidence:
    return collect_evidence(CaseRuns((finished(agent, *script, **given),)))


def tools_and_statuses(evidence: Evidence) -> list[tuple[str, str]]:
    return [(each.tool, each.status) for each in evidence.calls]


def test_suspended_run_has_an_open_call() -> None:
    """It has spent what it has, and its call is open."""
    evidence = collect(ASKING_AGENT, calls("pay", amount=5))
    assert (evidence.outcome, evidence.output) == ("suspended", None)
    assert tools_and_statuses(evidence) == [("pay", "open")]
    assert evidence.turns == 1
    assert evidence.tokens > 0
    assert evidence.approvals == ()


def test_invalid_calls_have_their_code_as_status() -> None:
    evidence = collect(TOOLS, calls("nothing"), calls(call("search", "{broken")), "Sorry.")
    assert tools_and_statuses(evidence) == [("nothing", "tool.unknown"), ("search", "tool.invalid_arguments")]
    assert [each.args for each in evidence.calls] == [{}, None]
    assert [each.result.partition(":")[0] for each in evidence.calls] == ["tool.unknown", "tool.invalid_arguments"]
    assert evidence.outcome == "completed"


def test_calls_cancelled_by_the_end_of_the_run() -> None:
    rules = [rule("interrupt", "pay"), rule("allow", "search")]
    agent = package(tools={"search": tool(), "pay": writing()}, policy={"default": "deny", "rules": rules})
    evidence = collect(agent, calls(call("search", q="a"), call("pay", amount=5)))
    assert evidence.outcome == "policy.interrupted"
    assert dict(tools_and_statuses(evidence)) == {"search": "tool.aborted", "pay": "tool.denied"}


def test_calls_of_a_discarded_reply_are_not_counted() -> None:
    run = finished(TOOLS, calls("search", q="a"), "Done.")
    at = next(n for n, record in enumerate(run.journal) if type(record.fact).__name__ == "ModelReplied") + 1
    again = (*run.journal[:at], _after(run.journal[at - 1], ReplyDiscarded(1, 100)), *run.journal[at - 1 :])
    evidence = collect_evidence(CaseRuns((FinishedRun(run.ending, again, {}, RunRedaction()),)))
    assert tools_and_statuses(evidence) == [("search", "ok")]


def _after(record: Record, fact: ReplyDiscarded) -> Record:
    return Record(record.seq, record.at, record.epoch, record.prev, fact)


def test_evidence_of_a_conversation_is_summed() -> None:
    one, other = finished(TOOLS, calls("search", q="a"), "First."), finished(TOOLS, "Second.")
    both = collect_evidence(CaseRuns((one, other)))
    assert (both.output, both.outcome) == ("Second.", "completed")
    assert both.turns == 3
    assert both.tokens == one.ending.tokens + other.outcome.tokens
    assert len(both.calls) == 1


def test_run_that_did_not_start_has_the_code_of_its_error() -> None:
    error = PolicyError("policy.denied", "no")
    evidence = collect_evidence(CaseRuns((), error))
    assert (evidence.output, evidence.outcome, evidence.turns, evidence.time) == (None, "policy.denied", 0, 0)
    after = collect_evidence(CaseRuns((finished(TOOLS, "First."),), error))
    assert (after.output, after.outcome, after.turns) == (None, "policy.denied", 1)


@pytest.mark.parametrize(("answer", "value"), [('{"a": [1]}', {"a": [1]}), ("no", None), ("null", None)])
def test_json_of_the_answer(answer: str, value: Any) -> None:
    evidence = collect(TOOLS, answer)
    assert evidence.json == value
    assert evidence.json is None or evidence.json is not evidence.json


def test_ending_of_a_waiting_run_is_suspended() -> None:
    assert finished(ASKING_AGENT, calls("pay", amount=5)).ending.status == "suspended"
