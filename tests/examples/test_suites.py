"""The shipped suites pass with the command and with pytest, offline, in any order and in two processes."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from msgspec import UNSET
from syrupy.assertion import SnapshotAssertion

from agentrun.compiler.compile import compile_or_raise
from agentrun.spec.v1.assertions import Assertion
from agentrun.spec.v1.cases import CaseTurn
from agentrun.testing.suite.discovery import find_case_files, read_located_cases
from agentrun.testing.suite.snapshots import snapshot_path

from ..cli.command import ROOT, SCRIPT

SPECS = sorted(each for each in (ROOT / "specs").glob("*.yaml") if not each.name.endswith(".cases.yaml"))
CASES = [each for file in find_case_files([ROOT / "specs"]) for each in read_located_cases(file)]
OFFLINE = ["unshare", "-rn"] if shutil.which("unshare") else []
PYTEST = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
STATUS_OF_OUTCOME = {"PASSED": "passed", "FAILED": "failed", "SKIPPED": "skipped", "XFAIL": "xfailed"}
LINE = r"^(specs/\S+::\S+) ([A-Z]+)|^\[gw\d\] \[ *\d+%\] ([A-Z]+) (specs/\S+::\S+)"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("specs", "cassettes"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(project: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """A command without a network, with nothing of this environment but PATH and where packages are."""
    environment = {"PATH": os.environ["PATH"], "SHOP_LEDGER": str(project / "ledger.jsonl")}
    return subprocess.run(
        [*OFFLINE, *argv], cwd=project, env=environment, capture_output=True, check=False, timeout=900, text=True
    )


def by_command(project: Path, *args: str) -> dict[str, str]:
    """The verdict on each case, by its id."""
    done = run(project, SCRIPT, "test", "--json", *(args or ("specs",)))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["case"]["id"]: line["case"]["status"] for line in lines if "case" in line}


def by_pytest(project: Path, *args: str) -> dict[str, str]:
    done = run(project, *PYTEST, *(args or ("specs",)))
    reported = re.findall(LINE, done.stdout, re.MULTILINE)
    return {alone or shared: STATUS_OF_OUTCOME[word or other] for alone, word, other, shared in reported}


def test_every_spec_has_a_suite() -> None:
    assert {each.spec for each in CASES} == set(SPECS)


def test_every_snapshot_has_its_case() -> None:
    used_paths = {snapshot_path(each) for each in CASES}
    assert set((ROOT / "specs" / "__snapshots__").rglob("*.journal")) == used_paths


def test_suites_use_every_assertion_type_and_case_key() -> None:
    assertions = [assertion for each in CASES for assertion in each.case.assertions]
    turns = [turn for each in CASES if each.case.turns is not UNSET for turn in each.case.turns]
    assertions += [assertion for turn in turns if isinstance(turn, CaseTurn) for assertion in turn.assertions]
    used = {type(assertion) for assertion in assertions}
    assert {each.__name__ for each in get_args(Assertion)} - {each.__name__ for each in used} == {
        "ContainsAll",
        "IContainsAll",
        "IContainsAny",
    }
    assert any(assertion.negated for assertion in assertions)
    for key in ("stubs", "faults", "tags", "approvals"):
        assert any(getattr(each.case, key) for each in CASES), key
    for key in ("profile", "cassette", "turns"):
        assert any(getattr(each.case, key) is not UNSET for each in CASES), key


def test_command_and_pytest_pass_every_case(project: Path) -> None:
    command = by_command(project)
    assert command == by_pytest(project)
    assert set(command.values()) == {"passed"}
    assert len(command) == len(CASES)
    traces = ("ledger.jsonl", ".agentrun/restarted", ".agentrun/notebook.jsonl")
    assert not [name for name in traces if (project / name).exists()], "no tool ran"


def test_command_and_pytest_agree_on_failing_cases(project: Path) -> None:
    cases = project / "specs" / "support.cases.yaml"
    text = cases.read_text(encoding="utf-8")
    text = text.replace('{type: contains, value: "39.90 euro"}', '{type: contains, value: "40 euro"}', 1)
    text = text.replace("  - name: approval ", "  - skip: not today\n    name: approval ", 1)
    text = text.replace("  - name: cut ", "  - xfail: known\n    name: cut ", 1)
    text = text.replace("  - name: down ", "  - xfail: known\n    name: down ", 1)
    text = text.replace("{type: tool-calls, tool: refund, value: 1}", "{type: tool-calls, tool: refund, value: 2}", 1)
    cases.write_text(text, encoding="utf-8")
    (project / "cassettes" / "triage" / "retry.yaml").unlink()
    changed = ("specs/support.cases.yaml", "specs/triage.cases.yaml")
    command = by_command(project, *changed)
    found = by_pytest(project, *changed)
    assert {each: command[f"specs/support.cases.yaml::{each}"] for each in ("default", "approval", "cut", "down")} == {
        "default": "failed",
        "approval": "skipped",
        "cut": "xfailed",
        "down": "failed",
    }
    assert command["specs/triage.cases.yaml::retry"] == "missed"
    assert {name: "failed" if word == "missed" else word for name, word in command.items()} == found


def test_suites_pass_in_any_order(project: Path) -> None:
    ids = [f"specs/{each.file.name}::{each.case.name}" for each in CASES]
    random.Random(7).shuffle(ids)  # noqa: S311  # any order will do
    assert by_command(project, *ids) == by_pytest(project, *ids) == dict.fromkeys(ids, "passed")


def test_suites_pass_in_two_processes(project: Path) -> None:
    some = ("specs/ops.cases.yaml", "specs/support.cases.yaml")
    ids = [f"specs/{each.file.name}::{each.case.name}" for each in CASES if f"specs/{each.file.name}" in some]
    every = dict.fromkeys(ids, "passed")
    assert by_command(project, *some, "-n", "2") == by_pytest(project, *some, "-n", "2") == every


def test_fingerprints_of_the_shipped_specs(snapshot: SnapshotAssertion) -> None:
    """The same on every machine and with every Python: what is written here was made on another one."""
    assert {spec.stem: compile_or_raise(spec)[1].fingerprint for spec in SPECS} == snapshot
