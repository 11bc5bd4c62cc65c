"""Invariants of every run: they pass for real journals and report a planted violation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.cassette.player import LenientPlayer, Player
from agentrun.core.facts import (
    ApprovalAnswered,
    CallRefused,
    CallSettled,
    DeliveryStarted,
    Fact,
    HookAnswered,
    ModelAsked,
    Record,
    Ruled,
    RunStopped,
    ToolFinished,
    ToolStarted,
)
from agentrun.core.package import Package
from agentrun.testing.suite import invariants

from ...engine.memory_worlds import HOOK
from ...engine.recorded_runs import reply_with_calls
from ...scripted_service import completion
from .injected_runs import HOOK_PART, SINK_PART, case, fault, record_case, replay, shop

REFUND = reply_with_calls(("refund", {"amount": 5}))
LOOK = reply_with_calls(("look", {"at": 1}))
DONE_REPLY = completion("Done.")
LIMITS = {"turns": 4, "tokens": 20_000, "tool_calls": 3, "time": 60_000}


def journal(folder: Path, agent: Package, *replies: Any) -> tuple[Record, ...]:
    cassette, _ = record_case(folder, agent, case(), *replies)
    run = replay(agent, case(), cassette)
    assert run.ending == "completed"
    assert invariants.broken_invariants(agent, run.run.journal, waits=False) == ()
    return run.run.journal


def with_facts(records: Sequence[Record], change: Callable[[Fact], Iterable[Fact]]) -> list[Record]:
    """The journal with other facts in it, numbered anew."""
    found = [replace(record, fact=fact) for record in records for fact in change(record.fact)]
    return [replace(record, seq=index) for index, record in enumerate(found, 1)]


def replacing(kind: type, instead: Callable[[Any], Iterable[Any]]) -> Callable[[Fact], Iterable[Fact]]:
    return lambda fact: instead(fact) if isinstance(fact, kind) else (fact,)


# --- how it ends --------------------------------------------------------------------------------------------------


def test_terminal_record_must_be_single_and_last(tmp_path: Path) -> None:
    records = journal(tmp_path, shop(), DONE_REPLY)
    stop = records[-1]
    assert list(invariants.check_terminal_record(records, waits=False)) == []
    assert list(invariants.check_terminal_record(records[:-1], waits=True)) == []
    assert list(invariants.check_terminal_record(records[:-1], waits=False)) == [
        "the run has ended without a terminal record"
    ]
    assert "is a terminal record" in next(invariants.check_terminal_record(records, waits=True))
    assert "there are 2 terminal records" in next(
        invariants.check_terminal_record([*records, replace(stop, seq=stop.seq + 1)], waits=False)
    )
    after = replace(records[1], seq=stop.seq + 1)
    assert "is followed by 1 record" in next(invariants.check_terminal_record([*records, after], waits=False))


# --- budgets ------------------------------------------------------------------------------------------------------


def run_with_budgets(folder: Path) -> tuple[Package, tuple[Record, ...], list[ModelAsked]]:
    agent = shop(budgets=LIMITS, model={"max_output_tokens": 50})
    records = journal(folder, agent, LOOK, DONE_REPLY)
    return agent, records, [each.fact for each in records if isinstance(each.fact, ModelAsked)]


def test_reserved_tokens_must_be_within_the_budget(tmp_path: Path) -> None:
    agent, records, asked = run_with_budgets(tmp_path)
    needed = 25 + asked[1].reserved
    enough, less = (replace(agent, budgets=replace(agent.budgets, tokens=limit)) for limit in (needed, needed - 1))
    assert list(invariants.check_budgets(enough, records)) == []
    assert [f"but 25 of {needed - 1} are used" in each for each in invariants.check_budgets(less, records)] == [True]


def test_reserved_cost_must_be_within_the_budget(tmp_path: Path) -> None:
    agent, records, _ = run_with_budgets(tmp_path)
    dear = with_facts(records, replacing(ModelAsked, lambda fact: [replace(fact, cost=7)]))
    for limit, wrong in ((7, 0), (6, 2)):
        tight = replace(agent, budgets=replace(agent.budgets, cost=limit))
        assert len(list(invariants.check_budgets(tight, dear))) == wrong


@pytest.mark.parametrize(("name", "enough"), [("turns", 2), ("tool_calls", 1)])
def test_turns_and_calls_must_be_within_the_budget(tmp_path: Path, name: str, enough: int) -> None:
    agent, records, _ = run_with_budgets(tmp_path)
    for limit, wrong in ((enough, 0), (enough - 1, 1)):
        tight = replace(agent, budgets=replace(agent.budgets, **{name: limit}))
        assert len(list(invariants.check_budgets(tight, records))) == wrong


def test_nothing_may_start_after_the_time_budget(tmp_path: Path) -> None:
    agent, records, _ = run_with_budgets(tmp_path)
    second = [each.seq for each in records if isinstance(each.fact, ModelAsked)][1]
    late = [each if each.seq < second else replace(each, at=records[0].at + 5000) for each in records]
    for limit, wrong in ((5000, 0), (4999, 1)):
        tight = replace(agent, budgets=replace(agent.budgets, time=limit))
        assert len(list(invariants.check_budgets(tight, late))) == wrong


# --- gates --------------------------------------------------------------------------------------------------------


def test_denied_call_must_not_run(tmp_path: Path) -> None:
    agent = shop(**HOOK_PART, **SINK_PART)
    records = journal(tmp_path, agent, REFUND, DONE_REPLY)
    planted: dict[str, Callable[[Fact], Iterable[Fact]]] = {
        "the policy says deny": replacing(Ruled, lambda fact: [replace(fact, ruling="deny")]),
        "the policy says ask": replacing(ApprovalAnswered, lambda fact: []),
        "the answer was denied": replacing(ApprovalAnswered, lambda fact: [replace(fact, answer="denied")]),
        "the answer was timed_out": replacing(ApprovalAnswered, lambda fact: [replace(fact, answer="timed_out")]),
        "the answer was unavailable": replacing(ApprovalAnswered, lambda fact: [replace(fact, answer="unavailable")]),
        "there was no ruling": replacing(Ruled | ApprovalAnswered, lambda fact: []),  # type: ignore[arg-type]  # a union is fine for isinstance
        "the hook careful denied it": replacing(
            ToolStarted,
            lambda fact: [HookAnswered("e", "careful", "before_tool", fact.call, None, True), fact],  # type: ignore[arg-type]  # its answer is not looked at
        ),
        "it was refused with tool.hidden": replacing(
            ToolStarted, lambda fact: [CallRefused(fact.call, "tool.hidden", ""), fact]
        ),
    }
    for words, change in planted.items():
        found = list(invariants.check_gates(agent, with_facts(records, change)))
        assert [words in each for each in found] == [True], words


def test_denied_call_must_not_get_a_shared_result(tmp_path: Path) -> None:
    agent = shop()
    records = journal(tmp_path, agent, reply_with_calls(*[("look", {"at": 1})] * 2), DONE_REPLY)
    assert list(invariants.check_gates(agent, records)) == []
    denied = replacing(Ruled, lambda fact: [replace(fact, ruling="deny") if fact.subject == "c1.1" else fact])
    found = list(invariants.check_gates(agent, with_facts(records, denied)))
    assert ["(c1.1), although the policy says deny" in each for each in found] == [True]


def test_denied_delivery_must_not_start(tmp_path: Path) -> None:
    agent = shop(**SINK_PART)
    records = journal(tmp_path, agent, DONE_REPLY)
    no = Ruled("deliver:log", "delivery", "deny", ("outside",))
    found = list(
        invariants.check_gates(agent, with_facts(records, replacing(DeliveryStarted, lambda fact: [no, fact])))
    )
    assert len(found) == 1
    assert "delivers the answer to log, although the policy says deny" in found[0]


# --- once, closed, audited ----------------------------------------------------------------------------------------


def test_at_most_once_call_must_not_start_twice(tmp_path: Path) -> None:
    agent = shop()
    records = journal(tmp_path, agent, REFUND, LOOK, DONE_REPLY)
    twice = with_facts(records, replacing(ToolStarted, lambda fact: [fact, fact]))
    assert ["starts refund (c1.0) again" in each for each in invariants.check_at_most_once(agent, twice)] == [True], (
        "look may be"
    )
    settled = with_facts(
        records, replacing(ToolStarted, lambda fact: [fact, CallSettled(fact.call, "retry", "ada"), fact])
    )
    assert list(invariants.check_at_most_once(agent, settled)) == [], "somebody decided so"


def test_started_call_must_end(tmp_path: Path) -> None:
    agent = shop()
    records = journal(tmp_path, agent, LOOK, DONE_REPLY)
    lost = with_facts(records, replacing(ToolFinished, lambda fact: []))
    assert list(invariants.check_calls_ended(agent, lost)) == ["look (c1.0) was started and never ended"]
    twice = journal(tmp_path, agent, reply_with_calls(*[("look", {"at": 1})] * 2), DONE_REPLY)
    unshared = with_facts(twice, replacing(ToolFinished, lambda fact: [fact] if fact.call == "c1.0" else []))
    assert list(invariants.check_calls_ended(agent, unshared)) == ["look (c1.1) was started and never ended"]
    waiting = [each for each in lost if not isinstance(each.fact, RunStopped)]
    assert list(invariants.check_calls_ended(agent, waiting)) == [], "a run that waits may have one open"


def test_every_executed_call_must_be_in_the_journal(tmp_path: Path) -> None:
    records = journal(tmp_path, shop(), LOOK, DONE_REPLY)
    assert list(invariants.check_calls_journaled(records, {"c1.0": 1})) == []
    assert list(invariants.check_calls_journaled(records, {"c1.0": 2, "c1.1": 1})) == [
        "the call c1.0 reached its tool 2 times, but the journal has it 1 time",
        "the call c1.1 reached its tool 1 time, but the journal has it 0 times",
    ]


def test_changed_decision_is_a_violation(tmp_path: Path) -> None:
    agent = shop()
    records = journal(tmp_path, agent, LOOK, DONE_REPLY)
    changed = with_facts(records, replacing(Ruled, lambda fact: [replace(fact, reason="another")]))
    assert "is ruled, but the current code would write ruled" in next(invariants.check_audit(agent, changed))
    assert invariants.broken_invariants(agent, changed, waits=False) != ()


def test_journal_that_cannot_be_folded_is_a_violation(tmp_path: Path) -> None:
    agent = shop()
    records = journal(tmp_path, agent, LOOK, DONE_REPLY)
    found = invariants.broken_invariants(
        agent, with_facts(records, replacing(ToolStarted, lambda fact: [])), waits=False
    )
    assert any("cannot be folded" in each for each in found)


def test_injected_faults_violate_no_invariant(tmp_path: Path) -> None:
    agent = shop(budgets=LIMITS)
    cassette, _ = record_case(tmp_path, agent, case(), LOOK, DONE_REPLY)
    for at, inject in {"model#1": {"status": 500, "times": 4}, "tool:look": {"fatal": "no"}}.items():
        run = replay(agent, case(fault(at, **inject)), cassette)  # type: ignore[arg-type]  # as YAML would say it
        assert invariants.broken_invariants(agent, run.run.journal, waits=False) == ()


@pytest.mark.parametrize("point", ["before_tool", "after_tool", "on_stop"])
@pytest.mark.parametrize("inject", [{"error": "no"}, {"fatal": "no"}, {"timeout": True}])
def test_unrecorded_hook_after_a_fault_violates_no_invariant(
    tmp_path: Path, point: str, inject: dict[str, Any]
) -> None:
    """A hook that is not on the cassette ends a run from outside; under a sweep it says what it said before."""
    agent = shop(hooks=[{**HOOK, "at": point}])
    cassette, _ = record_case(
        tmp_path, agent, case(), reply_with_calls(("look", {"at": 1}), ("look", {"at": 2})), DONE_REPLY
    )
    laid = case(fault("tool:look#2", **inject))
    strict, loose = (replay(agent, laid, cassette, make) for make in (Player, LenientPlayer))
    assert invariants.broken_invariants(agent, strict.run.journal, waits=False) == ()
    assert invariants.broken_invariants(agent, loose.run.journal, waits=False) == ()
    assert loose.ending == ("tool.fatal" if "fatal" in inject else "completed")
