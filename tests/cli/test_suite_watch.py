"""`agentrun test --watch`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from select import select
from time import sleep
from typing import Any

import pytest

from agentrun.cli.suite_result import SuiteResult
from agentrun.cli.suite_watch import watch_suite
from agentrun.testing.suite.selection import CaseFilter, SelectedCases, select_cases

from .command import start
from .desk_project import write
from .suite_project import ANOTHER, CASES, DEFAULT_CASE, FAILS, HEAD, Suite

CHECK = "  - {name: checked, cassette: default, assert: [{type: python, value: 'judge:check'}]}\n"
WAIT = 15
"""Seconds after which a test gives up. No test depends on how many of them pass."""


class Watch:
    """A command in a pipe that watches."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self._rest = b""

    def until(self, text: str) -> list[str]:
        """The next lines of its output, up to the one that contains a text."""
        lines: list[str] = []
        while True:
            while b"\n" not in self._rest:
                assert select([self.process.stdout], [], [], WAIT)[0], lines
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                assert data, lines
                self._rest += data
            line, _, self._rest = self._rest.partition(b"\n")
            lines.append(line.decode())
            if text in lines[-1]:
                return lines

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code: int = self.process.wait(timeout=WAIT)
        return code


@contextmanager
def watching(desk: Path, *args: str) -> Iterator[Watch]:
    with open(os.devnull, "wb") as nowhere:
        environment = {"HOME": str(desk)}
        process = start("test", "--watch", *args, cwd=desk, environment=environment, stderr=nowhere.fileno())
    assert process.stdout is not None
    with process.stdout:
        try:
            yield Watch(process)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def test_change_runs_the_touched_cases_until_an_interrupt(desk: Path) -> None:
    write(desk, {CASES: HEAD + DEFAULT_CASE + ANOTHER})
    with watching(desk) as watch:
        assert watch.until("passed") == ["2 passed"]
        write(desk, {CASES: HEAD + DEFAULT_CASE + ANOTHER + FAILS})
        lines = watch.until("failed")
        assert lines[:2] == ["", f"{CASES} changed: 1 case"]
        assert lines[2].startswith("FAILED  specs/desk.cases.yaml::fails")
        write(desk, {"specs/desk.yaml": (desk / "specs/desk.yaml").read_text(encoding="utf-8").replace("Look", "See")})
        lines = watch.until("3 missed")
        assert "specs/desk.yaml changed: 3 cases" in lines
        assert watch.interrupt() == 130


def test_changed_code_of_an_assertion_is_imported_again(desk: Path) -> None:
    write(desk, {CASES: HEAD + DEFAULT_CASE + CHECK, "python/judge.py": "def check(run):\n    return 'it is bad'\n"})
    with watching(desk, "-q") as watch:
        assert "judge:check: it is bad" in watch.until("1 passed, 1 failed")[1]
        write(desk, {"python/judge.py": "def check(run):\n    return True\n"})
        assert watch.until("1 passed")[-2:] == ["python/judge.py changed: 1 case", "1 passed"]


def test_interrupt_during_a_run_reports_what_is_done(desk: Path) -> None:
    slow = "import time\ndef check(run):\n    open('started', 'w').close()\n    time.sleep(600)\n"
    write(desk, {CASES: HEAD + DEFAULT_CASE + CHECK, "python/judge.py": slow})
    with watching(desk) as watch:
        while not (desk / "started").exists():
            assert watch.process.poll() is None
            sleep(0.01)
        assert watch.interrupt() == 130
        assert watch.until("passed") == ["1 passed, 1 not run"]


def test_watch_ends_when_the_reader_of_its_output_is_gone(desk: Path) -> None:
    write(desk, {CASES: HEAD + DEFAULT_CASE})
    reading, writing = os.pipe()
    with open(os.devnull, "wb") as nowhere:
        streams = {"stdout": writing, "stderr": nowhere.fileno()}
        process = start("test", "--watch", cwd=desk, environment={"HOME": str(desk)}, **streams)
    os.close(writing)
    with os.fdopen(reading, "rb") as output:
        assert output.readline() == b"1 passed\n"
    assert process.wait(timeout=WAIT) == 0


