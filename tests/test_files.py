"""The module that writes project files atomically, follows no link and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agentrun.errors import StorageError
from agentrun.files import TEMPORARY_NAME, ProjectTree, user_directory_tree, write_user_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "outside").mkdir()
    return tmp_path / "project"


def tree_of(root: Path) -> ProjectTree:
    return ProjectTree(root, "cassette", "cassettes", "cassettes", "AGENTRUN_CASSETTES")


def refusal(write: Callable[[], Any]) -> StorageError:
    with pytest.raises(StorageError) as caught:
        write()
    assert (caught.value.code, caught.value.exit_code) == ("storage.failed", 7)
    return caught.value


def listing(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))


# --- links ---------------------------------------------------------------------------------------------------------


def test_directory_linked_to_outside_is_refused_and_names_the_variable(root: Path) -> None:
    (root / "cassettes").symlink_to(root.parent / "outside")
    error = refusal(lambda: tree_of(root).write(root / "cassettes/a/x.yaml", b"x"))
    outside = root.parent / "outside"
    assert f"cassettes is a symbolic link to {outside}" in error.message
    assert error.hint == f"to use that directory, set AGENTRUN_CASSETTES={outside}"
    assert listing(outside) == []


def test_a_linked_directory_inside_is_refused_with_the_setting(root: Path) -> None:
    (root / "shared/cassettes").mkdir(parents=True)
    (root / "cassettes").symlink_to("shared/cassettes")
    error = refusal(lambda: tree_of(root).write(root / "cassettes/a/x.yaml", b"x"))
    assert "cassettes is a symbolic link to shared/cassettes" in error.message
    assert error.hint == 'name it in pyproject.toml: [tool.agentrun] cassettes = "shared/cassettes"'
    assert listing(root / "shared") == ["cassettes"]


def test_link_above_the_directory_is_refused_and_names_the_variable(root: Path) -> None:
    (root / "data").symlink_to(root.parent / "outside")
    tree = ProjectTree(root, "cassette", "data/cassettes", "cassettes", "AGENTRUN_CASSETTES")
    error = refusal(lambda: tree.write(root / "data/cassettes/x.yaml", b"x"))
    assert error.hint == f"to use that directory, set AGENTRUN_CASSETTES={root.parent / 'outside' / 'cassettes'}"


def test_link_below_the_directory_is_refused_without_a_setting(root: Path) -> None:
    (root / "cassettes").mkdir()
    (root / "cassettes/a").symlink_to(root.parent / "outside")
    error = refusal(lambda: tree_of(root).write(root / "cassettes/a/x.yaml", b"x"))
    assert error.hint == "replace the link by a real file or directory"


@pytest.mark.parametrize("target", ["../outside/file", "../outside/none", "real.yaml", "loop.yaml"])
@pytest.mark.parametrize("method", ["write", "check", "open_file", "create"])
def test_a_file_that_is_a_link_is_not_written_through(root: Path, target: str, method: str) -> None:
    (root.parent / "outside/file").write_text("precious")
    (root / "real.yaml").write_text("precious")
    (root / "loop.yaml").symlink_to(target)
    tree, path = tree_of(root), root / "loop.yaml"
    match method:
        case "write":
            refusal(lambda: tree.write(path, b"x"))
        case "check":
            refusal(lambda: tree.check_writable(path))
        case "open_file":
            refusal(lambda: tree.open_file(path, os.O_RDWR | os.O_CREAT))
        case _:
            tree.create(path, b"x")  # whatever is there, it is left alone
    assert os.readlink(path) == target
    assert listing(root) == ["loop.yaml", "real.yaml"]
    assert listing(root.parent / "outside") == ["file"]
    assert {(root / "real.yaml").read_text(), (root.parent / "outside/file").read_text()} == {"precious"}


def test_removing_a_link_removes_the_link(root: Path) -> None:
    (root.parent / "outside/file").write_text("precious")
    (root / "a.yaml").symlink_to("../outside/file")
    tree_of(root).remove(root / "a.yaml")
    assert (listing(root), listing(root.parent / "outside")) == ([], ["file"])
    (root / "sub").symlink_to("../outside")
    refusal(lambda: tree_of(root).remove(root / "sub/file"))
    assert listing(root.parent / "outside") == ["file"]


def test_link_swapped_in_during_writes_changes_nothing_outside(root: Path) -> None:
    """Whenever the directory becomes a link, the write goes to the directory or is refused."""
    outside, directory = root.parent / "outside", root / "cassettes"
    directory.mkdir()
    done = threading.Event()

    def swap() -> None:
        for number in count():
            if done.is_set():
                return
            with suppress(FileNotFoundError, FileExistsError):  # the writer has just created the directory, or not yet
                directory.rename(root / f"away{number}")
                directory.symlink_to(outside)
                directory.unlink()

    swapping = threading.Thread(target=swap)
    swapping.start()
    outcomes = set()
    try:
        for number in range(150):
            try:
                tree_of(root).write(directory / f"{number}.yaml", b"x")
                outcomes.add("written")
            except StorageError as error:
                outcomes.add(error.message.partition(": ")[2].partition(" is a ")[0])
    finally:
        done.set()
        swapping.join()
    assert "written" in outcomes
    assert listing(outside) == []


# --- where files may be --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../outside/x", "a/../../outside/x", "/etc/x", ".", "", ".git/config", "a/.GIT/x"])
def test_paths_outside_the_project_and_in_git_are_refused(root: Path, path: str) -> None:
    refusal(lambda: tree_of(root).write(root / path, b"x"))
    assert (listing(root), listing(root.parent / "outside")) == ([], [])


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_what_is_no_plain_file_is_refused(root: Path, kind: str) -> None:
    path = root / "x"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    for write in (lambda: tree_of(root).write(path, b"x"), lambda: tree_of(root).open_file(path, os.O_RDWR)):
        refusal(write)


# --- whole or not at all -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "fsync", "replace", "fchmod"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failure_leaves_the_old_file_and_no_other(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = root / "a.yaml"
    path.write_text("old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    error = refusal(lambda: tree_of(root).write(path, b"new"))
    monkeypatch.undo()
    assert error.fields["errno"] == number
    assert (listing(root), path.read_text()) == (["a.yaml"], "old")


def test_a_file_that_grows_too_large_leaves_nothing_behind(root: Path) -> None:
    """The kernel refuses in the middle: the first sign is a short write."""
    program = """
        import resource, signal, sys
        from pathlib import Path
        from agentrun.errors import StorageError
        from agentrun.files import ProjectTree

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        root = Path(sys.argv[1])
        try:
            ProjectTree(root, "cassette").write(root / "a.yaml", b"x" * 500_000)
        except StorageError as error:
            print(error.message)
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program), str(root)], capture_output=True, text=True, check=True
    )
    assert "cannot be written: File too large" in done.stdout
    assert listing(root) == []


