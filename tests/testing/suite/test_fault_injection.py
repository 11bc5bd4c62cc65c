"""Stubs, clocks, and faults at tools, people, hooks and sinks."""

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
from agentrun.core.messages import words
from agentrun.engine.system_clock import SystemClock
from agentrun.spec.v1.cases import Case, ClockSetting, StubSpec
from agentrun.testing import stub
from agentrun.testing.suite.fault_injection import FaultInjection, InjectingTool, RunInjection
from agentrun.testing.suite.stubs_and_faults import RunPath

from ...engine.tapes import BEGAN, asks
from ...packages import package
from ...replays import replay_package
from ...worlds import completion
from .injected_runs import HOOKED, HTTP, SUNK, Doubles, both, case, fault, replayed, shop, taped, with_reader

DONE = completion("Done.")
LOOK = asks(("look", {"at": 1}))
REFUND = asks(("refund", {"amount": 5}))
STOCK = asks(("stock", {}))
ORDER = asks(("order", {}))


LATE = "tool.timeout: the call took longer than 1000 ms and was stopped"
REFUSED = "tool.execution: no reply came from shop.example: the connection was refused"


# --- tools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "inject", "text"),
    [
        ("look", {"error": "no such order"}, "tool.execution: no such order"),
        ("look", {"timeout": True}, LATE),
        ("refund", {"timeout": True}, LATE),
        ("stock", {"error": "no"}, "tool.execution: no"),
        ("stock", {"status": 503}, "tool.execution: status 503"),
        ("stock", {"refused": True}, REFUSED),
        ("stock", {"timeout": True}, LATE),
        ("order", {"status": 500}, "tool.execution: status 500"),
        ("order", {"refused": True}, REFUSED),
    ],
    ids=str,
)
def test_what_goes_wrong_with_a_tool_is_read_by_the_model(
    tmp_path: Path, tool: str, inject: dict[str, Any], text: str
) -> None:
    doubles = Doubles()
    run = both(tmp_path, shop(), case(fault(f"tool:{tool}", **inject)), asks((tool, {})), DONE, doubles=doubles)
    assert (run.ending, run.results, run.laid.untriggered_faults()) == (
        "completed",
        [(text.partition(":")[0], text)],
        (),
    )
    assert doubles.look.count + doubles.refund.count + len(doubles.endpoint.calls) == 0, "it was never run"


@pytest.mark.parametrize("tool", ["look", "stock"])
def test_in_real_time_a_call_is_late_at_once_and_in_the_same_words(tool: str) -> None:
    """Whoever records does not wait, and the model reads what it reads in a replay."""
    injection = FaultInjection(case(fault(f"tool:{tool}", timeout=True)))
    clock = SystemClock()
    layer, began = RunInjection(injection, RunPath("", ()), clock, "r"), clock.now()
    call = RunTool("c1.0", tool, shop().tools[tool], {}, "key", 100, 1000)
    returned = asyncio.run(InjectingTool(layer, stub("never")).run(call))
    assert returned.fault is not None
    assert f"{returned.fault.code}: {returned.fault.message}" == LATE
    assert clock.now() >= began + 1000, "its budget of time has it all the same"


def test_a_tool_that_asks_for_the_end_gets_it(tmp_path: Path) -> None:
    run = both(tmp_path, shop(), case(fault("tool:look", fatal="the shop is closed")), LOOK)
    assert (run.ending, run.run.outcome.fields["tool"]) == ("tool.fatal", "look")


def test_a_request_that_must_not_be_repeated_and_has_no_answer_leaves_nobody_knowing(tmp_path: Path) -> None:
    tape, _ = taped(tmp_path, shop(), case(), ORDER, DONE)
    run = replayed(shop(), case(fault("tool:order", timeout=True)), tape)
    assert (run.ending, run.run.ending.waits_for) == ("suspended", ("c1.0",))  # type: ignore[union-attr]  # it waits


def test_a_timeout_passes_on_the_clock(tmp_path: Path) -> None:
    run = both(tmp_path, shop(), case(fault("tool:look", timeout=True)), LOOK, DONE)
    assert run.time == 1000


