"""`find_divergence`: the first decision of a journal that today's code would make differently."""

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from agentrun.core import audit as audit_module
from agentrun.core import model_texts
from agentrun.core.audit import Divergence, find_divergence
from agentrun.core.facts import (
    AnswerReached,
    ApprovalAnswered,
    ApprovalAsked,
    ArgumentsCompleted,
    CallCancelled,
    CallRefused,
    ChildStarted,
    CompactionFailed,
    ContextCompacted,
    Decision,
    DeliverySkipped,
    DeliveryStarted,
    Fact,
    HookAsked,
    ModelAsked,
    ModelReplied,
    ModelTold,
    OutputRefused,
    Record,
    ReplyDiscarded,
    ResultsGiven,
    ResultShared,
    RetryPlanned,
    RouteSwitched,
    Ruled,
    RunEnding,
    RunStopped,
    ToolStarted,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import user_message
from agentrun.core.spend import BudgetShare
from agentrun.errors import StorageError

from ..packages import package
from .script import Run, calls_reply, rule, text_reply, tool
from .shape_parts import policy
from .shapes import SHAPES


def finished_run(name: str) -> Run:
    run = SHAPES[name]()
    run.finish()
    return run


def replaced(run: Run, seq: int, fact: Fact) -> list[Record]:
    """The journal up to and with one record, which says something else."""
    return [*run.records[: seq - 1], replace(run.records[seq - 1], fact=fact)]


def seq_of(run: Run, kind: type) -> int:
    return next(record.seq for record in run.records if isinstance(record.fact, kind))


@pytest.mark.parametrize("name", SHAPES)
def test_journal_of_every_shape_has_no_divergence(name: str) -> None:
    run = finished_run(name)
    assert find_divergence(run.first, run.records, run.others) is None
    for length in range(len(run.records)):
        assert find_divergence(run.first, run.records[:length], run.others) is None, "a part of a journal is clean too"


CHANGED_FACTS: dict[str, tuple[str, type, dict[str, Any]]] = {
    "a ruling": ("ruled", Ruled, {"ruling": "deny"}),
    "a rule": ("ruled", Ruled, {"rules": ("r9",)}),
    "what is asked": ("ruled", ApprovalAsked, {"question": "sha256:0"}),
    "a wait": ("retried", RetryPlanned, {"wait": 1}),
    "a moment": ("retried", RetryPlanned, {"until": 1}),
    "a route": ("fell_back", RouteSwitched, {"target": "openai/third"}),
    "what is reserved": ("text", ModelAsked, {"reserved": 1}),
    "a key": ("writes", ToolStarted, {"key": "sha256:0"}),
    "a default": ("with_defaults", ArgumentsCompleted, {"arguments": {"q": "other"}}),
    "which call ran": ("shared", ResultShared, {"source": "c1.2"}),
    "a share": ("with_child", ChildStarted, {"share": BudgetShare(tokens=1)}),
    "why a call cannot be made": ("refused", CallRefused, {"code": "tool.hidden"}),
    "an error of an answer": ("repaired", OutputRefused, {"errors": ("other",)}),
    "what the model is told": ("nudged", ModelTold, {"messages": ()}),
    "a label": ("wrapped_up", AnswerReached, {"label": None}),
    "a summary": ("compacted", ContextCompacted, {"replaced": 2}),
    "why a summary cannot be used": ("compaction_failed", CompactionFailed, {"reason": "calls"}),
    "a sink": ("delivered", DeliveryStarted, {"sink": "third"}),
    "a delivery that is left out": ("delivered", DeliverySkipped, {"fault": Fault("policy.denied", "other")}),
    "a hook": ("hooked", HookAsked, {"hook": "other"}),
    "a cap": ("escalated", ReplyDiscarded, {"cap": 11}),
    "who ended it": ("terminal", ResultsGiven, {"ended_by": None}),
    "a call that is given up": ("aborting", CallCancelled, {"told": "other"}),
    "how it is to end": ("tripped", RunEnding, {"stop": RunStopped("completed")}),
    "a reason": ("gave_up", RunStopped, {"fault": Fault("provider.fatal", "other")}),
    "an end": ("text", RunStopped, {"status": "failed"}),
}


@pytest.mark.parametrize("what", CHANGED_FACTS)
def test_changed_decision_is_reported(what: str) -> None:
    name, kind, changes = CHANGED_FACTS[what]
    run = finished_run(name)
    seq = seq_of(run, kind)
    was = run.records[seq - 1].fact
    changed = replace(was, **changes)
    assert changed != was
    assert find_divergence(run.first, replaced(run, seq, changed), run.others) == Divergence(seq, changed, (was,))


def test_every_decision_fact_has_a_changed_example() -> None:
    assert {kind for _, kind, _ in CHANGED_FACTS.values()} == {
        kind for kind in get_args(Fact) if issubclass(kind, Decision)
    }


def test_dropped_decision_is_reported() -> None:
    """A wait that was planned and is not in the journal."""
    run = finished_run("retried")
    seq = seq_of(run, RetryPlanned)
    following = replace(run.records[seq + 1], seq=seq)
    found = find_divergence(run.agent, [*run.records[: seq - 1], following])
    assert found == Divergence(seq, following.fact, (run.records[seq - 1].fact,))


def test_inserted_decision_is_reported() -> None:
    run = finished_run("text")
    extra = Record(2, 0, 1, "", ModelTold("wrap_up", (user_message("Hurry."),)))
    found = find_divergence(run.agent, [run.records[0], extra])
    assert found == Divergence(2, extra.fact, (run.records[1].fact,))


def test_decision_while_the_run_waits_is_reported() -> None:
    run = Run(package(), text_reply("Yes."))
    run.until(ModelAsked)
    early = Record(3, 0, 1, "", RunStopped("completed"))
    assert find_divergence(run.agent, [*run.records, early]) == Divergence(3, early.fact, ())


def test_decision_inside_an_incomplete_commit_is_reported() -> None:
    """What a commit still owes comes next."""
    run = finished_run("ran_first")
    first, second = [record.seq for record in run.records if isinstance(record.fact, CallRefused)]
    assert second == first + 1
    early = replace(run.records[second], seq=second)
    assert isinstance(early.fact, Ruled)
    assert find_divergence(run.agent, [*run.records[:first], early]) == Divergence(
        second, early.fact, (run.records[second - 1].fact,)
    )


def test_changed_code_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is as it was; the code is not."""
    run = finished_run("continued")
    monkeypatch.setattr(model_texts, "CONTINUE", "Please go on.")
    found = find_divergence(run.agent, run.records)
    assert found is not None
    assert (found.seq, found.was) == (seq_of(run, ModelTold), run.of(ModelTold)[0])
    assert found.instead == (ModelTold("continue", (user_message("Please go on."),)),)


def test_changed_package_is_reported() -> None:
    run = finished_run("reading")
    found = find_divergence(replace(run.agent, policy=package().policy), run.records)
    assert found is not None
    assert isinstance(found.was, Ruled)
    assert isinstance(found.instead[0], Ruled)
    assert (found.was.ruling, found.instead[0].ruling) == ("allow", "deny")


def test_changed_outside_input_is_no_divergence() -> None:
    """Another answer of the model, of a person or of a tool is no divergence by itself."""
    run = Run(package(), text_reply("Yes."))
    run.until(ModelReplied)
    given = replaced(run, 3, ModelReplied("m1.1", 1, 1, text_reply("No.")))
    assert find_divergence(run.agent, given) is None
    run = Run(
        package(tools={"a": tool()}, policy=policy(rule("ask"))),
        calls_reply("a"),
        text_reply("Done."),
        people={"a": "denied"},
    )
    run.until(ApprovalAnswered)
    answer = replace(run.of(ApprovalAnswered)[0], answer="approved")
    assert find_divergence(run.agent, replaced(run, len(run.records), answer)) is None


def test_decision_based_on_changed_input_is_reported() -> None:
    """But what was decided upon that answer is."""
    run = finished_run("text")
    other = replace(run.records[2], fact=ModelReplied("m1.1", 1, 1, calls_reply("search")))
    found = find_divergence(run.agent, [*run.records[:2], other, *run.records[3:]])
    assert found is not None
    assert found.seq == 4


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize(
    "fault",
    [
        Fault("internal", "a bug"),
        Fault("cancelled", "by the host", {"by": "host"}),
        Fault("cassette.miss", "it is not on the cassette"),
    ],
)
def test_failure_written_by_the_runtime_is_no_divergence(at: int, fault: Fault) -> None:
    run = finished_run("text")
    ours = Record(at + 1, 0, 1, "", RunStopped("failed", fault=fault))
    assert find_divergence(run.agent, [*run.records[:at], ours]) is None


@pytest.mark.parametrize("fault", [None, Fault("cancelled", "by somebody", {"by": "me"}), Fault("budget.time", "late")])
def test_end_without_a_decision_is_reported(fault: Fault | None) -> None:
    run = finished_run("text")
    wrong = Record(4, 0, 1, "", RunStopped("failed", fault=fault))
    assert find_divergence(run.agent, [*run.records[:3], wrong]) == Divergence(4, wrong.fact, (run.records[3].fact,))


def test_resume_with_another_package_is_audited_with_that_package() -> None:
    run = finished_run("other_rules")
    asks, denies = run.others.values()
    assert find_divergence(run.first, run.records, run.others) is None
    found = find_divergence(run.first, run.records)
    assert found is not None, "with the first package alone the last ruling is another"
    assert isinstance(found.was, Ruled)
    assert found.was.ruling == "deny"
    assert find_divergence(run.first, run.records, dict.fromkeys(run.others, asks)) is not None
    assert denies.policy != asks.policy


def test_journal_that_cannot_be_folded_raises_recovery_failed() -> None:
    run = finished_run("text")
    with pytest.raises(StorageError) as caught:
        find_divergence(run.agent, [run.records[0], run.records[2]])
    assert (caught.value.code, caught.value.fields) == ("recovery.failed", {"seq": 3})


def test_planted_audit_that_ignores_decisions_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit that only folds finds nothing."""
    run = finished_run("retried")
    seq = seq_of(run, RetryPlanned)
    changed = replaced(run, seq, replace(run.records[seq - 1].fact, wait=1))
    assert find_divergence(run.agent, changed) is not None
    monkeypatch.setattr(audit_module, "_is_runtime_failure", lambda fact: True)
    assert find_divergence(run.agent, changed) is None
