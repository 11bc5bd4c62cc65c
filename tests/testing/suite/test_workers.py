"""Cases in worker processes: order of results, dying workers, and no process left running."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentrun.testing.suite import workers
from agentrun.testing.suite.coverage import CoverageCollector
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.runner import SuiteOptions, SuiteRunner
from agentrun.testing.suite.workers import Workers

SPEC = 'agentrun: "1"\nname: small\nmodel: {provider: openai, name: x}\ninstructions: Hi\nbudgets: {tokens: 1k}\n'


def cases(folder: Path, names: list[str], more: str = "") -> list[LocatedCase]:
    (folder / "small.yaml").write_text(SPEC, encoding="utf-8")
    lines = "".join(f"  - {{name: {name}, input: Hello{more}}}\n" for name in names)
    (folder / "small.cases.yaml").write_text(f'agentrun: "1"\ncases:\n{lines}', encoding="utf-8")
    return read_located_cases(folder / "small.cases.yaml")


@pytest.fixture(autouse=True)
def _change_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_give_the_results_of_one_process_in_order(tmp_path: Path) -> None:
    found = cases(tmp_path, [f"case-{number}" for number in range(40)])
    alone = SuiteRunner(SuiteOptions(coverage=True), coverage=(one := CoverageCollector()))
    wanted = [alone.run_case(each).verdict for each in found]
    team = Workers(found, SuiteOptions(coverage=True), 2, both := CoverageCollector())
    came = [result.verdict for result in team.results()]
    assert [(each.id, each.status, each.failures) for each in came] == [
        (each.id, each.status, each.failures) for each in wanted
    ]
    assert both.to_dict() == one.to_dict()
    assert not [worker for worker in team._workers if process_exists(worker.process.pid)]


def test_closing_the_results_ends_every_worker(tmp_path: Path) -> None:
    team = Workers(cases(tmp_path, [f"case-{number}" for number in range(40)]), SuiteOptions(), 2, CoverageCollector())
    results = team.results()
    assert next(results).verdict.id == "small.cases.yaml::case-0"
    pids = [worker.process.pid for worker in team._workers]
    results.close()  # type: ignore[attr-defined]  # it is a generator
    assert pids
    assert not [pid for pid in pids if process_exists(pid)]


def test_dying_workers_give_failed_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cases(tmp_path, [f"case-{number}" for number in range(20)])
    monkeypatch.setattr(workers, "WORKER_COMMAND", ("/bin/sh", "-c", "echo started >> log; exit 3"))
    came = [result.verdict for result in Workers(found, SuiteOptions(), 2, CoverageCollector()).results()]
    assert [each.id for each in came] == [each.id for each in found]
    assert {each.failures[0].message for each in came} == {"the process that ran this case ended with exit code 3"}
    assert (tmp_path / "log").read_text(encoding="utf-8").count("started") <= workers.MAX_DEATHS + 1


def test_worker_ends_when_its_input_closes(tmp_path: Path) -> None:
    team = Workers(cases(tmp_path, ["a", "b"]), SuiteOptions(), 1, CoverageCollector())
    results = team.results()
    next(results)
    process = team._workers[0].process
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) in (0, 1)
    results.close()  # type: ignore[attr-defined]  # it is a generator
