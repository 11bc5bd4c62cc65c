"""`agentrun diff` for cassettes: interactions are aligned by call and compared by meaning."""

import shutil
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from .command import agentrun
from .diff_inputs import CASSETTES, diff, edited_copy


@pytest.fixture
def cassette_path(tmp_path: Path) -> Path:
    shutil.copy(CASSETTES / "support" / "default.yaml", tmp_path / "a.yaml")
    return tmp_path / "a.yaml"


@pytest.mark.parametrize("pair", ["default approval", "approval denial", "default retry"])
def test_diff_of_shipped_cassettes(pair: str, snapshot: SnapshotAssertion) -> None:
    one, two = pair.split()
    told = diff(CASSETTES / "support" / f"{one}.yaml", CASSETTES / "support" / f"{two}.yaml")
    assert told.code == 1
    assert told.out == snapshot


def test_change_in_a_sub_agent_names_its_path(tmp_path: Path) -> None:
    shutil.copy(CASSETTES / "researcher" / "default.yaml", tmp_path / "a.yaml")
    told = diff(
        tmp_path / "a.yaml",
        edited_copy(tmp_path / "a.yaml", "Spring tides reach 4.6", "Spring tides reach 4.7"),
        "--json",
    )
    (change,) = told.data["changes"]
    assert (change["kind"], change["path"]) == ("result", "c2.0")
    assert change["text"].startswith("interaction 5 (in c2.0): the result of library.read changed: line 3: “…")


def test_environment_credential_is_not_shown(cassette_path: Path) -> None:
    cut = "x" * 62  # a value that is shown up to its middle is found by nobody
    other = edited_copy(
        cassette_path, '"event":"sent to the wrong region"', f'"event":"sent to {cut}correct-horse-battery"'
    )
    for form in ((), ("--json",)):
        done = agentrun(
            "diff", cassette_path, other, *form, cwd=cassette_path.parent, ANTHROPIC_API_KEY="correct-horse-battery"
        )
        assert done.code == 1
        assert "xxxx" in done.out
        assert "corre" not in done.out


def test_damaged_cassette_cannot_be_compared(cassette_path: Path) -> None:
    told = diff(cassette_path, edited_copy(cassette_path, "version: 1", "version: 2"))
    assert (told.code, told.out) == (2, "")
    assert "cassette.damaged" in told.err


def test_folders_of_cassettes_are_compared_by_file_name(tmp_path: Path) -> None:
    for folder, spec, names in (("a", "support", ("default", "retry")), ("b", "triage", ("default", "denial"))):
        (tmp_path / folder).mkdir()
        for name in names:
            shutil.copy(CASSETTES / spec / f"{name}.yaml", tmp_path / folder)
    told = diff(tmp_path / "a", tmp_path / "b", "--json")
    assert [(each["file"], each["changes"][0]["how"]) for each in told.data["files"]] == [
        ("default.yaml", "changed"),
        ("denial.yaml", "new"),
        ("retry.yaml", "gone"),
    ]
    assert diff(tmp_path / "a", tmp_path / "a").code == 0
