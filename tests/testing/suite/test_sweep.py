"""The sweep: every fault at every place of a case."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import convert
from msgspec.structs import replace

from agentrun.cassette.file import load_cassette
from agentrun.cassette.player import LenientPlayer
from agentrun.compiler.package_file import seal_package
from agentrun.core import evolve_gates, tool_calls
from agentrun.core.effects import RunTool
from agentrun.core.facts import ModelAsked, ModelFailed
from agentrun.engine import perform
from agentrun.engine.tool_runner import run_tool
from agentrun.engine.world import World
from agentrun.errors import CassetteError
from agentrun.spec.v1.cases import Case, FaultInjectionSpec, InjectedFaultSpec
from agentrun.testing.suite import invariants
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.replay import CompiledAgent, CompiledAgents, replay_case
from agentrun.testing.suite.runner import SuiteOptions, SuiteRunner
from agentrun.testing.suite.stubs_and_faults import FaultPlace, RunPath
from agentrun.testing.suite.sweep import fault_variants, fault_yaml, sweep, sweep_results
from agentrun.wire import HttpCall

from ...packages import package
from .injected_runs import HTTP

ROOT = Path(__file__).parents[3]


def shipped(spec: str, name: str) -> tuple[LocatedCase, CompiledAgent]:
    found = next(each for each in read_located_cases(ROOT / "specs" / f"{spec}.cases.yaml") if each.case.name == name)
    plain = replace(found, case=Case(name=name, params=found.case.params, approvals=found.case.approvals))
    found = replace(found, case=replace(plain.case, input=found.case.input))
    return found, CompiledAgents().for_case(found)


def faults_at(place: FaultPlace, **changes: Any) -> list[dict[str, Any]]:
    found = [
        fault_yaml(FaultInjectionSpec(at=place.at, inject=each)) for each in fault_variants(place, package(**changes))
    ]
    return [yaml.safe_load(each)[0]["inject"] for each in found]


TOP_RUN = RunPath("", ())


def test_faults_of_each_kind_of_place() -> None:
    assert faults_at(FaultPlace(TOP_RUN, "model", "", 1, 7)) == [
        {"status": 429},
        {"status": 429, "times": 4},
        {"status": 500},
        {"refused": True},
        {"timeout": True},
        {"cut_after_chunk": 0},
        {"cut_after_chunk": 3},
        {"cut_after_chunk": 7},
        {"empty": True},
    ]
    assert faults_at(FaultPlace(TOP_RUN, "model", "", 1), retry={"attempts": 1})[:2] == [
        {"status": 429},
        {"status": 500},
    ]
    said = "injected by the sweep"
    assert faults_at(FaultPlace(TOP_RUN, "tool", "look", 1)) == [{"timeout": True}, {"error": said}, {"fatal": said}]
    wire = [{"status": 500}, {"refused": True}]
    assert [
        each for each in faults_at(FaultPlace(TOP_RUN, "tool", "stock", 1), tools={"stock": HTTP}) if each in wire
    ] == wire
    answers = ["denied", "timed_out", "unavailable", "cancelled"]
    assert faults_at(FaultPlace(TOP_RUN, "approval", "refund", 1)) == [{"answer": answer} for answer in answers]
    for kind in ("hook", "sink"):
        assert faults_at(FaultPlace(TOP_RUN, kind, "x", 1)) == [{"error": said}, {"timeout": True}]


def test_shipped_case_violates_no_invariant_at_any_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a sweep asked for a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    found, prepared = shipped("ops", "approval")
    results = list(sweep_results(found, prepared))
    places = {result.fault.at for result in results}
    assert {"model#1", "model#3", "tool:restart_service#1", "approval:restart_service#1"} <= places
    assert [result.violations for result in results if result.violations] == []
    endings = {result.ending for result in results}
    assert {"completed", "provider.rate_limited", "tool.fatal"} <= endings
    assert len(results) == len({result.yaml for result in results}), "each is tried once"


def test_sub_agents_are_swept_too() -> None:
    report = sweep(*shipped("researcher", "default"))
    assert report.violations == ()
    assert report.tried == sum(report.endings.values())
    assert list(report.endings.values()) == sorted(report.endings.values(), reverse=True)


def test_sweep_is_deterministic() -> None:
    first, second = (list(sweep_results(*shipped("triage", "approval"))) for _ in range(2))
    assert first == second


def test_reported_fault_can_be_pasted_into_the_case() -> None:
    found, prepared = shipped("triage", "approval")
    for result in sweep_results(found, prepared):
        (item,) = yaml.safe_load(result.yaml)
        pasted = convert(item, FaultInjectionSpec)
        assert pasted == result.fault
        if result.ending in ("completed", "approval.denied", "approval.timed_out"):
            played = replay_case(replace(found, case=replace(found.case, faults=[pasted])), prepared)
            assert (played.untriggered_faults, played.start_error) == ((), None)


@pytest.mark.parametrize(
    "law", ["check_gates", "check_budgets", "check_at_most_once", "check_calls_ended", "check_audit"]
)
def test_a_violated_invariant_is_reported_with_its_fault(monkeypatch: pytest.MonkeyPatch, law: str) -> None:
    def broken(*_: Any) -> Iterator[str]:
        yield f"{law} is broken"

    laws = tuple(broken if each.__name__ == law else each for each in invariants.INVARIANTS)
    monkeypatch.setattr(invariants, "INVARIANTS", laws)
    report = sweep(*shipped("triage", "default"))
    assert len(report.violations) == report.tried > 0
    first = report.violations[0]
    assert first.violations == (f"{law} is broken",)
    assert first.yaml == '- {"at":"model#1","inject":{"status":429}}'
    assert "turn 1" in first.steps


def test_failure_has_the_fault_as_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any, records: Any) -> Iterator[str]:
        yield from ["it is broken"] if any(isinstance(each.fact, ModelFailed) for each in records) else []

    monkeypatch.setattr(invariants, "INVARIANTS", (broken,))
    found, _ = shipped("triage", "default")
    verdict = SuiteRunner(SuiteOptions(sweep=True)).run_case(found).verdict
    assert (verdict.status, verdict.failures[0].message) == ("failed", "it is broken, with an injected fault")
    _, _, pasted = (verdict.failures[0].hint or "").partition("to the case: ")
    assert yaml.safe_load(pasted) == {"faults": [{"at": "model#1", "inject": {"status": 429}}]}


def test_violation_without_a_fault_is_reported_despite_a_miss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A denied call that runs is not on the cassette: the planted bug itself keeps the case from fitting."""
    monkeypatch.setitem(evolve_gates.STATUS_AFTER_RULING, "interrupt", "ready")
    monkeypatch.setattr(tool_calls, "_fatal_denial", lambda *_: None)
    found, _ = shipped("ops", "other")
    verdict = SuiteRunner(SuiteOptions(sweep=True)).run_case(found).verdict
    assert verdict.status == "failed"
    told = [each.message for each in verdict.failures if each.assertion == "sweep"]
    assert any(
        "runs restart_service (c2.0), although the policy says interrupt, without a fault" in each for each in told
    )


