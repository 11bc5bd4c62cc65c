"""Evidence from the journals of the example agents."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from agentrun.testing.suite.discovery import read_located_cases
from agentrun.testing.suite.evidence import Evidence, collect_evidence
from agentrun.testing.suite.replay import CompiledAgents, replay_case

SPECS = Path(__file__).parents[3] / "specs"
_prepared = CompiledAgents()


@cache
def evidence(case: str) -> Evidence:
    """`ops/denial`: a case of an example agent, replayed."""
    spec, _, name = case.partition("/")
    found = next(each for each in read_located_cases(SPECS / f"{spec}.cases.yaml") if each.case.name == name)
    return collect_evidence(replay_case(found, _prepared.for_case(found)))


@pytest.mark.parametrize(
    ("case", "calls"),
    [
        ("support/default", ["lookup_order ok", "track_parcel ok", "refund ok"]),
        ("support/denial", ["lookup_order ok", "refund tool.denied"]),
        ("ops/denial", ["service_state ok", "service_log ok", "restart_service tool.denied"]),
        ("ops/other", ["service_log ok", "restart_service tool.denied"]),
        (
            "researcher/default",
            ["library.search ok", "reader ok", "reader ok", "reader/library.read ok", "reader/library.read ok"],
        ),
    ],
)
def test_calls_and_their_statuses(case: str, calls: list[str]) -> None:
    assert [f"{call.tool} {call.status}" for call in evidence(case).calls] == calls


def test_the_result_is_what_the_model_reads() -> None:
    """A rule takes passwords out of what the log says."""
    log = next(call for call in evidence("ops/default").calls if call.tool == "service_log")
    assert "***" in log.result
    assert log.turn == 1
    assert log.args == {"lines": 5, "unit": "checkout"}


@pytest.mark.parametrize(
    ("case", "rulings"),
    [
        ("support/default", ["lookup_order allow", "track_parcel allow", "refund allow"]),
        ("triage/denial", ["output ask"]),
        ("ops/other", ["service_log allow", "service_log modify", "restart_service interrupt"]),
    ],
)
def test_rulings_of_a_run(case: str, rulings: list[str]) -> None:
    assert [f"{each.target} {each.ruling}" for each in evidence(case).rulings] == rulings


@pytest.mark.parametrize(
    ("case", "approvals"),
    [
        ("support/default", []),
        ("support/approval", ["refund approved"]),
        ("triage/denial", ["output denied"]),
        ("researcher/denial", ["library.add_note denied"]),
    ],
)
def test_approvals_of_a_run(case: str, approvals: list[str]) -> None:
    assert [f"{each.target} {each.answer}" for each in evidence(case).approvals] == approvals


def test_params_outcome_output_and_totals() -> None:
    seen = evidence("support/default")
    assert seen.params["order_id"] == "1042"
    assert seen.outcome == "completed"
    assert seen.output == seen.runs[0].outcome.answer
    assert (seen.tokens, seen.turns) == (seen.runs[0].outcome.tokens, 4)
    assert seen.time == seen.runs[0].journal[-1].at - seen.runs[0].journal[0].at
    assert evidence("ops/other").output is None
    assert evidence("ops/other").outcome == "policy.interrupted"


def test_rulings_of_a_sub_agent_have_its_path() -> None:
    rulings: Any = [(each.target, each.rules) for each in evidence("researcher/default").rulings]
    assert ("reader/library.read", ("read",)) in rulings
    assert UNSET not in rulings