def test_the_name_of_a_new_file_cannot_be_guessed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    real = os.replace

    def watch(old: str, new: str, **given: Any) -> None:
        names.append(old)
        real(old, new, **given)

    monkeypatch.setattr(os, "replace", watch)
    for _ in range(20):
        tree_of(root).write(root / "a.yaml", b"x")
    assert len(set(names)) == 20
    assert all((found := TEMPORARY_NAME.fullmatch(name)) and found[1] == "a.yaml" for name in names)


def test_leftovers_of_killed_processes_are_cleared_for_one_file_only(root: Path) -> None:
    for name in (".a.yaml.0123456789abcdef.new", ".b.yaml.0123456789abcdef.new", ".a.yaml.new", "a.yaml"):
        (root / name).write_text("x")
    tree_of(root).remove_leftovers(root / "a.yaml")
    assert listing(root) == [".a.yaml.new", ".b.yaml.0123456789abcdef.new", "a.yaml"]


def test_permissions_stay_and_new_files_have_the_usual_ones(root: Path) -> None:
    old = os.umask(0o027)
    try:
        tree_of(root).write(root / "new", b"x")
        (root / "old").touch(0o600)
        tree_of(root).write(root / "old", b"x")
    finally:
        os.umask(old)
    assert ((root / "new").stat().st_mode & 0o777, (root / "old").stat().st_mode & 0o777) == (0o640, 0o600)


def test_exception_in_confirm_keeps_the_old_file(root: Path) -> None:
    (root / "a").write_text("old")

    class Changed(Exception):
        pass

    def refuse() -> None:
        assert (root / "a").read_text() == "old"
        raise Changed

    with pytest.raises(Changed):
        tree_of(root).write(root / "a", b"new", confirm=refuse)
    assert (listing(root), (root / "a").read_text()) == (["a"], "old")


def test_no_descriptor_is_left_open(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    (root / "link").symlink_to("nowhere")
    for _ in range(20):
        tree_of(root).write(root / "a/b/c", b"x")
        refusal(lambda: tree_of(root).write(root / "link/c", b"x"))
        refusal(lambda: tree_of(root).write(root / "a", b"x"))
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 20


# --- paths that the operator typed ---------------------------------------------------------------------------------


def test_a_typed_path_is_used_as_given(root: Path) -> None:
    (root.parent / "outside/file").write_text("old")
    (root / "link").symlink_to("../outside/file")
    write_user_file(root / "link", b"new")
    assert ((root / "link").is_symlink(), (root.parent / "outside/file").read_text()) == (True, "new")


def test_below_a_typed_directory_no_link_is_followed(root: Path) -> None:
    (root / "typed").symlink_to("../outside")
    tree = user_directory_tree(root / "typed")
    tree.write(tree.root / "a", b"x")
    assert listing(root.parent / "outside") == ["a"]
    (root.parent / "outside/b").symlink_to(root / "b")
    refusal(lambda: tree.write(tree.root / "b", b"x"))
    assert not (root / "b").exists()
