"""Several processes record at once without losing or duplicating cases, and only one writes each cassette."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from agentrun.cassette.file import load_cassette
from agentrun.compiler.cases import read_cases_file
from agentrun.testing.provider import ScriptedProvider

from .command import SMALL, agentrun

KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"


RECORDERS = """
import json, os, sys, tempfile
import agentrun.cli.record
from agentrun.cli.group import run_command

gate = os.pipe()
started = []
for case in sys.argv[1:]:
    errors = tempfile.TemporaryFile()
    pid = os.fork()
    if not pid:
        os.close(gate[1])
        os.dup2(errors.fileno(), 2)
        os.dup2(errors.fileno(), 1)
        os.read(gate[0], 1)
        code = run_command(["small.yaml", f"Hello {case}", "--mode", "record", "--case", case])
        sys.stderr.flush()
        os._exit(code)
    started.append((pid, errors))
os.close(gate[1])
ended = []
for pid, errors in started:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    errors.seek(0)
    ended.append((code, errors.read().decode()))
print(json.dumps(ended))
"""
"""Forks the recorders from a process that has imported what they need, and lets them go together."""


class RecorderResult(NamedTuple):
    code: int
    err: str


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.agentrun]\n")
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def record_at_once(root: Path, cases: list[str]) -> list[RecorderResult]:
    """One process a recorder, all let go at the same moment."""
    with ScriptedProvider(f"agentrun: '1'\nturns: [{', '.join(['{text: Hi.}'] * len(cases))}]\n") as server:
        environment = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{server.url}/v1"}
        done = subprocess.run(
            [sys.executable, "-c", RECORDERS, *cases], cwd=root, env=environment, capture_output=True, check=True
        )
    return [RecorderResult(*each) for each in msgspec.json.decode(done.stdout)]


def names_in(root: Path) -> Counter[str]:
    return Counter(case.name for case in read_cases_file(root / "small.cases.yaml")[1].cases)


def record_different_cases(root: Path, count: int) -> None:
    cases = [f"case-{number}" for number in range(count)]
    done = record_at_once(root, cases)
    assert [each.code for each in done] == [0] * count, [each.err for each in done if each.code]
    assert names_in(root) == Counter(cases)
    assert {path.stem for path in (root / "cassettes/small").iterdir()} == set(cases)
    assert agentrun("test", cwd=root).code == 0


def record_one_case(root: Path, count: int) -> None:
    """Those that come too late are refused at once, or find the cassette of the winner."""
    done = record_at_once(root, ["same"] * count)
    refused = [each for each in done if each.code]
    assert len(refused) == count - 1, [each.err for each in done]
    for each in refused:
        assert each.code in (2, 7), each.err
        assert any(reason in each.err for reason in ("another process", "a case has its own message")), each.err
    assert names_in(root) == Counter(["same"])
    assert len(load_cassette(root / "cassettes/small/same.yaml").interactions) == 1
    assert {path.name for path in (root / "cassettes/small").iterdir()} == {"same.yaml"}
    assert agentrun("test", cwd=root).code == 0


@pytest.mark.parametrize("again", range(2))
def test_eight_processes_record_different_cases(root: Path, again: int) -> None:
    record_different_cases(root, 8)


@pytest.mark.parametrize("again", range(2))
def test_eight_processes_record_one_case_once(root: Path, again: int) -> None:
    record_one_case(root, 8)


@pytest.mark.long
@pytest.mark.parametrize("again", range(20))
def test_fifty_processes_record_different_cases(root: Path, again: int) -> None:
    record_different_cases(root, 50)


@pytest.mark.long
@pytest.mark.parametrize("again", range(20))
def test_fifty_processes_record_one_case_once(root: Path, again: int) -> None:
    record_one_case(root, 50)
