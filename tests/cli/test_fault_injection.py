"""Stubs and injected faults of a case, when the case is recorded and replayed by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from .command import agentrun
from .shop_project import STORY, Project

CASES = """\
agentrun: "1"
cases:
  - name: hard
    approvals: {refund: approved}
    stubs: {refund: {result: {paid: false}}}
    faults:
      - {at: model#1, inject: {timeout: true}}
      - {at: "tool:look", inject: {timeout: true}}
  - name: talk
    turns: [Hello, And now?]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose case `hard` was recorded for real."""
    project = Project(tmp_path_factory.mktemp("laid"))
    (project.root / "shop.cases.yaml").write_text(CASES, encoding="utf-8")
    project.edit(
        "shop.yaml", "effect: read", "effect: read, timeout: 2m"
    )  # nobody waits for it, nor a minute for the model
    with project.provider(STORY) as (server, environment):
        done = project.run("--case", "hard", "--mode", "record", "--yes", **environment)
        assert done.code == 0, done.err
        assert len(server.requests) == 4, "the first attempt was never sent, and the server itself failed once"
    return project


def test_stubbed_and_faulted_tools_are_not_run_or_recorded(project: Project) -> None:
    assert project.traces() == [], "no tool was run"
    cassette = (project.cassette.parent / "hard.yaml").read_text(encoding="utf-8")
    assert "tool://" not in cassette
    assert cassette.count("uri:") == 5, "four requests to the model, and an approval"


def test_replay_injects_the_same_faults_and_stubs(project: Project) -> None:
    done = project.run("--case", "hard")
    assert (done.code, done.out) == (0, "Done.\n")
    assert "provider.timeout" in done.err
    assert "tool.timeout" in done.err
    assert '{"paid":false}' in done.err


def test_audit_has_no_findings_for_a_case_with_faults(project: Project) -> None:
    done = agentrun("cassette", "audit", cwd=project.root)
    assert done.code == 0, done.out + done.err


def test_fault_that_was_not_injected_is_reported(project: Project, tmp_path: Path) -> None:
    again = Project(tmp_path)
    again.cassette.parent.mkdir(parents=True)
    (again.cassette.parent / "hard.yaml").write_bytes((project.cassette.parent / "hard.yaml").read_bytes())
    more = CASES.replace("  - name: talk", '      - {at: "model#9", inject: {status: 500}}\n  - name: talk')
    (again.root / "shop.cases.yaml").write_text(more, encoding="utf-8")
    done = again.run("--case", "hard")
    assert (done.code, "the fault at model#9 was not injected: the run made no such call" in done.err) == (0, True)


def test_conversation_case_suggests_agentrun_test(project: Project) -> None:
    done = project.run("--case", "talk")
    assert done.code == 2
    assert 'case "talk" is a conversation of 2 messages' in done.err
    assert "agentrun test shop.cases.yaml::talk" in done.err
