"""Closed streams, special files and missing folders end with a clear error and overwrite no user file."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from .command import ROOT, SCRIPT, SMALL, agentrun

SECRET = "sk-proj-" + "Zq8" * 12


def shell(line: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[bytes]:
    """A line of sh in which $A is the console script."""
    clean = {"PATH": os.environ["PATH"], "A": SCRIPT, **env}
    return subprocess.run(["sh", "-c", line], cwd=cwd, env=clean, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$A doctor >&-", 0),
        ("$A compile specs/triage.yaml >&-", 0),
        ("$A specs/triage.yaml 2>&-", 0),
        ("$A validate specs 2>&-", 0),
        ("$A schema agent >/dev/full", 7),
        ("$A specs/triage.yaml >/dev/full", 7),
        ("$A specs/triage.yaml - <&-", 2),
    ],
)
def test_closed_or_full_streams_end_without_a_traceback(line: str, code: int) -> None:
    done = shell(line)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert b"internal:" not in done.stderr


def test_closed_pipe_is_no_error() -> None:
    done = shell("$A schema agent | head -1; echo ${PIPESTATUS:-}; $A validate --json specs | head -1")
    assert b"Traceback" not in done.stderr
    bash = subprocess.run(
        ["bash", "-c", f"{SCRIPT} schema agent | head -1; exit ${{PIPESTATUS[0]}}"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert (bash.returncode, bash.stderr) == (0, b"")


def test_characters_outside_the_output_encoding_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL.replace("Answer in one word.", "Antworte auf 日本"), encoding="utf-8")
    done = agentrun("render", "a.yaml", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    assert done.code == 0
    assert "\\u65e5" in done.out


def test_output_can_be_written_to_pipes_links_and_stdout(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    assert agentrun("specs/triage.yaml", "--journal", pipe).code == 0
    reader.join(timeout=60)
    assert got[0].count(b"\n") == 6
    assert pipe.is_fifo()
    (tmp_path / "real.json").touch()
    (tmp_path / "link.json").symlink_to("real.json")
    assert agentrun("compile", "specs/triage.yaml", "-o", tmp_path / "link.json").code == 0
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_bytes().decode() == agentrun("compile", "specs/triage.yaml", "-o", "-").out


@pytest.mark.parametrize(
    "args", [("compile", "a.yaml", "-o", "a.yaml"), ("compile", "a.yaml", "-o", "notes.txt"), ("lock", "a.yaml")]
)
def test_files_of_other_kinds_are_not_overwritten(args: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL)
    (tmp_path / "notes.txt").write_text("dear diary")
    (tmp_path / "a.lock").write_text("another program's lock")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = agentrun(*args, cwd=tmp_path)
    assert done.code == 2
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    journal = agentrun(ROOT / "specs" / "triage.yaml", "--journal", tmp_path / "notes.txt")
    assert journal.code == 2
    assert (tmp_path / "notes.txt").read_text() == "dear diary"


def test_init_in_an_impossible_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert agentrun("init", "file/x", cwd=tmp_path).code == 7
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "schemas").touch()
    assert agentrun("init", "z", cwd=tmp_path).code == 2
    assert [path.name for path in (tmp_path / "z").iterdir()] == ["schemas"]
    (tmp_path / "dangling").symlink_to("nowhere/at/all")
    assert agentrun("init", "dangling", cwd=tmp_path).code == 2


def test_deleted_working_directory_is_no_internal_error() -> None:
    for command in ("doctor", f"validate {ROOT}/specs/triage.yaml", f"{ROOT}/specs/triage.yaml", "init x"):
        done = shell(f'd=$(mktemp -d) && cd "$d" && rmdir "$d" && $A {command}')
        assert done.returncode in (0, 2, 7), done.stderr
        assert b"internal:" not in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("render", "specs/triage.yaml", "--param", f"{SECRET}=x"),
        ("render", "specs/triage.yaml", "--param", SECRET),
        ("specs/triage.yaml", "--mode", SECRET),
        ("validate", SECRET),
        ("specs/triage.yaml", "--case", SECRET),
        (SECRET,),
        ("compile", "specs/triage.yaml", "--set", f"model.api_key={SECRET}"),
        ("compile", "specs/triage.yaml", "--profile", SECRET),
    ],
)
def test_no_secret_of_the_command_line_is_shown(args: tuple[str, ...]) -> None:
    for more in ((), ("--json",)) if args[0] != "validate" else ((),):
        done = agentrun(*args, *more)
        assert done.code == 2
        assert SECRET not in done.out + done.err
