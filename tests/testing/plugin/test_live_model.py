"""--agentrun-live-model: model requests are live, everything else is replayed."""

from __future__ import annotations

import pytest

from agentrun.engine.worlds import live
from agentrun.testing.provider import ScriptedProvider

from .projects import STORY, Project

IMPORTED = live


def test_live_model_answers_and_no_tool_runs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.cases("name: default, assert: [{type: contains, value: late}]")
    with ScriptedProvider(STORY.replace("is late", "is gone")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-abcdefghij0123456789ABCDEFGHIJ")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        result = project.run("--agentrun-live-model")
    result.assert_outcomes(failed=1)
    assert "Order 1042 is gone." in result.stdout.str()
    assert project.traces() == []


def test_live_tools_and_live_model_cannot_be_combined(project: Project) -> None:
    project.cases("name: default")
    result = project.run("--agentrun-live-tools", "--agentrun-live-model")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--agentrun-live-tools and --agentrun-live-model cannot be combined" in result.stderr.str()
