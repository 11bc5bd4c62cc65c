"""`find_programs`: where the programs of commands are found, and which are refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agentrun.errors import HostError
from agentrun.spec.problems import quote_text
from agentrun.tools.shell import find_programs


def write_program(path: Path, mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return str(path)


def missing_program_error(command: str, root: Path) -> HostError:
    with pytest.raises(HostError) as error:
        find_programs([command], root)
    assert (error.value.code, error.value.fields) == ("host.missing", {"name": command, "what": "command"})
    assert quote_text(command) in error.value.message
    return error.value


def test_a_name_is_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = write_program(tmp_path / "b" / "tool")
    monkeypatch.setenv("PATH", f"{tmp_path}/a:{tmp_path}/b:/bin")
    (tmp_path / "a" / "tool").mkdir(parents=True)
    assert find_programs(["tool", "sh"], tmp_path) == {"tool": second, "sh": "/bin/sh"}
    first = write_program(tmp_path / "a" / "other")
    write_program(tmp_path / "b" / "other")
    assert find_programs(["other"], tmp_path) == {"other": first}


@pytest.mark.parametrize("path", ["", ".", "bin", ":", "./bin:", "bin:."])
def test_relative_folders_on_path_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    write_program(tmp_path / "tool")
    write_program(tmp_path / "bin" / "tool")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert missing_program_error("tool", tmp_path).hint == "install it, or use the path of its file"


def test_a_path_is_relative_to_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_program(tmp_path / "project" / "bin" / "tool")
    write_program(tmp_path / "elsewhere" / "bin" / "tool")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert find_programs(["bin/tool", "./bin/tool", file], tmp_path / "project") == dict.fromkeys(
        ("bin/tool", "./bin/tool", file), file
    )


def test_path_outside_the_project_is_refused(tmp_path: Path) -> None:
    write_program(tmp_path / "tool")
    (tmp_path / "project").mkdir()
    for command in ("../tool", "x/../../tool", "./../tool"):
        assert "without .." in (missing_program_error(command, tmp_path / "project").hint or "")


def test_only_executable_files_are_found(tmp_path: Path) -> None:
    write_program(tmp_path / "plain", 0o644)
    os.mkfifo(tmp_path / "pipe", 0o755)
    (tmp_path / "folder").mkdir()
    for name in ("plain", "pipe", "folder"):
        assert missing_program_error(f"./{name}", tmp_path).hint == "make it an executable file"
    assert missing_program_error("/nowhere/x", tmp_path).hint == "install it, or use another path"
    missing_program_error("./nowhere", tmp_path)
    missing_program_error("a\0b", tmp_path)


def test_link_to_a_program_is_not_resolved(tmp_path: Path) -> None:
    """A venv's Python is a link, and finds its venv by it."""
    (tmp_path / "python").symlink_to(sys.executable)
    assert find_programs(["./python"], tmp_path) == {"./python": str(tmp_path / "python")}
