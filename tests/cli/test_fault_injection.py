"""Stubs and faults of a case, when it is recorded and replayed by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from .agent import agentrun
from .project import STORY, Project

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


def test_nothing_that_is_laid_over_is_run_or_recorded(project: Project) -> None:
    assert project.traces() == [], "no tool was run"
    tape = (project.cassette.parent / "hard.yaml").read_text(encoding="utf-8")
    assert "tool://" not in tape
    assert tape.count("uri:") == 5, "four requests to the model, and an approval"


def test_the_replay_goes_the_same_way(project: Project) -> None:
    done = project.run("--case", "hard")
    assert (done.code, done.out) == (0, "Done.\n")
    assert "provider.timeout" in done.err
    assert "tool.timeout" in done.err
    assert '{"paid":false}' in done.err


def test_an_audit_has_nothing_to_say_of_it(project: Project) -> None:
    done = agentrun("cassette", "audit", cwd=project.root)
    assert done.code == 0, done.out + done.err


def test_a_fault_that_never_happens_is_said(project: Project, tmp_path: Path) -> None:
    again = Project(tmp_path)
    again.cassette.parent.mkdir(parents=True)
    (again.cassette.parent / "hard.yaml").write_bytes((project.cassette.parent / "hard.yaml").read_bytes())
    more = CASES.replace("  - name: talk", '      - {at: "model#9", inject: {status: 500}}\n  - name: talk')
    (again.root / "shop.cases.yaml").write_text(more, encoding="utf-8")
    done = again.run("--case", "hard")
    assert (done.code, "the fault at model#9 was not injected: the run made no such call" in done.err) == (0, True)


def test_a_conversation_is_for_another_command(project: Project) -> None:
    done = project.run("--case", "talk")
    assert done.code == 2
    assert 'case "talk" is a conversation of 2 messages' in done.err
    assert "agentrun test shop.cases.yaml::talk" in done.err
