"""The coverage report as text and JSON, thresholds, and merging of several processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.testing.doubles import approving, calls
from agentrun.testing.suite.coverage import Coverage, CoverageCollector, PartCoverage, SpecCoverage

from .coverage_runs import CoveredRuns
from .test_coverage import TOOLS

RUNS: tuple[tuple[Any, ...], ...] = (
    ("Done.",),
    (calls("look"), "Done."),
    (calls("pay", sum=1), "Done."),
    (calls("pay", sum=50), "Done."),
    (calls("what"), "Done."),
)


def test_text_report_lists_uncovered_parts_with_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    covered = CoveredRuns(tmp_path, TOOLS).run(calls("look"), "Done.")
    covered.run(calls("pay", sum=50), "Done.", approver=approving("denied"))
    lines = covered.covering.report().text().splitlines()
    assert lines[0] == "spec.yaml: 46.6 % (7 of 15)"
    assert lines[1] == "  spec.yaml:4  not covered: tool pay: the model called it, but it never ran"
    assert lines[2] == "  spec.yaml:9  not covered: rule little"
    assert "  spec.yaml:15  not covered: budget tokens" in lines
    assert lines[-3:] == [
        "total                  7 of 15      46.6 %",
        "provider faults        0 of 7     not counted",
        "default budgets        0 of 1     not counted",
    ]
    (apart,) = [line for line in lines if "not counted, not covered" in line]
    assert apart.endswith("provider.empty, provider.fatal, turns")
    assert "tools                  1 of 2       50.0 %" in lines


def test_json_report_has_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = CoveredRuns(tmp_path, TOOLS).run(calls("look"), "Done.").covering.report().as_json()
    assert json.loads(json.dumps(report)) == report
    assert report["kinds"]["tools"] == {"covered": 1, "total": 2, "percent": 50.0}
    (spec,) = report["specs"]
    assert (spec["spec"], spec["covered"], spec["total"]) == ("spec.yaml", report["covered"], report["total"])
    assert {"kind": "tool", "name": "pay", "place": "spec.yaml:4"} in spec["missing"]
    assert len(spec["missing"]) == spec["total"] - spec["covered"]


def _coverage(covered: int, total: int) -> Coverage:
    one = PartCoverage(kind="tool", name="t", file="f", line=1, profile=None, covered=True)
    parts = (*[one] * covered, *[replace(one, covered=False)] * (total - covered))
    return Coverage(specs=(SpecCoverage(spec="f", all_parts=parts),))


@pytest.mark.parametrize(
    ("covered", "total", "percent"), [(0, 0, 100.0), (0, 3, 0.0), (2, 3, 66.6), (3, 3, 100.0), (1999, 2000, 99.9)]
)
def test_percents_are_rounded_down(covered: int, total: int, percent: float) -> None:
    assert _coverage(covered, total).percent == percent


def test_threshold_is_reached_at_its_exact_value() -> None:
    assert _coverage(2, 4).reaches(50)
    assert not _coverage(2, 4).reaches(50.1)
    assert _coverage(2, 3).reaches(66.6)
    assert not _coverage(2, 3).reaches(66.7)
    assert _coverage(3, 3).reaches(100)
    assert not _coverage(1999, 2000).reaches(100)
    assert _coverage(0, 0).reaches(100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("halves")


@pytest.fixture(scope="module")
def coverage_of_each_run(folder: Path) -> tuple[dict[str, Any], ...]:
    """What each run alone gives."""
    return tuple(CoveredRuns(folder, TOOLS).run(*run, approver=approving("denied")).covering.to_dict() for run in RUNS)


@pytest.fixture(scope="module")
def coverage_of_all_runs(coverage_of_each_run: tuple[dict[str, Any], ...]) -> Coverage:
    """What all of them give in their order."""
    return _merge_parts(coverage_of_each_run)


def _merge_parts(parts: tuple[dict[str, Any], ...]) -> Coverage:
    covering = CoverageCollector()
    for part in parts:
        covering.merge(json.loads(json.dumps(part)))
    return covering.report()


@settings(max_examples=30)
@given(order=st.permutations(range(len(RUNS))), again=st.lists(st.integers(0, len(RUNS) - 1), max_size=3))
def test_merging_is_independent_of_order_and_repetition(
    coverage_of_each_run: tuple[dict[str, Any], ...], coverage_of_all_runs: Coverage, order: list[int], again: list[int]
) -> None:
    assert _merge_parts(tuple(coverage_of_each_run[index] for index in [*order, *again])) == coverage_of_all_runs


def test_merged_coverage_equals_that_of_one_process(
    folder: Path, coverage_of_each_run: tuple[dict[str, Any], ...], coverage_of_all_runs: Coverage
) -> None:
    covered = CoveredRuns(folder, TOOLS)
    for run in RUNS:
        covered.run(*run, approver=approving("denied"))
    assert covered.covering.report() == coverage_of_all_runs
    assert _merge_parts(coverage_of_each_run[:1]) != coverage_of_all_runs
