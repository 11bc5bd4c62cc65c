"""Whose store it is: a store that a repository brought is not continued."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from agentrun.errors import StorageError
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.store.owner import distrust, is_claimed, refuse_untrusted, trust_store

from ..journal.journals import run_started
from .stored_runs import append, finished_run

NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project")


def store_a_run(project: Project, run: str = "run-1") -> list[str]:
    said: list[str] = []
    with FileStore(project, notify=said.append) as store:
        append(store.open(run), run_started(run=run))
    return said


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def reason(project: Project) -> str | None:
    found = distrust(project)
    return None if found is None else found[0]


def test_first_run_makes_the_store_the_users_own_and_says_where_it_is(project: Project, state: Path) -> None:
    (said,) = store_a_run(project)
    assert "30 days (1,000 at most), sessions for 90 days" in said
    assert store_a_run(project, "run-2") == [], "said once"
    (own,) = state.iterdir()
    owner = project.root / ".agentrun/owner"
    assert owner.read_text(encoding="utf-8") == f"{own.name}\n"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (own, owner)} == {0o600}
    assert (stat.S_IMODE(state.stat().st_mode), reason(project)) == (0o700, None)
    refuse_untrusted(project)


def test_what_a_killed_process_left_in_a_new_store_does_not_matter(project: Project) -> None:
    (project.root / ".agentrun").mkdir(mode=0o700)
    (project.root / ".agentrun/.owner.0123456789abcdef.new").write_bytes(b"01")
    store_a_run(project)
    assert reason(project) is None


def test_project_without_a_store_has_nothing_to_distrust(project: Project) -> None:
    assert (distrust(project), is_claimed(project)) == (None, False)


def test_store_with_locks_only_is_claimed(project: Project) -> None:
    (project.root / ".agentrun/locks").mkdir(parents=True)
    (project.root / ".agentrun").chmod(0o755)
    store_a_run(project)
    assert reason(project) is None


@pytest.mark.parametrize("name", ["runs/run-9/journal.jsonl", "sessions/ada/runs", "index.sqlite", "owner"])
def test_store_with_anything_else_is_not_claimed(project: Project, name: str) -> None:
    path = project.root / ".agentrun" / name
    path.parent.mkdir(parents=True)
    path.write_text("0" * 32 + "\n", encoding="utf-8")
    (project.root / ".agentrun").chmod(0o700)
    store_a_run(project)
    assert reason(project) == "unknown"
    with pytest.raises(StorageError, match="was not made by you on this machine") as caught:
        refuse_untrusted(project)
    assert (caught.value.code, caught.value.exit_code) == ("storage.untrusted", 7)
    assert "agentrun store trust" in str(caught.value.hint)


@NEEDS_GIT
def test_store_that_git_tracks_is_not_trusted(project: Project, tmp_path: Path) -> None:
    """A forged store arrives with a clone. Trusting it needs more than a new mode."""
    store_a_run(project)
    git(project.root, "init", "-q")
    git(project.root, "add", "-f", ".agentrun")
    git(project.root, "commit", "-qm", "x")
    git(tmp_path, "clone", "-q", "project", "clone")
    clone = Project(tmp_path / "clone")
    assert (clone.root / ".agentrun/runs/run-1/journal.jsonl").is_file()
    assert reason(clone) == "tracked"
    with pytest.raises(StorageError, match="version control") as caught:
        trust_store(clone)
    assert caught.value.hint == "take it out of version control: git rm -r --cached .agentrun"
    git(clone.root, "rm", "-r", "-q", "--cached", ".agentrun")
    assert reason(clone) == "mode"
    trust_store(clone)
    assert reason(clone) is None


def test_copy_with_an_unknown_id_is_not_trusted(project: Project, state: Path) -> None:
    store_a_run(project)
    shutil.rmtree(state)
    assert reason(project) == "unknown"
    trust_store(project)
    assert reason(project) is None


@pytest.mark.parametrize("content", [b"", b"../../x\n", b"0" * 31 + b"\n", b"0" * 200, b"0" * 32])
def test_file_that_is_not_an_id_is_not_trusted(project: Project, state: Path, content: bytes) -> None:
    store_a_run(project)
    (state / ("0" * 32)).touch()
    (project.root / ".agentrun/owner").write_bytes(content)
    assert reason(project) == "unknown"
    (project.root / ".agentrun/owner").write_bytes(b"0" * 32 + b"\n")
    assert reason(project) is None, "the id is what counts"


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_store_that_others_can_enter_is_not_trusted(project: Project, mode: int) -> None:
    store_a_run(project)
    (project.root / ".agentrun").chmod(mode)
    assert reason(project) == "mode"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_store_of_another_user_is_not_trusted(project: Project) -> None:
    store_a_run(project)
    os.chown(project.root / ".agentrun", 12345, 12345)
    assert reason(project) == "user"
    with pytest.raises(StorageError, match="belongs to another user"):
        trust_store(project)


def test_trust_takes_the_rights_of_others_and_follows_no_link(project: Project, tmp_path: Path) -> None:
    store_a_run(project)
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    outside.chmod(0o644)
    directory = project.root / ".agentrun"
    (directory / "runs/link").symlink_to(outside)
    for path in (directory, directory / "runs", directory / "runs/run-1", directory / "runs/run-1/journal.jsonl"):
        path.chmod(0o777)
    trust_store(project)
    modes = {stat.S_IMODE(path.lstat().st_mode) & 0o077 for path in directory.rglob("*") if not path.is_symlink()}
    assert (modes, stat.S_IMODE(outside.stat().st_mode)) == ({0}, 0o644)


def test_store_without_a_state_directory_is_stored_but_not_trusted(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert len(store_a_run(project)) == 1
    assert reason(project) == "unknown"
    with pytest.raises(StorageError) as caught:
        trust_store(project)
    assert caught.value.hint == "set HOME or XDG_STATE_HOME"
    monkeypatch.setenv("HOME", str(project.root))
    trust_store(project)
    assert (project.root / ".local/state/agentrun/stores").is_dir()


def test_linked_store_is_refused(project: Project, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (project.root / ".agentrun").symlink_to(tmp_path / "elsewhere")
    with FileStore(project) as store, pytest.raises(StorageError, match="symbolic link"):
        finished_run(store, "run-1")
    assert list((tmp_path / "elsewhere").iterdir()) == []