def test_only_the_call_that_is_meant(tmp_path: Path) -> None:
    replies = [asks(("look", {"at": n})) for n in (1, 2, 3)]
    for at, results in {
        "tool:look#2": ["ok", "tool.execution", "ok"],
        "tool:look": ["tool.execution"] * 3,
        "tool:l*k#3": ["ok", "ok", "tool.execution"],
        "tool:*#1": ["tool.execution", "ok", "ok"],
    }.items():
        run = both(tmp_path, shop(), case(fault(at, error="no")), *replies, DONE)
        assert [code for code, _ in run.results] == results


def test_a_pattern_counts_all_that_it_means(tmp_path: Path) -> None:
    run = both(tmp_path, shop(), case(fault("tool:*#2", error="no")), LOOK, STOCK, DONE)
    assert [code for code, _ in run.results] == ["ok", "tool.execution"]


@pytest.mark.parametrize("at", ["model#3", "tool:look#2", "tool:refund", "approval:look", "c1.0/model", "hook:careful"])
def test_a_fault_that_never_happens_is_known(tmp_path: Path, at: str) -> None:
    tape, _ = taped(tmp_path, shop(), case(), LOOK, DONE)
    inject: dict[str, Any] = {"answer": "denied"} if at.startswith("approval") else {"timeout": True}
    run = replayed(shop(), case(fault(at, **inject)), tape)
    assert (run.ending, run.laid.untriggered_faults()) == ("completed", (at,))


@pytest.mark.parametrize("reply", [LOOK, STOCK], ids=["python", "http"])
@pytest.mark.parametrize("laid", ["fault", "stub"])
def test_what_the_recording_has_of_a_call_counts_as_played(tmp_path: Path, reply: Any, laid: str) -> None:
    """It is given no second time, and not left over: the reply that follows is the next in line."""
    tape, _ = taped(tmp_path, shop(), case(), reply, DONE)
    faulty = case(fault("tool:*", error="no")) if laid == "fault" else case(stubs={"*": StubSpec(error="no")})
    run = replayed(shop(), faulty, tape, LenientPlayer)
    assert (run.ending, run.results) == ("completed", [("tool.execution", "tool.execution: no")])
    assert run.run.unused_error is None


# --- stubs --------------------------------------------------------------------------------------------------------


def test_a_stubbed_tool_is_never_run_and_never_recorded(tmp_path: Path) -> None:
    doubles = Doubles()
    laid = case(stubs={"look": StubSpec(result="late"), "stock": StubSpec(result={"b": 1, "a": [None, "ä"]})})
    run = both(tmp_path, shop(), laid, LOOK, STOCK, REFUND, DONE, doubles=doubles)
    assert run.results == [("ok", "late"), ("ok", '{"a":[null,"ä"],"b":1}'), ("ok", "paid")]
    assert (doubles.look.count, doubles.endpoint.calls, doubles.refund.count) == (0, [], 1)
    assert [each.call.url for each in run.player.cassette.interactions if each.call.method == "CALL"] == [
        "approval://refund",
        "tool://refund",
    ]


@pytest.mark.parametrize(("value", "text"), [("", ""), (None, "null"), (0, "0"), ([], "[]"), ("null", "null")])
def test_a_text_stays_as_it_is_and_all_else_is_json(tmp_path: Path, value: Any, text: str) -> None:
    run = both(tmp_path, shop(), case(stubs={"look": StubSpec(result=value)}), LOOK, DONE)
    assert run.results == [("ok", text)]


def test_a_list_is_gone_through_and_its_last_stays(tmp_path: Path) -> None:
    replies = [asks(("look", {"at": n})) for n in (1, 2, 3, 4)]
    laid = case(stubs={"look": [StubSpec(result="one"), StubSpec(error="two"), StubSpec(result="three")]})
    run = both(tmp_path, shop(), laid, *replies, DONE)
    assert [text for _, text in run.results] == ["one", "tool.execution: two", "three", "three"]
    again = replayed(shop(), laid, run.player.cassette)
    assert again.results == run.results, "each case begins with the first"


