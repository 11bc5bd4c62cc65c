"""Replays and `agentrun test` do not read the environment for redaction: the same bytes with any variables."""

from __future__ import annotations

import re
import shutil
from itertools import cycle
from pathlib import Path

import pytest

from agentrun.compiler.cases import cases_for_spec
from agentrun.credentials import find_credentials, is_credential

from .command import ROOT, CommandResult, agentrun

COUNT = 200
NOTHING: dict[str, str] = {}
_words = re.compile(r"[A-Za-z][a-z_-]{7,40}")
_pairs = re.compile(r"[A-Za-z]{3,} [a-z0-9]{4,}")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the shipped examples."""
    root = tmp_path_factory.mktemp("shipped")
    for name in ("specs", "cassettes"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


@pytest.fixture(scope="module")
def variables(project: Path) -> dict[str, str]:
    """Credentials whose values are words and pairs of words that the recorded agents and tools said."""
    snapshots = sorted((project / "specs" / "__snapshots__").rglob("*.journal"))
    lines = [line for path in snapshots for line in path.read_text(encoding="utf-8").splitlines()]
    words = [word for line in lines for word in (*_words.findall(line), *_pairs.findall(line))]
    secrets = [word for word in dict.fromkeys(words) if is_credential("SHOP_PASSWORD", word)]
    chosen = {f"SHOP_PASSWORD_{number}": word for number, word in enumerate(secrets[:COUNT])}
    assert len(find_credentials(chosen)) == len(chosen) == COUNT
    return chosen


def run(project: Path, environment: dict[str, str], *args: str | Path) -> CommandResult:
    return agentrun(*args, cwd=project, stdin=b"", **environment)


def without_times(text: str) -> str:
    return re.sub(r'("seconds":|time="|in )[0-9.]+', r"\1", text)


@pytest.mark.parametrize("form", [["--json"], ["-v", "--junit", "report.xml"]], ids=["json", "junit"])
def test_shipped_suites(project: Path, variables: dict[str, str], form: list[str]) -> None:
    report = project / "report.xml"
    seen = []
    for environment in (NOTHING, variables):
        done = run(project, environment, "test", "specs", *form)
        files = report.read_text(encoding="utf-8") if report.exists() else ""
        seen.append((done.code, *map(without_times, (done.out, done.err, files))))
    assert seen[0] == seen[1]
    assert seen[0][0] == 0


def test_snapshots_that_are_written_again(project: Path, variables: dict[str, str]) -> None:
    folder = project / "specs" / "__snapshots__"
    before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.journal")}
    for path in before:
        (folder / path).unlink()
    assert run(project, variables, "test", "specs", "--update").code == 0
    assert {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.journal")} == before


SPECS = ["support", "triage", "researcher", "ops", "reader"]


@pytest.mark.parametrize("name", SPECS)
def test_replayed_run_and_its_journal(project: Path, variables: dict[str, str], name: str) -> None:
    spec, journal = project / "specs" / f"{name}.yaml", project / "run.jsonl"
    cases = [case for case in cases_for_spec(spec) if case.is_plain_replay and case.name == case.cassette_name]
    for case, form in zip(cases, cycle([[], ["--json"]]), strict=False):
        seen = []
        for environment in (NOTHING, variables):
            arguments: tuple[str | Path, ...] = (
                spec,
                "--case",
                case.name,
                "--mode",
                "replay",
                "--journal",
                journal,
                *form,
            )
            done = run(project, environment, *arguments)
            journals = {path.name: path.read_bytes() for path in sorted(project.glob("run*.jsonl"))}
            seen.append((done.code, done.out, done.err, journals))
            assert journals
            for path in project.glob("run*.jsonl"):
                path.unlink()
        assert seen[0] == seen[1]


def test_mode_auto_replays_the_same(project: Path) -> None:
    """The command of the bug report."""
    runs = [run(project, env, "specs/support.yaml", "--journal", "-") for env in (NOTHING, SHOP)]
    assert runs[0].out == runs[1].out
    assert runs[0].err == runs[1].err
    assert "refunded" in runs[0].out


SHOP = {"SHOP_PASSWORD": "refunded"}
