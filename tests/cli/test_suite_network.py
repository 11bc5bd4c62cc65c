"""Python assertions have no network in replays and in CI, and `network: true` assertions are reported as live."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest

from agentrun.wire import HttpReply

from ..servers import Server
from .desk_project import TURNS
from .suite_project import CASES, CASSETTE, Suite

JUDGE = """\
import urllib.request

def fetches(run):
    with urllib.request.urlopen("URL") as answer:
        return answer.read() == b"good"
"""


@pytest.fixture
def judge_server() -> Iterator[Server]:
    """A judge that is of another opinion each time."""
    good, bad = HttpReply(200, (), b"good"), HttpReply(200, (), b"bad")
    with Server(good, bad, good, bad) as server:
        yield server


@pytest.fixture
def suite_with_judge(suite: Suite, judge_server: Server) -> Suite:
    (suite.root / "python" / f"judge_{judge_server.port}.py").write_text(
        JUDGE.replace("URL", judge_server.url), encoding="utf-8"
    )
    return suite


def python_assertion(judge_server: Server, *more: str) -> str:
    return ", ".join(["{type: python", f'value: "judge_{judge_server.port}:fetches"', *more]) + "}"


def case_with_assertion(judge_server: Server, *more: str) -> str:
    return f"  - {{name: default, assert: [{python_assertion(judge_server, *more)}]}}\n"


@pytest.mark.parametrize("environment", [{}, {"CI": "true"}])
def test_assertion_without_network_fails_the_same_way_every_time(
    suite_with_judge: Suite, judge_server: Server, environment: dict[str, str]
) -> None:
    suite_with_judge.write(case_with_assertion(judge_server))
    suite_with_judge.setenv(**environment)
    runs = [suite_with_judge.test() for _ in range(3)]
    assert [run.code for run in runs] == [1, 1, 1]
    assert len({run.out for run in runs}) == 1
    assert (
        f"python: judge_{judge_server.port}:fetches tried to reach 127.0.0.1:{judge_server.port}, "
        "but assertions have no network in a replay and in CI\n"
        "    → add `network: true` to the assertion; the report then lists it as live\n"
    ) in runs[0].out
    assert judge_server.requests == []


@pytest.mark.parametrize("environment", [{}, {"CI": "true"}])
def test_network_true_allows_network_and_every_report_lists_it(
    suite_with_judge: Suite, judge_server: Server, environment: dict[str, str]
) -> None:
    suite_with_judge.write(case_with_assertion(judge_server, "network: true"), "  - {name: other, cassette: default}\n")
    suite_with_judge.setenv(**environment)
    function = f"judge_{judge_server.port}:fetches"
    ran = suite_with_judge.test("--quiet", "--junit", "report.xml")
    assert (ran.code, len(judge_server.requests)) == (0, 1), ran.out
    assert f"Live assertions (network: true), not replayed:\n  {function}  ({CASES}::default)\n\n2 passed\n" in ran.out
    report = ET.parse(suite_with_judge.root / "report.xml")  # noqa: S314  # we wrote it
    cases = {each.get("name"): each for each in report.iter("testcase")}
    said = {name: each.findtext("system-out") or "" for name, each in cases.items()}
    assert f"live assertion (network: true): {function}" in said["default"].splitlines()
    assert "live" not in said["other"]

    ran = suite_with_judge.test("--json")
    assert (ran.code, len(judge_server.requests)) == (1, 2), "the judge changed its mind"
    found = {line["case"]["id"]: line["case"]["live"] for line in ran.lines() if "case" in line}
    assert found == {f"{CASES}::default": [function], f"{CASES}::other": []}
    assert ran.summary()["live"] == [{"function": function, "cases": [f"{CASES}::default"]}]


def test_github_summary_lists_live_assertions(suite_with_judge: Suite, judge_server: Server) -> None:
    suite_with_judge.write(case_with_assertion(judge_server, "network: true"))
    suite_with_judge.setenv(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(suite_with_judge.root / "summary.md"))
    assert suite_with_judge.test().code == 0
    assert "Live assertions (network: true), not replayed:" in (suite_with_judge.root / "summary.md").read_text(
        encoding="utf-8"
    )


def test_assertions_of_turns_follow_the_same_network_rule(suite_with_judge: Suite, judge_server: Server) -> None:
    turns = "turns: [{input: Please refund 20 of order 1042., assert: [ASSERTION]}]"
    suite_with_judge.write(
        f"  - {{name: talk, cassette: default, {turns.replace('ASSERTION', python_assertion(judge_server))}}}\n"
    )
    assert f"turn 1: judge_{judge_server.port}:fetches tried to reach" in suite_with_judge.test().out
    open_turns = turns.replace("ASSERTION", python_assertion(judge_server, "network: true"))
    suite_with_judge.write(f"  - {{name: talk, cassette: default, {open_turns}}}\n")
    assert f"judge_{judge_server.port}:fetches  ({CASES}::talk)" in suite_with_judge.test().out
    assert len(judge_server.requests) == 1


def test_new_recording_is_evaluated_without_network(suite_with_judge: Suite, judge_server: Server) -> None:
    suite_with_judge.write(
        f"  - {{name: default, approvals: {{refund: approved}}, assert: [{python_assertion(judge_server)}]}}\n"
    )
    (suite_with_judge.root / CASSETTE).unlink()
    with suite_with_judge.provider(TURNS):
        assert "tried to reach" in suite_with_judge.test("--record", "all", "--yes").out
    assert judge_server.requests == []


@pytest.mark.parametrize(("environment", "requests"), [({}, 1), ({"CI": "true"}, 0)])
def test_live_tools_allow_network_unless_ci_is_set(
    suite_with_judge: Suite, judge_server: Server, environment: dict[str, str], requests: int
) -> None:
    suite_with_judge.write(case_with_assertion(judge_server))
    suite_with_judge.setenv(**environment)
    ran = suite_with_judge.test("--live-tools", "--approve", "all")
    assert ("tried to reach" in ran.out, len(judge_server.requests)) == (not requests, requests), ran.out
