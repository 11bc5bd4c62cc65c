"""`agentrun test` as a process: parallel workers, interrupts, closed pipes and terminals."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from ..report.terminals import terminal
from .command import agentrun, start
from .desk_project import write
from .suite_project import ANOTHER, CASES, DEFAULT_CASE, FAILS, HEAD, MISSES

SLOW_CHECK = "import time\ndef check(run):\n    time.sleep({seconds})\n"


def write_cases(root: Path, *cases: str) -> None:
    write(root, {CASES: HEAD + "".join(cases)})


def test_parallel_workers_give_the_same_output(desk: Path) -> None:
    many = [ANOTHER.replace("another", f"another-{number}") for number in range(20)]
    write_cases(desk, DEFAULT_CASE, *many[:10], FAILS, MISSES, *many[10:])
    one, two = agentrun("test", cwd=desk), agentrun("test", "-n", "2", cwd=desk)
    assert one.code == 1
    assert (one.code, one.out, one.err) == (two.code, two.out, two.err)
    assert "21 passed, 1 failed, 1 missed" in one.out


def test_a_process_that_dies_fails_its_case_and_no_other(desk: Path) -> None:
    write(desk, {"python/kills.py": "import os\ndef check(run):\n    os.kill(os.getpid(), 9)\n"})
    many = [ANOTHER.replace("another", f"another-{number}") for number in range(6)]
    write_cases(
        desk,
        DEFAULT_CASE,
        *many[:3],
        ANOTHER.replace("}", ", assert: [{type: python, value: 'kills:check'}]}"),
        *many[3:],
    )
    done = agentrun("test", "-n", "2", cwd=desk)
    assert done.code == 1
    assert "worker: the process that ran this case ended with signal 9" in done.out
    assert "7 passed, 1 failed" in done.out
    assert done.out.count("FAILED") == 1


def slow_cases(root: Path, seconds: float = 0.05) -> None:
    """Cases that take their time, after one that does not."""
    write(root, {"python/slow.py": SLOW_CHECK.format(seconds=seconds)})
    line = ANOTHER.replace("}", ", assert: [{type: python, value: 'slow:check'}]}")
    write_cases(root, DEFAULT_CASE, *(line.replace("another", f"slow-{number}") for number in range(400)))


@pytest.mark.parametrize(("count", "number"), [("1", signal.SIGINT), ("2", signal.SIGINT), ("2", signal.SIGTERM)])
def test_interrupt_reports_finished_cases_and_ends_the_workers(desk: Path, count: str, number: signal.Signals) -> None:
    slow_cases(desk, 0.05 if count == "1" else 600)  # who only waits ends at once
    process = start("test", "-n", count, "--junit", "junit.xml", cwd=desk, environment={"HOME": str(desk)})
    try:
        assert process.stderr is not None
        os.read(process.stderr.fileno(), 1)  # the first case is through
        below = children(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert b"passed, " in out
    assert b"not run" in out
    assert b"Traceback" not in err
    assert (desk / "junit.xml").read_bytes().startswith(b"<?xml")
    assert len(below) == (2 if count == "2" else 0)
    assert not [pid for pid in below if is_still_alive(pid)]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


def is_still_alive(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(("case", "code"), [(DEFAULT_CASE, 0), (FAILS, 1), (MISSES, 3)])
@pytest.mark.parametrize("args", [["--json"], []])
def test_closed_pipe_does_not_change_the_exit_code(desk: Path, args: list[str], case: str, code: int) -> None:
    """Neither the verdicts nor the exit code: `agentrun test 2>&1 | head -1` is no way to a green suite."""
    write_cases(desk, DEFAULT_CASE, *([] if case is DEFAULT_CASE else [case]))
    reading, writing = os.pipe()
    os.close(reading)
    process = start("test", "--junit", "junit.xml", *args, cwd=desk, environment={}, stdout=writing, stderr=writing)
    os.close(writing)
    assert process.wait(timeout=60) == code
    assert (desk / "junit.xml").read_bytes().startswith(b"<?xml")


def test_terminal_shows_one_progress_line(desk: Path) -> None:
    slow_cases(desk)
    write(desk, {CASES: (desk / CASES).read_text(encoding="utf-8").partition("slow-11,")[0].rpartition("  - ")[0]})
    with terminal(90, 10) as seen:
        env = {"HOME": str(desk), "TERM": "xterm"}
        done = start("test", cwd=desk, environment=env, stderr=seen.stream.fileno())
        out, _ = done.communicate(timeout=60)
        seen.drained()
        raw = seen.raw
    assert (done.returncode, out) == (0, b"12 passed\n")
    assert re.search(rb"[1-9][0-9]* of 12 cases", raw)
    assert raw.count(b"\n") <= 1
