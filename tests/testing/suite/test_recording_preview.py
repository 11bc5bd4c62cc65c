"""The preview of a recording: tools that may run, approvals and estimated cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.compiler.compile import compile_or_raise
from agentrun.core.package import Package
from agentrun.engine.spending import Spending
from agentrun.spec.project import Project
from agentrun.spec.v1.cases import Case, StubSpec
from agentrun.testing.suite.discovery import read_located_cases
from agentrun.testing.suite.recording_preview import (
    ApprovalSources,
    PlannedCassette,
    RecordingPreview,
    plan_cassettes,
    preview_recording,
)

ROOT = Path(__file__).parents[3]
CASSETTES = ROOT / "cassettes"


def package(spec: str) -> Package:
    return compile_or_raise(ROOT / "specs" / f"{spec}.yaml")[1].agent


def preview_of(
    spec: str,
    *cases: Case,
    how: str = "all",
    answers: ApprovalSources = ApprovalSources(),  # noqa: B008  # frozen
) -> RecordingPreview:
    agent = package(spec)
    plans = [
        PlannedCassette(agent, case, CASSETTES / spec / f"{case.cassette_name}.yaml", Project(CASSETTES.parent))
        for case in cases
    ]
    return preview_recording(plans, how, answers)


def test_preview_lists_tools_of_sub_agents_and_mcp_servers() -> None:
    found = preview_of("researcher", Case(name="default"))
    assert found.tools == {
        "library.add_note": "at_most_once",
        "library.search": "read",
        "reader/library.read": "read",
    }
    assert found.reason() == "this recording may run tools without `effect: read` (library.add_note)"


def test_stubbed_tools_of_sub_agents_are_not_listed() -> None:
    case = Case(name="default", stubs={"reader/*": StubSpec(result="x"), "library.*": StubSpec(result="y")})
    found = preview_of("researcher", case)
    assert (found.tools, found.needs_consent) == ({}, False)


def test_a_read_only_sub_agent_needs_no_consent() -> None:
    assert not preview_of("reader", Case(name="default")).needs_consent


@pytest.mark.parametrize(
    ("names", "cost"),
    [
        (["new"], "unknown, because this is the first recording"),
        (["default"], "about 4 requests, 2.3k tokens, $0.001089, as in the last recording"),
        (
            ["default", "new"],
            "about 4 requests, 2.3k tokens, $0.001089, as in the last recording; unknown for 1 other case",
        ),
    ],
)
def test_estimated_cost(names: list[str], cost: str) -> None:
    assert preview_of("support", *(Case(name=name) for name in names)).lines()[-1] == f"estimated cost: {cost}"


@pytest.mark.parametrize(
    ("approvals", "answers", "line"),
    [
        ({}, ApprovalSources(), "no one (calls that need approval are denied)"),
        ({"refund": "approved"}, ApprovalSources(has_person=True), "case default, then you"),
        ({"refund": "unavailable"}, ApprovalSources(), "no one (calls that need approval are denied)"),
        ({"refund": "denied"}, ApprovalSources(option="--approve all"), "--approve all, then case default"),
    ],
)
def test_preview_names_the_source_of_approvals(approvals: dict[str, str], answers: ApprovalSources, line: str) -> None:
    case = Case(name="default", approvals=approvals)  # type: ignore[arg-type]  # one of the answers each
    assert f"approvals answered by: {line}" in preview_of("support", case, answers=answers).lines()


def test_preview_has_at_most_four_lines() -> None:
    """The question is the fifth."""
    for spec in ("support", "triage", "ops", "researcher", "reader"):
        cases = [found.case for found in read_located_cases(ROOT / "specs" / f"{spec}.cases.yaml")]
        assert len(preview_of(spec, *cases, how="new").lines()) <= 4


def test_each_cassette_is_recorded_by_one_case() -> None:
    cases = read_located_cases(ROOT / "specs" / "support.cases.yaml")
    plans = plan_cassettes(cases)
    assert len(plans) < len(cases)
    assert len({plan.cassette for plan in plans}) == len(plans)


def test_spending_text_counts_requests_without_a_price() -> None:
    assert str(Spending(2, 1200, 3100)) == "2 requests, 1.2k tokens, $0.0031"
    assert str(Spending(2, 1200, 3100) + Spending(1, 50, 0, 1)) == (
        "3 requests, 1.2k tokens, $0.0031 (no price is pinned for 1 of them)"
    )
