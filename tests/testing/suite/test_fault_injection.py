"""Stubs, clocks, and injected faults of tools, approvals, hooks and sinks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentrun.canonical_json import data_hash
from agentrun.cassette.player import LenientPlayer
from agentrun.core.effects import RunTool
from agentrun.core.facts import ApprovalAnswered, DeliveryFinished, HookAnswered, Record, ToolFinished
from agentrun.core.messages import text_of
from agentrun.engine.event_loop import SystemClock
from agentrun.spec.v1.cases import Case, ClockSetting, StubSpec
from agentrun.testing import stub
from agentrun.testing.suite.fault_injection import FaultInjection, InjectingTool, RunInjection
from agentrun.testing.suite.stubs_and_faults import RunPath

from ...engine.recorded_runs import BEGAN, reply_with_calls
from ...packages import package
from ...replays import replay_package
from ...scripted_service import completion
from .injected_runs import (
    HOOK_PART,
    HTTP,
    SINK_PART,
    Doubles,
    case,
    fault,
    record_and_replay,
    record_case,
    replay,
    shop,
    with_reader,
)

DONE_REPLY = completion("Done.")
LOOK = reply_with_calls(("look", {"at": 1}))
REFUND = reply_with_calls(("refund", {"amount": 5}))
STOCK = reply_with_calls(("stock", {}))
ORDER = reply_with_calls(("order", {}))


LATE = "tool.timeout: the call took longer than 1000 ms and was stopped"
REFUSED_RESULT = "tool.execution: no reply came from shop.example: the connection was refused"


# --- tools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "inject", "text"),
    [
        ("look", {"error": "no such order"}, "tool.execution: no such order"),
        ("look", {"timeout": True}, LATE),
        ("refund", {"timeout": True}, LATE),
        ("stock", {"error": "no"}, "tool.execution: no"),
        ("stock", {"status": 503}, "tool.execution: status 503"),
        ("stock", {"refused": True}, REFUSED_RESULT),
        ("stock", {"timeout": True}, LATE),
        ("order", {"status": 500}, "tool.execution: status 500"),
        ("order", {"refused": True}, REFUSED_RESULT),
    ],
    ids=str,
)
def test_injected_tool_fault_is_sent_to_the_model(tmp_path: Path, tool: str, inject: dict[str, Any], text: str) -> None:
    doubles = Doubles()
    run = record_and_replay(
        tmp_path,
        shop(),
        case(fault(f"tool:{tool}", **inject)),
        reply_with_calls((tool, {})),
        DONE_REPLY,
        doubles=doubles,
    )
    assert (run.ending, run.results, run.laid.untriggered_faults()) == (
        "completed",
        [(text.partition(":")[0], text)],
        (),
    )
    assert doubles.look.count + doubles.refund.count + len(doubles.endpoint.calls) == 0, "it was never run"


@pytest.mark.parametrize("tool", ["look", "stock"])
def test_live_timeout_is_immediate_and_has_the_same_message(tool: str) -> None:
    """Whoever records does not wait, and the model reads what it reads in a replay."""
    injection = FaultInjection(case(fault(f"tool:{tool}", timeout=True)))
    clock = SystemClock()
    layer, began = RunInjection(injection, RunPath("", ()), clock, "r"), clock.now()
    call = RunTool("c1.0", tool, shop().tools[tool], {}, "key", 100, 1000)
    returned = asyncio.run(InjectingTool(layer, stub("never")).run(call))
    assert returned.fault is not None
    assert f"{returned.fault.code}: {returned.fault.message}" == LATE
    assert clock.now() >= began + 1000, "its budget of time has it all the same"


def test_injected_fatal_fault_ends_the_run(tmp_path: Path) -> None:
    run = record_and_replay(tmp_path, shop(), case(fault("tool:look", fatal="the shop is closed")), LOOK)
    assert (run.ending, run.run.outcome.fields["tool"]) == ("tool.fatal", "look")


def test_timeout_of_an_at_most_once_call_suspends_the_run(tmp_path: Path) -> None:
    cassette, _ = record_case(tmp_path, shop(), case(), ORDER, DONE_REPLY)
    run = replay(shop(), case(fault("tool:order", timeout=True)), cassette)
    assert (run.ending, run.run.ending.waits_for) == ("suspended", ("c1.0",))


def test_injected_timeout_advances_the_clock(tmp_path: Path) -> None:
    run = record_and_replay(tmp_path, shop(), case(fault("tool:look", timeout=True)), LOOK, DONE_REPLY)
    assert run.time == 1000


def test_fault_is_injected_only_at_its_call(tmp_path: Path) -> None:
    replies = [reply_with_calls(("look", {"at": n})) for n in (1, 2, 3)]
    for at, results in {
        "tool:look#2": ["ok", "tool.execution", "ok"],
        "tool:look": ["tool.execution"] * 3,
        "tool:l*k#3": ["ok", "ok", "tool.execution"],
        "tool:*#1": ["tool.execution", "ok", "ok"],
    }.items():
        run = record_and_replay(tmp_path, shop(), case(fault(at, error="no")), *replies, DONE_REPLY)
        assert [code for code, _ in run.results] == results


def test_pattern_counts_all_matching_calls(tmp_path: Path) -> None:
    run = record_and_replay(tmp_path, shop(), case(fault("tool:*#2", error="no")), LOOK, STOCK, DONE_REPLY)
    assert [code for code, _ in run.results] == ["ok", "tool.execution"]


@pytest.mark.parametrize("at", ["model#3", "tool:look#2", "tool:refund", "approval:look", "c1.0/model", "hook:careful"])
def test_fault_that_was_not_injected_is_reported(tmp_path: Path, at: str) -> None:
    cassette, _ = record_case(tmp_path, shop(), case(), LOOK, DONE_REPLY)
    inject: dict[str, Any] = {"answer": "denied"} if at.startswith("approval") else {"timeout": True}
    run = replay(shop(), case(fault(at, **inject)), cassette)
    assert (run.ending, run.laid.untriggered_faults()) == ("completed", (at,))


@pytest.mark.parametrize("reply", [LOOK, STOCK], ids=["python", "http"])
@pytest.mark.parametrize("laid", ["fault", "stub"])
def test_recorded_interaction_of_a_replaced_call_counts_as_played(tmp_path: Path, reply: Any, laid: str) -> None:
    """It is given no second time, and not left over: the reply that follows is the next in line."""
    cassette, _ = record_case(tmp_path, shop(), case(), reply, DONE_REPLY)
    faulty = case(fault("tool:*", error="no")) if laid == "fault" else case(stubs={"*": StubSpec(error="no")})
    run = replay(shop(), faulty, cassette, LenientPlayer)
    assert (run.ending, run.results) == ("completed", [("tool.execution", "tool.execution: no")])
    assert run.run.unused_error is None


# --- stubs --------------------------------------------------------------------------------------------------------


def test_a_stubbed_tool_is_never_run_and_never_recorded(tmp_path: Path) -> None:
    doubles = Doubles()
    laid = case(stubs={"look": StubSpec(result="late"), "stock": StubSpec(result={"b": 1, "a": [None, "ä"]})})
    run = record_and_replay(tmp_path, shop(), laid, LOOK, STOCK, REFUND, DONE_REPLY, doubles=doubles)
    assert run.results == [("ok", "late"), ("ok", '{"a":[null,"ä"],"b":1}'), ("ok", "paid")]
    assert (doubles.look.count, doubles.endpoint.calls, doubles.refund.count) == (0, [], 1)
    assert [each.call.url for each in run.player.cassette.interactions if each.call.method == "CALL"] == [
        "approval://refund",
        "tool://refund",
    ]


@pytest.mark.parametrize(("value", "text"), [("", ""), (None, "null"), (0, "0"), ([], "[]"), ("null", "null")])
def test_stub_result_is_text_or_json(tmp_path: Path, value: Any, text: str) -> None:
    run = record_and_replay(tmp_path, shop(), case(stubs={"look": StubSpec(result=value)}), LOOK, DONE_REPLY)
    assert run.results == [("ok", text)]


def test_list_of_stubs_is_used_in_order_and_the_last_repeats(tmp_path: Path) -> None:
    replies = [reply_with_calls(("look", {"at": n})) for n in (1, 2, 3, 4)]
    laid = case(stubs={"look": [StubSpec(result="one"), StubSpec(error="two"), StubSpec(result="three")]})
    run = record_and_replay(tmp_path, shop(), laid, *replies, DONE_REPLY)
    assert [text for _, text in run.results] == ["one", "tool.execution: two", "three", "three"]
    again = replay(shop(), laid, run.player.cassette)
    assert again.results == run.results, "each case begins with the first"


def test_list_of_stubs_continues_over_a_conversation(tmp_path: Path) -> None:
    laid = case(stubs={"look": [StubSpec(result="one"), StubSpec(result="two")]})
    cassette, _ = record_case(tmp_path, shop(), laid, LOOK, DONE_REPLY)
    over = FaultInjection(laid)
    runs = [replay_package(shop(), LenientPlayer(cassette), wrappers=over.wrappers) for _ in range(2)]
    assert [replayed_texts(run.journal) for run in runs] == [["one"], ["two"]]


def test_an_exact_name_wins_over_a_pattern(tmp_path: Path) -> None:
    laid = case(stubs={"*": StubSpec(result="any"), "look": StubSpec(result="exact")})
    run = record_and_replay(tmp_path, shop(), laid, LOOK, STOCK, DONE_REPLY)
    assert [text for _, text in run.results] == ["exact", "any"]


def test_a_fault_wins_over_a_stub_and_leaves_it_for_the_next_call(tmp_path: Path) -> None:
    laid = case(fault("tool:look#1", error="no"), stubs={"look": [StubSpec(result="one"), StubSpec(result="two")]})
    run = record_and_replay(tmp_path, shop(), laid, LOOK, reply_with_calls(("look", {"at": 2})), DONE_REPLY)
    assert [text for _, text in run.results] == ["tool.execution: no", "one"]


def test_long_stub_result_is_clipped(tmp_path: Path) -> None:
    agent = shop(limits={"output_bytes": 200})
    run = record_and_replay(tmp_path, agent, case(stubs={"look": StubSpec(result="x" * 201)}), LOOK, DONE_REPLY)
    kept = record_and_replay(tmp_path, agent, case(stubs={"look": StubSpec(result="x" * 200)}), LOOK, DONE_REPLY)
    assert kept.results == [("ok", "x" * 200)]
    assert len(run.results[0][1]) < 201 + 60
    assert run.results[0][1] != "x" * 201


def test_long_recorded_result_is_unchanged_by_another_fault(tmp_path: Path) -> None:
    """The model reads a part of it, and the whole is kept."""
    doubles = Doubles()
    doubles.look = stub("x" * 300)
    agent = shop(limits={"output_bytes": 200})
    run = record_and_replay(tmp_path, agent, case(fault("model#2", status=429)), LOOK, DONE_REPLY, doubles=doubles)
    (fact,) = (each.fact for each in run.run.journal if isinstance(each.fact, ToolFinished))
    assert fact.blob == data_hash(b"x" * 300)


# --- people, hooks and sinks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "by", "waits"),
    [
        ("denied", "case c", 0),
        ("cancelled", "case c", 0),
        ("unavailable", "nobody", 0),
        ("timed_out", "clock", 120_000),
    ],
)
def test_injected_approval_answers(tmp_path: Path, answer: str, by: str, waits: int) -> None:
    doubles = Doubles()
    run = record_and_replay(
        tmp_path, shop(), case(fault("approval:refund", answer=answer)), REFUND, DONE_REPLY, doubles=doubles
    )
    facts = [each.fact for each in run.run.journal if isinstance(each.fact, ApprovalAnswered)]
    assert [(fact.answer, fact.by) for fact in facts] == [(answer, by)]
    assert (doubles.person.questions, doubles.refund.count) == ([], 0)
    assert waits <= run.time < waits + 10


def test_injected_approval_overrides_a_denial(tmp_path: Path) -> None:
    laid = case(fault("approval:refund", answer="approved"), approvals={"refund": "denied"})
    assert record_and_replay(tmp_path, shop(), laid, REFUND, DONE_REPLY).results == [("ok", "paid")]


@pytest.mark.parametrize(
    ("inject", "reason", "time"), [({"error": "no"}, "exception", 0), ({"timeout": True}, "timeout", 1000)], ids=str
)
def test_injected_hook_fault_denies_the_call(tmp_path: Path, inject: dict[str, Any], reason: str, time: int) -> None:
    doubles = Doubles()
    run = record_and_replay(
        tmp_path, shop(**HOOK_PART), case(fault("hook:careful", **inject)), LOOK, DONE_REPLY, doubles=doubles
    )
    facts = [each.fact for each in run.run.journal if isinstance(each.fact, HookAnswered)]
    assert [(fact.closes, fact.answer.fault.fields["reason"]) for fact in facts] == [(True, reason)]  # type: ignore[union-attr]  # it failed
    assert (doubles.asked, doubles.look.count) == ([], 0)
    assert time <= run.time < time + 10


@pytest.mark.parametrize(
    ("inject", "reason", "time"), [({"error": "full"}, "exception", 0), ({"timeout": True}, "timeout", 1000)], ids=str
)
def test_injected_sink_fault_fails_the_delivery(tmp_path: Path, inject: dict[str, Any], reason: str, time: int) -> None:
    doubles = Doubles()
    run = record_and_replay(tmp_path, shop(**SINK_PART), case(fault("sink:log", **inject)), DONE_REPLY, doubles=doubles)
    facts = [each.fact for each in run.run.journal if isinstance(each.fact, DeliveryFinished)]
    assert [fact.fault.fields["reason"] for fact in facts if fact.fault] == [reason]
    assert (doubles.delivered, run.ending) == ([], "completed")
    assert time <= run.time < time + 10


def test_recorded_approvals_and_deliveries_count_as_played(tmp_path: Path) -> None:
    agent = shop(**HOOK_PART, **SINK_PART)
    cassette, _ = record_case(tmp_path, agent, case(), REFUND, DONE_REPLY)
    faults = fault("approval:refund", answer="approved"), fault("sink:log", error="no")
    run = replay(agent, case(*faults), cassette)
    assert (run.ending, run.run.unused_error) == ("completed", None)
    denied = replay(
        agent, case(fault("hook:careful", error="no"), fault("sink:*", error="no")), cassette, LenientPlayer
    )
    left = [cassette.interactions[number - 1].call.url for number in denied.player.unused()]
    assert left == ["approval://refund", "tool://refund"], "after a no of the hook nobody came to them"


# --- sub-agents ---------------------------------------------------------------------------------------------------

READ_CALL = reply_with_calls(("read", {"message": "What is it?"}))
INNER = reply_with_calls(("look", {"at": 9}))


@pytest.mark.parametrize(
    ("at", "struck"),
    [
        ("tool:look", "own"),
        ("tool:read/look", "inner"),
        ("tool:*/look", "inner"),
        ("c1.0/tool:look", "inner"),
        ("c2.0/tool:look", None),
    ],
)
def test_fault_names_a_tool_of_a_sub_agent_by_its_path(tmp_path: Path, at: str, struck: str | None) -> None:
    agent = with_reader()
    replies = READ_CALL, INNER, completion("Inner."), LOOK, DONE_REPLY
    cassette, _ = record_case(tmp_path, agent, case(), *replies)
    run = replay(agent, case(fault(at, error="no")), cassette, LenientPlayer)
    inner = next(iter(run.run.children.values()))
    codes = {"own": faults_of(run.run.journal), "inner": faults_of(inner)}
    assert codes == {name: ["tool.execution"] if name == struck else [] for name in ("own", "inner")}
    assert run.laid.untriggered_faults() == (() if struck else (at,))


def test_model_calls_of_a_sub_agent_are_counted_separately(tmp_path: Path) -> None:
    agent = with_reader()
    laid = case(fault("c1.0/model#2", status=429), fault("model#2", status=500))
    run = record_and_replay(tmp_path, agent, laid, READ_CALL, INNER, completion("Inner."), DONE_REPLY)
    assert (run.failed, run.laid.untriggered_faults()) == (["provider.transient"], ())
    assert [place.at for place in run.laid.faults.places] == [
        "model#1",
        "c1.0/model#1",
        "c1.0/tool:look#1",
        "c1.0/model#2",
        "model#2",
    ]


def faults_of(records: Sequence[Record]) -> list[str]:
    facts = [each.fact for each in records if isinstance(each.fact, ToolFinished)]
    return [fact.fault.code for fact in facts if fact.fault is not None]


def replayed_texts(records: Sequence[Record]) -> list[str]:
    return [text_of(each.fact.parts) for each in records if isinstance(each.fact, ToolFinished)]


def test_stub_names_a_tool_of_a_sub_agent_with_a_slash(tmp_path: Path) -> None:
    doubles = Doubles()
    laid = case(stubs={"read/look": StubSpec(result="inner"), "look": StubSpec(result="own")})
    run = record_and_replay(
        tmp_path, with_reader(), laid, READ_CALL, INNER, completion("Inner."), LOOK, DONE_REPLY, doubles=doubles
    )
    inner = replayed_texts(next(iter(run.run.children.values())))
    assert (replayed_texts(run.run.journal), inner, doubles.look.count) == (["Inner.", "own"], ["inner"], 0)


# --- the clock ----------------------------------------------------------------------------------------------------


def test_clock_starts_at_the_time_of_the_case(tmp_path: Path) -> None:
    cassette, _ = record_case(tmp_path, shop(), case(), 40, LOOK, 60, DONE_REPLY)
    usual = replay(shop(), case(), cassette)
    other = replay(shop(), Case(name="c", clock=ClockSetting(start="2026-03-01T09:30:00.250Z")), cassette)
    assert [usual.run.journal[0].at, other.run.journal[0].at] == [BEGAN, 1_772_357_400_250]
    assert [usual.time, other.time] == [100, 100], "it goes on as it did"


@pytest.mark.parametrize(("step", "ending"), [("400ms", "completed"), ("401ms", "budget.time")])
def test_clock_step_counts_for_the_time_budget(tmp_path: Path, step: str, ending: str) -> None:
    """Five exchanges, and two seconds to make them in."""
    agent = package(tools={"stock": HTTP}, policy={"default": "allow"}, budgets={"time": 2000})
    cassette, _ = record_case(tmp_path, agent, case(), STOCK, STOCK_AGAIN, DONE_REPLY)
    assert len(cassette.interactions) == 5
    run = replay(agent, Case(name="c", clock=ClockSetting(step=step)), cassette)
    assert run.ending == ending


STOCK_AGAIN = reply_with_calls(("stock", {"id": 2}))
