"""Journals, snapshots and cassettes for tests of `agentrun diff`, and the command in this process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from agentrun.cassette.conversion import converted_text
from agentrun.cli.diff import command
from agentrun.testing.suite.discovery import read_located_cases
from agentrun.testing.suite.replay import CompiledAgents, replay_case
from agentrun.testing.suite.snapshots import take_snapshot

from .command import ROOT

CASSETTES = ROOT / "cassettes"


class CommandOutput:
    """What the command said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def data(self) -> Any:
        (line,) = self.out.splitlines()
        return json.loads(line)


def diff(*args: str | Path) -> CommandOutput:
    done = CliRunner().invoke(command, [str(each) for each in args], obj={}, standalone_mode=False)
    if isinstance(done.exception, click.UsageError):
        return CommandOutput(done.exception.exit_code, done.stdout, done.exception.format_message())
    if done.exception is not None:
        raise done.exception
    return CommandOutput(done.return_value, done.stdout, done.stderr)


def snapshots(folder: Path, **cases: tuple[str, ...]) -> Path:
    """The journals of shipped cases, one file each: <spec>/<case>.journal."""
    preparations = CompiledAgents()
    for spec, names in cases.items():
        (folder / spec).mkdir(parents=True)
        for found in read_located_cases(ROOT / "specs" / f"{spec}.cases.yaml"):
            if found.case.name in names:
                text = take_snapshot(replay_case(found, preparations.for_case(found)).runs).text
                (folder / spec / f"{found.case.name}.journal").write_text(text, encoding="utf-8")
    return folder


def edited_copy(path: Path, old: str, new: str, name: str = "b") -> Path:
    """A copy of a file with one thing changed. A cassette is expanded first."""
    copy = path.with_name(f"{name}{path.suffix}")
    text = path.read_text(encoding="utf-8")
    text = converted_text(text, packed=False) if "\ninteractions:" in text else text
    assert old in text
    copy.write_text(text.replace(old, new), encoding="utf-8")
    return copy


@pytest.fixture(scope="session")
def made_snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("snapshots") / "a"
    return snapshots(folder, support=("default", "approval", "denial"), researcher=("default",))


@pytest.fixture
def accepted_snapshots(made_snapshots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Snapshots in the folder `a` of the working directory."""
    shutil.copytree(made_snapshots, tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    return Path("a")
