"""Python assertions and the network, through `agentrun test`: closed in replays, and said where it is open."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest

from agentrun.wire import HttpReply

from ..servers import Server
from .desk import TURNS
from .suites import CASES, TAPE, Suite

JUDGE = """\
import urllib.request

def fetches(run):
    with urllib.request.urlopen("URL") as answer:
        return answer.read() == b"good"
"""


@pytest.fixture
def judge() -> Iterator[Server]:
    """A judge that is of another opinion each time."""
    good, bad = HttpReply(200, (), b"good"), HttpReply(200, (), b"bad")
    with Server(good, bad, good, bad) as server:
        yield server


@pytest.fixture
def judged(suite: Suite, judge: Server) -> Suite:
    (suite.root / "python" / f"judge_{judge.port}.py").write_text(JUDGE.replace("URL", judge.url), encoding="utf-8")
    return suite


def claim(judge: Server, *more: str) -> str:
    return ", ".join(["{type: python", f'value: "judge_{judge.port}:fetches"', *more]) + "}"


def case(judge: Server, *more: str) -> str:
    return f"  - {{name: default, assert: [{claim(judge, *more)}]}}\n"


@pytest.mark.parametrize("environment", [{}, {"CI": "true"}])
def test_one_cassette_gives_one_verdict(judged: Suite, judge: Server, environment: dict[str, str]) -> None:
    judged.write(case(judge))
    judged.setenv(**environment)
    runs = [judged.test() for _ in range(3)]
    assert [run.code for run in runs] == [1, 1, 1]
    assert len({run.out for run in runs}) == 1
    assert (
        f"python: judge_{judge.port}:fetches tried to reach 127.0.0.1:{judge.port}, "
        "but assertions have no network in a replay and in CI\n"
        "    → add `network: true` to the assertion; the report then lists it as live\n"
    ) in runs[0].out
    assert judge.requests == []


@pytest.mark.parametrize("environment", [{}, {"CI": "true"}])
def test_network_true_opens_it_and_every_report_says_so(
    judged: Suite, judge: Server, environment: dict[str, str]
) -> None:
    judged.write(case(judge, "network: true"), "  - {name: other, cassette: default}\n")
    judged.setenv(**environment)
    function = f"judge_{judge.port}:fetches"
    ran = judged.test("--quiet", "--junit", "report.xml")
    assert (ran.code, len(judge.requests)) == (0, 1), ran.out
    assert f"Live assertions (network: true), not replayed:\n  {function}  ({CASES}::default)\n\n2 passed\n" in ran.out
    report = ET.parse(judged.root / "report.xml")  # noqa: S314  # we wrote it
    cases = {each.get("name"): each for each in report.iter("testcase")}
    said = {name: each.findtext("system-out") or "" for name, each in cases.items()}
    assert f"live assertion (network: true): {function}" in said["default"].splitlines()
    assert "live" not in said["other"]

    ran = judged.test("--json")
    assert (ran.code, len(judge.requests)) == (1, 2), "the judge changed its mind"
    found = {line["case"]["id"]: line["case"]["live"] for line in ran.lines() if "case" in line}
    assert found == {f"{CASES}::default": [function], f"{CASES}::other": []}
    assert ran.summary()["live"] == [{"function": function, "cases": [f"{CASES}::default"]}]


def test_the_summary_on_github_says_so_too(judged: Suite, judge: Server) -> None:
    judged.write(case(judge, "network: true"))
    judged.setenv(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(judged.root / "summary.md"))
    assert judged.test().code == 0
    assert "Live assertions (network: true), not replayed:" in (judged.root / "summary.md").read_text(encoding="utf-8")


def test_claims_of_turns(judged: Suite, judge: Server) -> None:
    turns = "turns: [{input: Please refund 20 of order 1042., assert: [CLAIM]}]"
    judged.write(f"  - {{name: talk, cassette: default, {turns.replace('CLAIM', claim(judge))}}}\n")
    assert f"turn 1: judge_{judge.port}:fetches tried to reach" in judged.test().out
    judged.write(f"  - {{name: talk, cassette: default, {turns.replace('CLAIM', claim(judge, 'network: true'))}}}\n")
    assert f"judge_{judge.port}:fetches  ({CASES}::talk)" in judged.test().out
    assert len(judge.requests) == 1


def test_a_new_recording_is_judged_by_its_replay(judged: Suite, judge: Server) -> None:
    judged.write(f"  - {{name: default, approvals: {{refund: approved}}, assert: [{claim(judge)}]}}\n")
    (judged.root / TAPE).unlink()
    with judged.provider(TURNS):
        assert "tried to reach" in judged.test("--record", "all", "--yes").out
    assert judge.requests == []


@pytest.mark.parametrize(("environment", "requests"), [({}, 1), ({"CI": "true"}, 0)])
def test_with_live_tools_it_is_open_unless_ci_is_set(
    judged: Suite, judge: Server, environment: dict[str, str], requests: int
) -> None:
    judged.write(case(judge))
    judged.setenv(**environment)
    ran = judged.test("--live-tools", "--approve", "all")
    assert ("tried to reach" in ran.out, len(judge.requests)) == (not requests, requests), ran.out
