"""The tool result that a parent gets for the outcome of a child run."""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.effects import RunChild
from agentrun.core.facts import ChildSuspended, Parent, ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.messages import ZERO_USAGE, Text
from agentrun.core.outcome import Outcome, Question
from agentrun.core.spend import BudgetShare, ChildSpend
from agentrun.core.tool_results import child_failed, child_finished, child_refused, child_suspended

from ..packages import package

EFFECT = RunChild(
    id="c1.0",
    name="helper",
    run="root.c1.0",
    package=package(name="helper"),
    params={},
    message="Hello.",
    parent=Parent("root", "c1.0", 1, BudgetShare(time=500)),
    max_lines=10,
    max_bytes=100,
)


def outcome(**changes: Any) -> Outcome:
    over = Outcome(
        run="root.c1.0",
        agent="helper",
        status="completed",
        replayed=False,
        answer="Yes.",
        label=None,
        turns=1,
        usage=ZERO_USAGE,
        tokens=30,
        cost=7,
        tool_calls=2,
        fault=None,
        attempt=1,
        seq=9,
    )
    return replace(over, **changes)


CHILD_SPEND = ChildSpend(30, 7, 2)


def test_answer_of_a_child_is_the_tool_result() -> None:
    assert child_finished(EFFECT, outcome()) == (ToolFinished("c1.0", (Text("Yes."),), None, None, CHILD_SPEND), None)
    fact, _ = child_finished(EFFECT, outcome(answer=None, runs=3))
    assert fact.parts == (Text(""),)
    assert fact.spent == ChildSpend(30, 7, 2, 3)
    assert CHILD_SPEND.runs is UNSET


def test_long_answer_of_a_child_is_truncated() -> None:
    """The model reads a part; the fact has no blob yet, because nobody has kept the whole text."""
    text = "line\n" * 100
    fact, whole = child_finished(EFFECT, outcome(answer=text))
    assert whole == text.encode()
    assert fact.blob is None
    (part,) = fact.parts
    assert isinstance(part, Text)
    assert "bytes left out" in part.text


@pytest.mark.parametrize(
    ("fault", "read"),
    [
        (
            Fault("output.invalid", "no JSON", {"errors": []}),
            Fault(
                "tool.execution",
                "the sub-agent failed: output.invalid: no JSON",
                {"tool": "helper", "code": "output.invalid"},
            ),
        ),
        (
            Fault("budget.time", "too long", {"limit": 500}),
            Fault(
                "tool.timeout",
                "the sub-agent took longer than 500 ms and was stopped",
                {"tool": "helper", "limit": 500},
            ),
        ),
        (
            Fault("budget.time", "too long", {"limit": 400}),
            Fault(
                "tool.execution",
                "the sub-agent failed: budget.time: too long",
                {"tool": "helper", "code": "budget.time"},
            ),
        ),
        (Fault("cassette.miss", "no such request"), Fault("cassette.miss", "no such request")),
    ],
)
def test_fault_of_a_child_is_a_failed_tool_result(fault: Fault, read: Fault) -> None:
    fact, whole = child_finished(EFFECT, outcome(status="failed", fault=fault, answer=None))
    assert fact == ToolFinished("c1.0", (Text(f"{read.code}: {read.message}"),), read, None, CHILD_SPEND)
    assert whole is None


def test_answer_that_cannot_be_stored_is_a_storage_fault() -> None:
    fault = Fault("storage.failed", "the disk is full")
    fact = child_failed(EFFECT, outcome(), fault)
    assert fact == ToolFinished("c1.0", (Text("storage.failed: the disk is full"),), fault, None, CHILD_SPEND)


def test_refused_child_is_a_failed_tool_result() -> None:
    fact = child_refused(EFFECT, "policy.denied", "not today")
    fault = Fault("tool.execution", "policy.denied: not today", {"tool": "helper", "code": "policy.denied"})
    assert fact == ToolFinished("c1.0", (Text("tool.execution: policy.denied: not today"),), fault)


def test_suspended_child_lists_what_it_waits_for() -> None:
    question = Question("c1.1", "sha256:0", "refund", {}, (), None)
    waits = outcome(status="suspended", questions=(question,), waits_for=("c1.2",))
    assert child_suspended(EFFECT, waits) == ChildSuspended("c1.0", ("c1.1", "c1.2"))
