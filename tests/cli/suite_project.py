"""A project with recorded cases, and `agentrun test` called in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentrun.cli.group import run_command
from agentrun.testing.provider import ScriptedProvider

HEAD = 'agentrun: "1"\ncases:\n'
CASES = "specs/desk.cases.yaml"
CASSETTE = "cassettes/desk/default.yaml"
KEY = "sk-desk-1234567890abcdef"
DEFAULT_CASE = "  - {name: default}\n"
ANOTHER = "  - {name: another, cassette: default, tags: [net]}\n"
FAILS = "  - {name: fails, cassette: default, assert: [{type: contains, value: nowhere}]}\n"
MISSES = "  - {name: misses, input: Hello, cassette: default}\n"
SNAPSHOT_CASE = "  - {name: default, assert: [{type: journal-snapshot}]}\n"


class SuiteOutput:
    """What came of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def statuses(self) -> dict[str, str]:
        """With --json: the names of cases, each with its verdict."""
        found = [line["case"] for line in self.lines() if "case" in line]
        return {case["id"].rpartition("::")[2]: case["status"] for case in found}

    def summary(self) -> dict[str, Any]:
        whole: dict[str, Any] = self.lines()[-1]["summary"]
        return whole


class Suite:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.snapshots = root / "specs" / "__snapshots__" / "desk"
        for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "OPENAI_API_KEY", "AGENTRUN_TRACEBACK"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(root)

    def write(self, *cases: str, head: str = HEAD) -> None:
        (self.root / CASES).write_text(head + "".join(cases), encoding="utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text
        (self.root / name).write_text(text.replace(old, new), encoding="utf-8")

    def setenv(self, **values: str) -> None:
        for name, value in values.items():
            self._monkeypatch.setenv(name, value)

    def test(self, *args: str) -> SuiteOutput:
        """The command, as in a process of its own."""
        self._capsys.readouterr()
        code = run_command(["test", *args])
        out, err = self._capsys.readouterr()
        return SuiteOutput(code, out, err)

    def accepted(self, name: str = "default") -> str:
        return (self.snapshots / f"{name}.journal").read_text(encoding="utf-8")

    @contextmanager
    def provider(self, turns: str) -> Iterator[ScriptedProvider]:
        """A provider that plays a script, and the environment in which it is asked."""
        with ScriptedProvider(turns) as server:
            self.setenv(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=f"{server.url}/v1")
            yield server