def test_json_has_the_changes_and_the_cases(desk: Path) -> None:
    write(desk, {CASES: HEAD + DEFAULT_CASE})
    with watching(desk, "--json") as watch:
        watch.until('"summary"')
        write(desk, {CASES: HEAD + DEFAULT_CASE + ANOTHER})
        change, case, summary = map(json.loads, watch.until('"summary"'))
        assert change == {"watch": {"changed": [CASES], "cases": [f"{CASES}::another"]}}
        assert case["case"]["status"] == "passed"
        assert summary["summary"]["cases"] == 1
        assert watch.interrupt() == 130


class Rounds:
    """Runs of a suite that is watched in this process, with something that happens while it waits."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self.runs: list[list[str]] = []
        self._events: list[Callable[[], object]] = [*events, lambda: None]  # after the last one nothing more changes

    def run(self, found: SelectedCases) -> SuiteResult:
        self.runs.append([*(each.case.name for each in found.cases), *(each.id for each in found.unreadable)])
        return SuiteResult(paths=(".",), results=[], cases=len(found.cases))

    def pause(self, _: float) -> None:
        if not self._events:
            raise KeyboardInterrupt
        self._events.pop(0)()

    def watch(self, keyword: Callable[..., bool] | None = None) -> int:
        return watch_suite(
            lambda: select_cases(["."], CaseFilter(keyword=keyword)),
            self.run,
            as_json=False,
            quiet=False,
            pause=self.pause,
        )


def test_writes_in_several_steps_are_one_change(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    rounds = Rounds(
        lambda: None,
        lambda: (suite.root / CASES).write_text("", encoding="utf-8"),
        lambda: suite.write(DEFAULT_CASE, ANOTHER),
        lambda: suite.write(DEFAULT_CASE, ANOTHER, FAILS),
    )
    assert rounds.watch() == 130
    assert rounds.runs == [["default"], ["another", "fails"]]


def test_file_that_never_rests_does_not_stop_the_watch(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    rounds = Rounds(*(partial(suite.write, DEFAULT_CASE, ANOTHER, f"# {number}\n") for number in range(25)))
    rounds.watch()
    assert rounds.runs[:2] == [["default"], ["another"]]


def test_change_that_touches_nothing_runs_nothing(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    suite.write(DEFAULT_CASE)
    assert Rounds(lambda: suite.write(DEFAULT_CASE, "# a comment\n")).watch() == 130
    assert f"{CASES} changed: no case to run" in capsys.readouterr().out


def test_path_without_cases_is_reported_and_the_watch_goes_on(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    suite.write(DEFAULT_CASE)
    rounds = Rounds(
        (suite.root / CASES).unlink,
        lambda: None,
        lambda: suite.write(ANOTHER),
    )
    assert rounds.watch() == 130
    assert "has no cases" in capsys.readouterr().err
    assert rounds.runs == [["default"], ["another"]]


def test_unreadable_file_is_run_as_such(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    rounds = Rounds(lambda: suite.write("  - {nam: x}\n"))
    rounds.watch()
    assert rounds.runs == [["default"], [CASES]]


@pytest.mark.parametrize(
    "option",
    [
        ("--update",),
        ("--record", "new"),
        ("--live-tools",),
        ("--live-model",),
        ("--sweep",),
        ("--coverage",),
        ("--coverage-min", "5"),
        ("--junit", "x.xml"),
        ("--repeat", "2"),
        ("--list",),
        ("--lf",),
        ("--shard", "1/2"),
    ],
    ids=" ".join,
)
def test_watch_refuses_options_that_do_not_replay(suite: Suite, option: tuple[str, ...]) -> None:
    ran = suite.test("--watch", *option)
    assert ran.code == 2
    wanted = f"--watch cannot be combined with {option[0]}: it replays the cases that a change affects"
    assert wanted in ran.err


def test_watch_is_not_allowed_in_ci(suite: Suite) -> None:
    suite.setenv(CI="true")
    ran = suite.test("--watch")
    assert (ran.code, "--watch is not allowed in CI: it runs until Ctrl-C" in ran.err) == (2, True)
