"""Some of the cases of `make faults`, and a bug that they find."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import faults
from .faults import FaultCases, StoreCall, check_poisoned, mounting_problem, store_places, tracing_problem
from .killed_run import Fault, KilledRun
from .outside_world import OutsideWorld
from .series import Case, CaseMissed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied with fork")
NEEDS_STRACE = pytest.mark.skipif(tracing_problem() is not None, reason=str(tracing_problem()))
NEEDS_MOUNT = pytest.mark.skipif(mounting_problem() is not None, reason=str(mounting_problem()))

SYNCS_AGAIN = """
from agentrun.journal import storage
sync = storage.sync_data
def sync_twice(file):
    try:
        sync(file)
    except OSError:
        sync(file)
storage.sync_data = sync_twice
"""


@pytest.fixture
def world() -> Iterator[OutsideWorld]:
    with OutsideWorld() as world:
        yield world


@pytest.fixture
def cases(tmp_path: Path, world: OutsideWorld) -> FaultCases:
    return FaultCases(tmp_path, [world])


def try_some(cases: list[Case], count: int) -> None:
    for case in cases[:: -(-len(cases) // count)]:
        case.run(0)


@pytest.mark.parametrize(
    ("strace", "problem"),
    [
        (None, "strace is not installed; on Debian and Ubuntu: apt-get install strace"),
        ("exit 1", "strace is not allowed to trace processes here"),
    ],
    ids=["missing", "refused"],
)
def test_problem_with_strace_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strace: str | None, problem: str
) -> None:
    if strace is not None:
        (tmp_path / "strace").write_text(f"#!/bin/sh\n{strace}\n", encoding="utf-8")
        (tmp_path / "strace").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tracing_problem.__wrapped__() == problem


@NEEDS_STRACE
def test_failing_system_calls_do_no_harm(cases: FaultCases) -> None:
    try_some(cases.system_calls(), 10)


@NEEDS_STRACE
def test_files_that_cannot_be_opened_do_no_harm(cases: FaultCases) -> None:
    try_some(cases.other_files(), 6)


@NEEDS_STRACE
def test_sync_that_is_repeated_is_found(tmp_path: Path, world: OutsideWorld) -> None:
    run = KilledRun("plain", tmp_path / "run", world)
    run.execute(run.start_command, Fault("fdatasync:error=EIO:when=3", prelude=SYNCS_AGAIN))
    with pytest.raises(AssertionError, match=r"written after a failure: .*fdatasync"):
        check_poisoned(run)


def test_calls_on_files_of_the_store_are_told_from_others(tmp_path: Path) -> None:
    lines = (
        'openat(AT_FDCWD, "/lib/x.py", O_RDONLY) = 3',
        'openat(AT_FDCWD</a>, "/a/.agentrun/runs", O_RDONLY) = 3',
        'openat(3</a/.agentrun/runs>, "run-1", O_RDONLY) = 3',
        'openat(3</a>, ".agentrun", O_RDONLY) = -1 EIO (Input/output error) (INJECTED)',
        'write(1</a/output.txt>, ".agentrun", 9) = 9',
        'write(4</a/.agentrun/owner>, "x", 1) = ?',
    )
    trace = tmp_path / "trace"
    trace.write_text("\n".join(lines), encoding="utf-8")
    assert (store_places(trace, "openat"), store_places(trace, "write")) == ([2, 3, 4], [2])
    trace.write_text("\n".join(f"{7 + (number == 5)} {line}" for number, line in enumerate(lines)), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"write of another thread: /a/\.agentrun/owner"):
        store_places(trace, "openat")


@NEEDS_STRACE
def test_fault_that_misses_the_store_is_aimed_again(cases: FaultCases, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file that is opened is not of the store."""
    cases.try_call(StoreCall("openat", 2, 1), "error=EIO", 0)
    monkeypatch.setattr(faults, "AIMS", 1)
    with pytest.raises(CaseMissed):
        cases.try_call(StoreCall("openat", 2, 1), "error=EIO", 0)


def test_limited_file_sizes_do_no_harm(cases: FaultCases) -> None:
    try_some(cases.file_sizes(), 4)


def test_limited_open_files_do_no_harm(cases: FaultCases) -> None:
    try_some(cases.open_files(), 4)


def test_full_output_does_no_harm(cases: FaultCases) -> None:
    try_some(cases.full_output(), 1)


def test_removed_directory_stops_the_run(cases: FaultCases) -> None:
    try_some(cases.removed_directories(), 3)


@NEEDS_MOUNT
def test_full_disk_does_no_harm(cases: FaultCases) -> None:
    try_some(cases.full_disks(), 4)


@NEEDS_MOUNT
def test_read_only_disk_is_refused(cases: FaultCases) -> None:
    try_some(cases.read_only_disk(), 1)