def test_case_that_reuses_part_of_a_cassette_is_swept() -> None:
    found = next(
        each for each in read_located_cases(ROOT / "specs" / "support.cases.yaml") if each.case.name == "conversation"
    )
    part = replace(found.case, name="part", cassette="conversation", turns=["Where is my order?"], assertions=[])
    result = SuiteRunner(SuiteOptions(sweep=True)).run_case(replace(found, case=part))
    assert (result.verdict.status, result.verdict.failures) == ("passed", ())
    assert result.swept is not None
    assert result.swept.tried > 10


def test_xfail_case_that_misses_stays_xfailed() -> None:
    found, _ = shipped("triage", "default")
    known = replace(found, case=replace(found.case, input="Something else.", xfail="known"))
    assert SuiteRunner(SuiteOptions(sweep=True)).run_case(known).verdict.status == "xfailed"


def test_call_executed_twice_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def insistent(world: World, effect: RunTool) -> Any:
        done = await run_tool(world, effect)
        return await run_tool(world, effect) if getattr(done, "fault", None) else done

    monkeypatch.setattr(perform, "run_tool", insistent)
    found = {each for result in sweep_results(*shipped("ops", "approval")) for each in result.violations}
    assert "the call c2.0 reached its tool 2 times, but the journal has it 1 time" in found


