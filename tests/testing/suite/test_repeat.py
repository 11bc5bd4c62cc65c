"""Repeated evaluation of a case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from agentrun.core.fault import Fault
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent, CompiledAgents, replay_case
from agentrun.testing.suite.runner import evaluate_repeatedly
from agentrun.testing.suite.snapshots import accepted_snapshots

from ..plugin.projects import ORDERS, SPEC, recording


@pytest.fixture
def located_case(tmp_path: Path) -> LocatedCase:
    files = {
        "pyproject.toml": "[tool.agentrun]\n",
        "desk.yaml": SPEC,
        "orders.py": ORDERS,
        "desk.cases.yaml": 'agentrun: "1"\ncases: [{name: default}]\n',
        "cassettes/desk/default.yaml": recording(),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_located_cases(tmp_path / "desk.cases.yaml")[0]


def replay_that_changes_at(
    at: int, change: Callable[[CaseRuns], CaseRuns]
) -> tuple[Callable[[LocatedCase, CompiledAgent], CaseRuns], list[int]]:
    """Replays, and changes what comes of one time."""
    times: list[int] = []

    def carry_out(located_case: LocatedCase, prepared: CompiledAgent) -> CaseRuns:
        times.append(len(times) + 1)
        played = replay_case(located_case, prepared)
        return change(played) if len(times) == at else played

    return carry_out, times


def shorter(played: CaseRuns) -> CaseRuns:
    """The same end, but a journal that lacks a record."""
    run = played.runs[0]
    return CaseRuns((replace(run, journal=(*run.journal[:-2], run.journal[-1])),))


def without_answer(played: CaseRuns) -> CaseRuns:
    """The same journal, but another end."""
    run = played.runs[0]
    assert run.ending.is_finished
    return CaseRuns((replace(run, ending=replace(run.ending, fault=Fault("budget.turns", "no more"))),))


@pytest.mark.parametrize("times", [1, 2, 5])
def test_stable_case_passes_every_time(located_case: LocatedCase, times: int) -> None:
    carry_out, ran = replay_that_changes_at(0, shorter)
    verdict = evaluate_repeatedly(times, located_case, CompiledAgents(), accepted_snapshots, carry_out)
    assert (verdict.status, len(ran)) == ("passed", times)


@pytest.mark.parametrize(("at", "status"), [(3, "failed"), (4, "passed")])
def test_different_journal_fails_the_case(located_case: LocatedCase, at: int, status: str) -> None:
    """Although the verdict is the same: the first time that differs ends it."""
    carry_out, ran = replay_that_changes_at(at, shorter)
    verdict = evaluate_repeatedly(3, located_case, CompiledAgents(), accepted_snapshots, carry_out)
    assert (verdict.status, len(ran)) == (status, 3)
    if status == "failed":
        assert [wrong.assertion for wrong in verdict.failures] == ["repeat"]
        assert "3" in verdict.failures[0].message
        assert "+++" in verdict.failures[0].detail


def test_different_verdict_fails_the_case(located_case: LocatedCase) -> None:
    carry_out, ran = replay_that_changes_at(2, without_answer)
    verdict = evaluate_repeatedly(5, located_case, CompiledAgents(), accepted_snapshots, carry_out)
    assert (verdict.status, len(ran)) == ("failed", 2)
    assert [wrong.assertion for wrong in verdict.failures] == ["repeat", "outcome"]
    assert "passed" in verdict.failures[0].detail


def test_same_failure_every_time_is_reported_once(located_case: LocatedCase) -> None:
    located_case.spec.with_name("cassettes").joinpath("desk/default.yaml").unlink()
    verdict = evaluate_repeatedly(3, located_case, CompiledAgents(), accepted_snapshots)
    assert verdict.status == "missed"
    assert [wrong.assertion for wrong in verdict.failures] == ["cassette.miss"]
