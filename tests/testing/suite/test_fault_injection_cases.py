"""Cases with injected faults, from the case file to the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from agentrun.cassette.file import load_cassette
from agentrun.cassette.player import LenientPlayer
from agentrun.core.facts import ModelFailed
from agentrun.spec.v1.assertions import StepStatus, ToolCalled
from agentrun.spec.v1.cases import Case, FaultInjectionSpec, InjectedFaultSpec
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.evaluation import evaluate_case, find_miss
from agentrun.testing.suite.fault_injection import FaultInjection
from agentrun.testing.suite.replay import CompiledAgents, make_case_player, replay_case
from agentrun.testing.suite.snapshots import accepted_snapshots
from agentrun.testing.suite.verdict import CaseVerdict

from .injected_runs import fault

ROOT = Path(__file__).parents[3]
PREPARED = CompiledAgents()


def shipped(spec: str, *faults: FaultInjectionSpec, **more: object) -> LocatedCase:
    """The default case of an example agent, with something laid over its recording."""
    found = read_located_cases(ROOT / "specs" / f"{spec}.cases.yaml")[0]
    return replace(found, case=Case(name="default", faults=list(faults), **more))  # type: ignore[arg-type]  # as in a file


def verdict_of(found: LocatedCase) -> CaseVerdict:
    return evaluate_case(found, PREPARED, accepted_snapshots)


def test_case_with_retries_and_a_cut_reply_passes() -> None:
    plain = verdict_of(shipped("support"))
    verdict = verdict_of(
        shipped("support", fault("model#2", status=429, times=2), fault("model#3", cut_after_chunk=7, times=1))
    )
    assert (plain.status, verdict.status, verdict.failures) == ("passed", "passed", ())
    assert verdict.spent["turns"] == plain.spent["turns"]
    assert verdict.spent["time"] > plain.spent["time"] + 2000
    assert verdict.seconds < 2, "none of it in real time"


@pytest.mark.parametrize("at", ["model#9", "tool:refund#2", "approval:refund"])
def test_fault_that_was_not_injected_fails_the_case(at: str) -> None:
    inject = InjectedFaultSpec(answer="denied") if at.startswith("approval") else InjectedFaultSpec(timeout=True)
    verdict = verdict_of(shipped("support", FaultInjectionSpec(at=at, inject=inject)))
    assert verdict.status == "failed"
    assert [each.message for each in verdict.failures] == [
        f"the fault at {at} was not injected: the run made no such call"
    ]
    assert "turn 1" in verdict.steps


def test_miss_does_not_report_faults_that_were_not_injected() -> None:
    verdict = verdict_of(shipped("support", fault("model#9", status=500), input="Another question."))
    assert verdict.status == "missed"
    assert [each.assertion for each in verdict.failures] == ["cassette.miss"]


ALL_AT_ONCE = (
    fault("model#2", status=429, times=2),
    fault("model#3", cut_after_chunk=7),
    fault("tool:refund", timeout=True),
)


def test_case_with_a_fault_seen_by_the_model_has_tier_faulted() -> None:
    """The recorded replies go on in their order, and that is said: the model was never asked about this."""
    verdict = verdict_of(shipped("support", *ALL_AT_ONCE, assertions=[StepStatus(tool="refund", value="tool.timeout")]))
    assert (verdict.status, verdict.tier, verdict.failures) == ("passed", "faulted", ())
    assert verdict.spent["time"] > 30_000
    assert verdict_of(shipped("support", *ALL_AT_ONCE[:2])).tier == "exact", "of those the model never hears"


def test_difference_before_the_fault_is_a_miss() -> None:
    assert verdict_of(shipped("support", *ALL_AT_ONCE, params={"region": "us"})).status == "missed"


def test_exact_tier_misses_after_a_fault_seen_by_the_model() -> None:
    found = shipped("support", *ALL_AT_ONCE)
    prepared = PREPARED.for_case(found)
    strict = replay_case(found, prepared, make_case_player(found, prepared, require="exact"))
    assert (find_miss(strict) is not None, strict.has_diverged) == (True, False)


def test_interactions_skipped_because_of_a_fault_are_not_unused() -> None:
    """A person is late, so nothing is refunded: the recorded refund is not asked for."""
    found = next(
        each for each in read_located_cases(ROOT / "specs" / "support.cases.yaml") if each.case.name == "approval"
    )
    late = FaultInjectionSpec(at="approval:refund", inject=InjectedFaultSpec(answer="timed_out"))
    case = replace(found.case, faults=[late], assertions=[ToolCalled(value="refund", status="ok", negated=True)])
    verdict = verdict_of(replace(found, case=case))
    assert (verdict.status, verdict.tier) == ("passed", "faulted")


def test_cassette_recorded_with_the_fault_matches_exactly() -> None:
    found = next(each for each in read_located_cases(ROOT / "specs" / "support.cases.yaml") if each.case.name == "lost")
    assert verdict_of(found).tier == "exact"


def test_case_without_faults_has_no_wrappers() -> None:
    assert FaultInjection(Case(name="c")).wrappers == ()


def test_fault_places_are_counted_over_a_conversation() -> None:
    found = shipped("local", fault("model#2", status=429), turns=["Why is the sky blue?", "And the sea?"])
    prepared = PREPARED.for_case(found)
    cassette = load_cassette(prepared.cassette_path(found))
    twice = replace(cassette, interactions=cassette.interactions * 2)
    player = LenientPlayer(twice)
    laid = FaultInjection(found.case, player)
    played = replay_case(found, prepared, player, laid)
    failed = [sum(isinstance(each.fact, ModelFailed) for each in run.journal) for run in played.runs]
    assert (failed, played.untriggered_faults) == ([0, 1], ())
    assert [place.at for place in laid.faults.places] == ["model#1", "model#2"]