def test_internal_error_in_a_run_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(world: World, effect: RunTool) -> Any:
        raise KeyError

    monkeypatch.setattr(perform, "run_tool", broken)
    first = next(sweep_results(*shipped("ops", "approval")))
    assert (first.ending, first.violations[0][:32]) == ("internal", "the run ended with internal: Key")


def test_case_that_misses_is_not_swept() -> None:
    found, prepared = shipped("triage", "default")
    with pytest.raises(CassetteError) as caught:
        list(sweep_results(replace(found, case=replace(found.case, name="none")), prepared))
    assert caught.value.code == "cassette.miss"
    with pytest.raises(CassetteError) as caught:
        list(sweep_results(replace(found, case=replace(found.case, input="Something else.")), prepared))
    assert caught.value.code == "cassette.miss"


def test_sweep_keeps_tight_budgets() -> None:
    """What an attempt may have taken counts: the next one is not sent when it would be too much."""
    found, prepared = shipped("triage", "default")
    first = next(
        each.fact for each in replay_case(found, prepared).runs[0].journal if isinstance(each.fact, ModelAsked)
    )
    tight = replace(prepared.file.agent.budgets, tokens=first.reserved + 1)
    file = seal_package(replace(prepared.file.agent, budgets=tight))
    report = sweep(found, CompiledAgent(prepared.spec, file))
    assert (report.violations, report.endings["budget.tokens"] > 1) == ((), True)


def test_faults_of_the_case_apply_during_a_sweep() -> None:
    """The one that is tried comes before them, also where they leave nothing to strike."""
    found, prepared = shipped("triage", "default")
    endings = []
    for own in (InjectedFaultSpec(status=500), InjectedFaultSpec(refused=True, times=4)):
        hard = replace(found, case=replace(found.case, faults=[FaultInjectionSpec(at="model#1", inject=own)]))
        report = sweep(hard, prepared)
        assert (report.violations, report.tried >= 8) == ((), True)
        endings.append(set(report.endings))
    once, always = {"completed", "provider.rate_limited"}, {"provider.transient", "provider.rate_limited"}
    assert endings == [once, always | {"completed"}], "a reply that is cut after its last piece is whole"


# --- a cassette that is played loosely --------------------------------------------------------------------------------


def test_lenient_player_gives_the_next_reply_only_to_models() -> None:
    cassette = load_cassette(ROOT / "cassettes" / "ops" / "default.yaml")
    models = [each for each in cassette.interactions if each.call.method != "CALL"]
    tools = [each for each in cassette.interactions if each.call.method == "CALL"]
    player = LenientPlayer(cassette)
    other = replace(models[0].call, body=b"{}")
    assert player.find(other, "c1.0") is None, "of another run"
    assert player.find(replace(other, url="https://elsewhere.example")) is None
    assert [player.play(other), player.play(other)] == models[:2]
    assert player.find(replace(tools[0].call, body=b'{"other": 1}')) is None, (
        "a tool is not run for what it was not asked"
    )
    assert player.find(tools[0].call) is not None
    with pytest.raises(CassetteError):
        player.play(HttpCall("CALL", "tool://other", (), b"{}"))


def test_lenient_player_prefers_an_exact_match() -> None:
    cassette = load_cassette(ROOT / "cassettes" / "ops" / "default.yaml")
    models = [each for each in cassette.interactions if each.call.method != "CALL"]
    player = LenientPlayer(cassette)
    assert player.play(models[1].call) == models[1]
    assert player.play(models[1].call) == models[0], "and then the one that is left"