def test_in_a_conversation_a_list_goes_on(tmp_path: Path) -> None:
    laid = case(stubs={"look": [StubSpec(result="one"), StubSpec(result="two")]})
    tape, _ = taped(tmp_path, shop(), laid, LOOK, DONE)
    over = FaultInjection(laid)
    runs = [replay_package(shop(), LenientPlayer(tape), wrappers=over.wrappers) for _ in range(2)]
    assert [replayed_texts(run.journal) for run in runs] == [["one"], ["two"]]


def test_an_exact_name_wins_over_a_pattern(tmp_path: Path) -> None:
    laid = case(stubs={"*": StubSpec(result="any"), "look": StubSpec(result="exact")})
    run = both(tmp_path, shop(), laid, LOOK, STOCK, DONE)
    assert [text for _, text in run.results] == ["exact", "any"]


def test_a_fault_wins_over_a_stub_and_leaves_it_for_the_next_call(tmp_path: Path) -> None:
    laid = case(fault("tool:look#1", error="no"), stubs={"look": [StubSpec(result="one"), StubSpec(result="two")]})
    run = both(tmp_path, shop(), laid, LOOK, asks(("look", {"at": 2})), DONE)
    assert [text for _, text in run.results] == ["tool.execution: no", "one"]


def test_a_stub_is_shortened_as_any_result_is(tmp_path: Path) -> None:
    agent = shop(limits={"output_bytes": 200})
    run = both(tmp_path, agent, case(stubs={"look": StubSpec(result="x" * 201)}), LOOK, DONE)
    kept = both(tmp_path, agent, case(stubs={"look": StubSpec(result="x" * 200)}), LOOK, DONE)
    assert kept.results == [("ok", "x" * 200)]
    assert len(run.results[0][1]) < 201 + 60
    assert run.results[0][1] != "x" * 201


def test_a_long_result_of_the_tape_is_as_it_was_beside_a_fault(tmp_path: Path) -> None:
    """The model reads a part of it, and the whole is kept."""
    doubles = Doubles()
    doubles.look = stub("x" * 300)
    agent = shop(limits={"output_bytes": 200})
    run = both(tmp_path, agent, case(fault("model#2", status=429)), LOOK, DONE, doubles=doubles)
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
def test_answers_of_people(tmp_path: Path, answer: str, by: str, waits: int) -> None:
    doubles = Doubles()
    run = both(tmp_path, shop(), case(fault("approval:refund", answer=answer)), REFUND, DONE, doubles=doubles)
    facts = [each.fact for each in run.run.journal if isinstance(each.fact, ApprovalAnswered)]
    assert [(fact.answer, fact.by) for fact in facts] == [(answer, by)]
    assert (doubles.person.questions, doubles.refund.count) == ([], 0)
    assert waits <= run.time < waits + 10


def test_an_approval_can_be_laid_over_a_denial(tmp_path: Path) -> None:
    laid = case(fault("approval:refund", answer="approved"), approvals={"refund": "denied"})
    assert both(tmp_path, shop(), laid, REFUND, DONE).results == [("ok", "paid")]


@pytest.mark.parametrize(
    ("inject", "reason", "time"), [({"error": "no"}, "exception", 0), ({"timeout": True}, "timeout", 1000)], ids=str
)
def test_hooks(tmp_path: Path, inject: dict[str, Any], reason: str, time: int) -> None:
    doubles = Doubles()
    run = both(tmp_path, shop(**HOOKED), case(fault("hook:careful", **inject)), LOOK, DONE, doubles=doubles)
    facts = [each.fact for each in run.run.journal if isinstance(each.fact, HookAnswered)]
    assert [(fact.closes, fact.answer.fault.fields["reason"]) for fact in facts] == [(True, reason)]  # type: ignore[union-attr]  # it failed
    assert (doubles.asked, doubles.look.count) == ([], 0)
    assert time <= run.time < time + 10


@pytest.mark.parametrize(
    ("inject", "reason", "time"), [({"error": "full"}, "exception", 0), ({"timeout": True}, "timeout", 1000)], ids=str
)
def test_sinks(tmp_path: Path, inject: dict[str, Any], reason: str, time: int) -> None:
    doubles = Doubles()
    run = both(tmp_path, shop(**SUNK), case(fault("sink:log", **inject)), DONE, doubles=doubles)
    facts = [each.fact for each in run.run.journal if isinstance(each.fact, DeliveryFinished)]
    assert [fact.fault.fields["reason"] for fact in facts if fact.fault] == [reason]
    assert (doubles.delivered, run.ending) == ([], "completed")
    assert time <= run.time < time + 10


