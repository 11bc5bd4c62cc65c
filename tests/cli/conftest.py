"""Fixtures shared by the tests of commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .desk_project import record
from .suite_project import Suite


@pytest.fixture(scope="session")
def recorded_desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    record(folder)
    return folder


@pytest.fixture
def desk(recorded_desk: Path, tmp_path: Path) -> Path:
    """A project with one recording, to do anything with."""
    shutil.copytree(recorded_desk, tmp_path / "desk")
    return tmp_path / "desk"


@pytest.fixture
def suite(desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Suite:
    """The same, and `agentrun test` in it, in this process."""
    return Suite(desk, monkeypatch, capsys)
