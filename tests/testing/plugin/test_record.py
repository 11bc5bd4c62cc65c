"""--agentrun-record: cases are run live, recorded, and judged by the replay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentrun.engine import recording
from agentrun.testing.provider import ScriptedProvider

from .projects import STORY, Project

IMPORTED = recording
KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"


@pytest.fixture
def provider(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedProvider]:
    with ScriptedProvider(STORY) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        yield server


def test_record_all_records_each_cassette_once(project: Project, provider: ScriptedProvider) -> None:
    project.cases("name: same, cassette: default", "name: default")  # it is run after the one that it plays
    project.cassette.unlink()
    project.run().assert_outcomes(failed=2)
    result = project.run("--agentrun-record", "all")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "*- agentrun recorded cassettes -*",
            "specs/desk.cases.yaml::default: recorded: cassettes/desk/default.yaml (*)*",
        ]
    )
    result.stdout.fnmatch_lines(["specs/desk.cases.yaml::same: not recorded: it reuses the cassette of case default"])
    assert project.traces() == ["look 1042"]
    assert KEY not in project.cassette.read_text(encoding="utf-8")
    project.run().assert_outcomes(passed=2)


def test_record_new_keeps_matching_interactions(project: Project, provider: ScriptedProvider) -> None:
    project.cases("name: default")
    result = project.run("--agentrun-record=new")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*recorded: cassettes/desk/default.yaml (3 interactions, 3 of them kept)*"])
    assert project.traces() == []


@pytest.mark.parametrize(("how", "kept", "traces"), [("from:2", 1, ["look 1042"]), ("from:3", 2, [])])
def test_record_from_keeps_the_earlier_interactions(
    project: Project, monkeypatch: pytest.MonkeyPatch, how: str, kept: int, traces: list[str]
) -> None:
    project.cases("name: default")
    with ScriptedProvider(STORY.replace("is late", "is gone")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        result = project.run(f"--agentrun-record={how}")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*(3 interactions, {kept} of them kept)*"])
    assert project.traces() == traces


def test_failed_recording_is_reported_and_keeps_the_cassette(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    before = project.cassette.read_bytes()
    project.cases("name: default, xfail: later")
    result = project.run("--agentrun-record=all")
    result.assert_outcomes(failed=1)
    assert "OPENAI_API_KEY" in result.stdout.str()
    assert "agentrun/testing" not in result.stdout.str()
    assert project.cassette.read_bytes() == before


@pytest.mark.parametrize("value", ["true", "1", "yes"])
def test_recording_is_refused_in_ci(project: Project, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CI", value)
    project.cases("name: default")
    result = project.run("--agentrun-record=all")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "CI is set" in result.stderr.str()
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("value", ["", "false", "0"])
def test_recording_is_allowed_if_ci_is_false(project: Project, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CI", value)
    project.cases("name: default, skip: closed")
    project.run("--agentrun-record=all").assert_outcomes(skipped=1)


@pytest.mark.parametrize("how", ["some", "from:0", "from:", "from:x", "from:-1", "from:²", "from:1_0", "1"])
def test_invalid_record_value_is_refused(project: Project, how: str) -> None:
    project.cases("name: default")
    result = project.run(f"--agentrun-record={how}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "new, all, or from:N" in result.stderr.str()


@pytest.mark.parametrize("other", ["--agentrun-live-tools", "--agentrun-live-model", "--agentrun-repeat=2"])
def test_record_cannot_be_combined_with_live_or_repeat(project: Project, other: str) -> None:
    project.cases("name: default")
    result = project.run("--agentrun-record=all", other)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "cannot be combined with" in result.stderr.str()


def test_record_cannot_be_combined_with_several_processes(project: Project) -> None:
    project.cases("name: default")
    result = project.run("--agentrun-record=all", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "cannot be combined with -n because cases may share a cassette" in result.stderr.str()


HARM = '  pay: {kind: python, call: "orders:look", effect: at_most_once}\npolicy:'


def test_recording_with_harmful_tools_needs_yes(project: Project, provider: ScriptedProvider) -> None:
    project.cases("name: default")
    project.edit("specs/desk.yaml", "policy:", HARM)
    project.edit("specs/desk.yaml", "allow: look", 'allow: "*"')
    before = project.cassette.read_bytes()
    result = project.run("--agentrun-record=all")
    assert result.ret == 2
    said = "this recording may run tools without `effect: read` (pay); add --agentrun-yes"
    assert said in result.stdout.str() + result.stderr.str()
    result.stdout.fnmatch_lines(["agentrun: tools that may run: look, pay", "agentrun: of these at_most_once: pay"])
    assert (len(provider.requests), project.traces(), project.cassette.read_bytes() == before) == (0, [], True)
    project.run("--agentrun-record=all", "--collect-only").assert_outcomes()
    project.run("--agentrun-record=all", "-k", "none").assert_outcomes(deselected=1)
    result = project.run("--agentrun-record=all", "--agentrun-yes")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*recorded: cassettes/desk/default.yaml (*), spent 2 requests, * tokens*"])
    assert len(provider.requests) == 2


def test_answers_in_a_cases_file_need_yes(project: Project, provider: ScriptedProvider) -> None:
    project.cases("name: default, approvals: {look: approved}")
    project.edit("specs/desk.yaml", "allow: look", "ask: look, reason: privacy")
    result = project.run("--agentrun-record=all")
    assert (result.ret, project.traces()) == (2, [])
    assert (
        "a file answers approvals of this recording (case default); add --agentrun-yes"
        in result.stdout.str() + result.stderr.str()
    )
    project.run("--agentrun-record=all", "--agentrun-yes").assert_outcomes(passed=1)
    assert project.traces() == ["look 1042"]


def test_case_file_does_not_approve_live_tools(project: Project) -> None:
    project.cases("name: default, approvals: {look: approved}")
    project.edit("specs/desk.yaml", "allow: look", "ask: look, reason: privacy")
    project.run("--agentrun-live-tools").assert_outcomes(failed=1)
    assert project.traces() == []


def test_yes_without_record_is_refused(project: Project) -> None:
    project.cases("name: default")
    assert project.run("--agentrun-yes").ret == pytest.ExitCode.USAGE_ERROR
