"""Where commands are found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agentrun.errors import HostError
from agentrun.spec.problems import quote_text
from agentrun.tools.commands import find_programs


def put(path: Path, mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return str(path)


def refused(command: str, root: Path) -> HostError:
    with pytest.raises(HostError) as error:
        find_programs([command], root)
    assert (error.value.code, error.value.fields) == ("host.missing", {"name": command, "what": "command"})
    assert quote_text(command) in error.value.message
    return error.value


def test_a_name_is_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = put(tmp_path / "b" / "tool")
    monkeypatch.setenv("PATH", f"{tmp_path}/a:{tmp_path}/b:/bin")
    (tmp_path / "a" / "tool").mkdir(parents=True)
    assert find_programs(["tool", "sh"], tmp_path) == {"tool": second, "sh": "/bin/sh"}
    first = put(tmp_path / "a" / "other")
    put(tmp_path / "b" / "other")
    assert find_programs(["other"], tmp_path) == {"other": first}


@pytest.mark.parametrize("path", ["", ".", "bin", ":", "./bin:", "bin:."])
def test_never_in_a_folder_that_depends_on_where_we_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    put(tmp_path / "tool")
    put(tmp_path / "bin" / "tool")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert refused("tool", tmp_path).hint == "install it, or use the path of its file"


def test_a_path_is_relative_to_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path / "project" / "bin" / "tool")
    put(tmp_path / "elsewhere" / "bin" / "tool")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert find_programs(["bin/tool", "./bin/tool", file], tmp_path / "project") == dict.fromkeys(
        ("bin/tool", "./bin/tool", file), file
    )


def test_not_outside_the_project(tmp_path: Path) -> None:
    put(tmp_path / "tool")
    (tmp_path / "project").mkdir()
    for command in ("../tool", "x/../../tool", "./../tool"):
        assert "without .." in (refused(command, tmp_path / "project").hint or "")


def test_only_what_can_be_executed(tmp_path: Path) -> None:
    put(tmp_path / "plain", 0o644)
    os.mkfifo(tmp_path / "pipe", 0o755)
    (tmp_path / "folder").mkdir()
    for name in ("plain", "pipe", "folder"):
        assert refused(f"./{name}", tmp_path).hint == "make it an executable file"
    assert refused("/nowhere/x", tmp_path).hint == "install it, or use another path"
    refused("./nowhere", tmp_path)
    refused("a\0b", tmp_path)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """A venv's Python is a link, and finds its venv by it."""
    (tmp_path / "python").symlink_to(sys.executable)
    assert find_programs(["./python"], tmp_path) == {"./python": str(tmp_path / "python")}
