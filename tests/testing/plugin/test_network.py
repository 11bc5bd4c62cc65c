"""Python assertions and the network, run with pytest."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest

from agentrun.wire import HttpReply

from ...servers import Server
from .projects import Project

JUDGE = """\
import urllib.request

def fetches(run):
    with urllib.request.urlopen("URL") as answer:
        return answer.status == 200
"""


@pytest.fixture
def judge(project: Project) -> Iterator[Server]:
    with Server(HttpReply(200, (), b"good")) as server:
        project.write(f"specs/judge_{server.port}.py", JUDGE.replace("URL", server.url))
        yield server


def assertion_that_fetches(judge: Server, *more: str) -> str:
    return ", ".join([f'assert: [{{type: python, value: "judge_{judge.port}:fetches"', *more]) + "}]"


@pytest.mark.parametrize("ci", ["", "true"])
def test_assertion_without_network_true_fails(
    project: Project, judge: Server, monkeypatch: pytest.MonkeyPatch, ci: str
) -> None:
    monkeypatch.setenv("CI", ci)
    project.cases(f"name: default, {assertion_that_fetches(judge)}")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            f"python: judge_{judge.port}:fetches tried to reach 127.0.0.1:{judge.port}, but assertions have *",
            "  → add `network: true` to the assertion; the report then lists it as live",
        ]
    )
    result.stdout.no_fnmatch_line("*agentrun live assertions*")
    assert judge.requests == []


@pytest.mark.parametrize("ci", ["", "true"])
def test_report_lists_live_assertions(
    project: Project, judge: Server, monkeypatch: pytest.MonkeyPatch, ci: str
) -> None:
    monkeypatch.setenv("CI", ci)
    project.cases(f"name: default, {assertion_that_fetches(judge, 'network: true')}", "name: other")
    result = project.run("--junit-xml=report.xml")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "*- agentrun live assertions (network: true) -*",
            f"specs/desk.cases.yaml::default: judge_{judge.port}:fetches",
        ]
    )
    assert len(judge.requests) == 1
    properties = ET.parse(project.root / "report.xml").iter("property")  # noqa: S314  # pytest wrote it
    assert [each.attrib for each in properties] == [{"name": "agentrun_live", "value": f"judge_{judge.port}:fetches"}]
