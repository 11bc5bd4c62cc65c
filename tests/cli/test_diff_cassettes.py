"""`agentrun diff` for recordings: interactions aligned by call, requests and replies by what they mean."""

import shutil
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from .agent import agentrun
from .sides import TAPES, diff, edited


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    shutil.copy(TAPES / "support" / "default.yaml", tmp_path / "a.yaml")
    return tmp_path / "a.yaml"


@pytest.mark.parametrize("pair", ["default approval", "approval denial", "default retry"])
def test_shipped_recordings(pair: str, snapshot: SnapshotAssertion) -> None:
    one, two = pair.split()
    told = diff(TAPES / "support" / f"{one}.yaml", TAPES / "support" / f"{two}.yaml")
    assert told.code == 1
    assert told.out == snapshot


def test_sub_agents(tmp_path: Path) -> None:
    shutil.copy(TAPES / "researcher" / "default.yaml", tmp_path / "a.yaml")
    told = diff(
        tmp_path / "a.yaml", edited(tmp_path / "a.yaml", "Spring tides reach 4.6", "Spring tides reach 4.7"), "--json"
    )
    (change,) = told.data["changes"]
    assert (change["kind"], change["path"]) == ("result", "c2.0")
    assert change["text"].startswith("interaction 5 (in c2.0): the result of library.read changed: line 3: “…")


def test_credentials_of_the_environment(tape: Path) -> None:
    cut = "x" * 62  # a value that is shown up to its middle is found by nobody
    other = edited(tape, '"event":"sent to the wrong region"', f'"event":"sent to {cut}correct-horse-battery"')
    for form in ((), ("--json",)):
        done = agentrun("diff", tape, other, *form, cwd=tape.parent, ANTHROPIC_API_KEY="correct-horse-battery")
        assert done.code == 1
        assert "xxxx" in done.out
        assert "corre" not in done.out


def test_a_damaged_recording_cannot_be_compared(tape: Path) -> None:
    told = diff(tape, edited(tape, "version: 1", "version: 2"))
    assert (told.code, told.out) == (2, "")
    assert "cassette.damaged" in told.err


def test_folders_of_recordings(tmp_path: Path) -> None:
    for folder, spec, names in (("a", "support", ("default", "retry")), ("b", "triage", ("default", "denial"))):
        (tmp_path / folder).mkdir()
        for name in names:
            shutil.copy(TAPES / spec / f"{name}.yaml", tmp_path / folder)
    told = diff(tmp_path / "a", tmp_path / "b", "--json")
    assert [(each["file"], each["changes"][0]["how"]) for each in told.data["files"]] == [
        ("default.yaml", "changed"),
        ("denial.yaml", "new"),
        ("retry.yaml", "gone"),
    ]
    assert diff(tmp_path / "a", tmp_path / "a").code == 0