def test_what_is_recorded_of_them_counts_as_played(tmp_path: Path) -> None:
    agent = shop(**HOOKED, **SUNK)
    tape, _ = taped(tmp_path, agent, case(), REFUND, DONE)
    faults = fault("approval:refund", answer="approved"), fault("sink:log", error="no")
    run = replayed(agent, case(*faults), tape)
    assert (run.ending, run.run.unused_error) == ("completed", None)
    denied = replayed(agent, case(fault("hook:careful", error="no"), fault("sink:*", error="no")), tape, LenientPlayer)
    left = [tape.interactions[number - 1].call.url for number in denied.player.unused()]
    assert left == ["approval://refund", "tool://refund"], "after a no of the hook nobody came to them"


# --- sub-agents ---------------------------------------------------------------------------------------------------

READ = asks(("read", {"message": "What is it?"}))
INNER = asks(("look", {"at": 9}))


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
def test_the_tools_of_a_sub_agent_are_named_after_it(tmp_path: Path, at: str, struck: str | None) -> None:
    agent = with_reader()
    replies = READ, INNER, completion("Inner."), LOOK, DONE
    tape, _ = taped(tmp_path, agent, case(), *replies)
    run = replayed(agent, case(fault(at, error="no")), tape, LenientPlayer)
    inner = next(iter(run.run.children.values()))
    codes = {"own": faults_of(run.run.journal), "inner": faults_of(inner)}
    assert codes == {name: ["tool.execution"] if name == struck else [] for name in ("own", "inner")}
    assert run.laid.untriggered_faults() == (() if struck else (at,))


def test_the_model_of_a_sub_agent_is_counted_by_itself(tmp_path: Path) -> None:
    agent = with_reader()
    laid = case(fault("c1.0/model#2", status=429), fault("model#2", status=500))
    run = both(tmp_path, agent, laid, READ, INNER, completion("Inner."), DONE)
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
    return [words(each.fact.parts) for each in records if isinstance(each.fact, ToolFinished)]


def test_stubs_of_a_sub_agent_have_a_slash(tmp_path: Path) -> None:
    doubles = Doubles()
    laid = case(stubs={"read/look": StubSpec(result="inner"), "look": StubSpec(result="own")})
    run = both(tmp_path, with_reader(), laid, READ, INNER, completion("Inner."), LOOK, DONE, doubles=doubles)
    inner = replayed_texts(next(iter(run.run.children.values())))
    assert (replayed_texts(run.run.journal), inner, doubles.look.count) == (["Inner.", "own"], ["inner"], 0)


# --- the clock ----------------------------------------------------------------------------------------------------


def test_the_clock_starts_when_the_case_says(tmp_path: Path) -> None:
    tape, _ = taped(tmp_path, shop(), case(), 40, LOOK, 60, DONE)
    usual = replayed(shop(), case(), tape)
    other = replayed(shop(), Case(name="c", clock=ClockSetting(start="2026-03-01T09:30:00.250Z")), tape)
    assert [usual.run.journal[0].at, other.run.journal[0].at] == [BEGAN, 1_772_357_400_250]
    assert [usual.time, other.time] == [100, 100], "it goes on as it did"


@pytest.mark.parametrize(("step", "ending"), [("400ms", "completed"), ("401ms", "budget.time")])
def test_steps_of_the_clock_are_what_the_budget_sees(tmp_path: Path, step: str, ending: str) -> None:
    """Five exchanges, and two seconds to make them in."""
    agent = package(tools={"stock": HTTP}, policy={"default": "allow"}, budgets={"time": 2000})
    tape, _ = taped(tmp_path, agent, case(), STOCK, STOCK_AGAIN, DONE)
    assert len(tape.interactions) == 5
    run = replayed(agent, Case(name="c", clock=ClockSetting(step=step)), tape)
    assert run.ending == ending


STOCK_AGAIN = asks(("stock", {"id": 2}))
