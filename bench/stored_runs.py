"""Stored runs: listing them, making their index again, and writing and checking journals."""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrun.journal.storage import SyncMode
    from agentrun.store.files import StoredJournal

RUNS, WAITING = 10_000, 50
TURNS = 4
"""Turns of a stored run, which has 23 records."""
RECORDS = 51_200
"""The most that a journal may have."""
ROUNDS = 5


def least(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter, rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        begin = clock()
        work()
        times.append(clock() - begin)
    return min(times)


# --- the index ----------------------------------------------------------------------------------------------------


def many_runs(folder: Path) -> Path:
    """A project with many finished runs and some that wait for an approval. It is made once for all figures."""
    from core_run import CoreRun, long_package

    from agentrun.core.facts import ApprovalAsked, Record, Ruled
    from agentrun.journal.storage import MemoryJournal
    from agentrun.spec.project import Project
    from agentrun.store.owner import claim_store

    if (folder / "project").exists():
        return folder / "project"
    finished = CoreRun(long_package(folder), TURNS).journal
    waiting = MemoryJournal(finished.records()[:3])
    for fact in (
        Ruled("c1.0", "tool_call", "ask", ("pages",)),
        ApprovalAsked("c1.0", "sha256:1", "sha256:2", "page", ("pages",)),
    ):
        waiting.append(Record(len(waiting.records()) + 1, 0, 1, waiting.head, fact))
    runs = folder / "project/.agentrun/runs"
    claim_store(Project(folder / "project"))
    runs.mkdir(mode=0o700)
    for number in range(RUNS):
        directory = runs / f"run-{number:016x}"
        directory.mkdir()
        text = waiting.text() if number % (RUNS // WAITING) == 0 else finished.text()
        (directory / "journal.jsonl").write_bytes(text)
        (directory / "lock").touch()
    os.utime(runs, (0, 0))
    return folder / "project"


def bare_query(path: Path, condition: str) -> Callable[[], object]:
    """Open a database with a row for each run, and read the rows that meet a condition."""
    if not path.exists():
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE runs (run TEXT PRIMARY KEY, status, a, b, c, d, e, f, g, h, i, j, k)")
        database.execute("CREATE INDEX by_status ON runs (status)")
        rows = [(f"run-{n:016x}", "waiting" if n % (RUNS // WAITING) == 0 else "completed") for n in range(RUNS)]
        database.executemany(f"INSERT INTO runs VALUES (?, ?, {', '.join(['1, NULL'] * 5)}, 'long')", rows)  # noqa: S608  # only constants
        database.commit()
        database.close()

    def query() -> object:
        database = sqlite3.connect(path)
        try:
            return database.execute(f"SELECT * FROM runs WHERE {condition}").fetchall()  # noqa: S608  # a constant
        finally:
            database.close()

    return query


def listing(folder: Path, *, waiting: bool) -> float:
    """Seconds to select and print runs, as a multiple of a bare query for the same rows."""
    from agentrun.cli.runs import text_lines
    from agentrun.spec.project import Project
    from agentrun.store.index import RunFilter, RunIndex

    index = RunIndex(Project(many_runs(folder)))
    wanted = RunFilter(status=("waiting",)) if waiting else RunFilter()
    query = bare_query(folder / "bare.sqlite", "status = 'waiting'" if waiting else "run > ''")

    def show() -> None:
        lines = text_lines(index.select(wanted))
        assert len(lines) == (WAITING if waiting else RUNS)

    show()
    times = [(least(show, rounds=1), least(query, rounds=1)) for _ in range(3 * ROUNDS)]
    return min(ours for ours, _ in times) / min(bare for _, bare in times)


def rebuilding(folder: Path) -> float:
    """Seconds to make the index of all runs, as a multiple of reading and hashing their records with Python's json."""
    from agentrun.spec.project import Project
    from agentrun.store.index import RunFilter, RunIndex

    project = Project(many_runs(folder))

    def rebuild() -> None:
        (project.store_directory / "index.sqlite").unlink(missing_ok=True)
        assert len(RunIndex(project).select(RunFilter())) == RUNS

    def read() -> None:
        for directory in (project.store_directory / "runs").iterdir():
            json_and_hash((directory / "journal.jsonl").read_bytes().splitlines())

    return least(rebuild, rounds=3) / least(read, rounds=3)


def json_and_hash(lines: list[bytes]) -> None:
    for line in lines:
        json.loads(line)
        sha256(line).hexdigest()


# --- journals -----------------------------------------------------------------------------------------------------


def long_journal(folder: Path) -> Path:
    """A journal with as many records as are allowed, of about 700 bytes each."""
    from core_run import CoreRun, long_package
    from msgspec.structs import replace

    from agentrun.core.facts import ToolFinished
    from agentrun.core.messages import Text
    from agentrun.journal.storage import MemoryJournal

    text = (Text("A page has some words on it. " * 85),)
    journal = MemoryJournal()
    for record in CoreRun(long_package(folder), RECORDS // 6).journal.records():
        fact = replace(record.fact, parts=text) if isinstance(record.fact, ToolFinished) else record.fact
        journal.append(replace(record, prev=journal.head, fact=fact))
    path = folder / "long.jsonl"
    path.write_bytes(journal.text())
    return path


def verifying(folder: Path) -> float:
    """CPU to verify a journal as a multiple of reading and hashing its lines with Python's json."""
    from agentrun.journal.family import read_family

    path = long_journal(folder)

    def verify() -> None:
        assert read_family(path, keep_all=False).root.error is None

    bare = least(lambda: json_and_hash(path.read_bytes().splitlines()), time.process_time, 3)
    return least(verify, time.process_time, 3) / bare


VERIFY = """
import sys
from pathlib import Path
from agentrun.cli import verify
from agentrun.cli.group import run_command
from agentrun.journal import family

def most():  # not ru_maxrss: a new process begins with that of its parent
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

before = most()
assert run_command(["verify", sys.argv[1]]) == 0
print((most() - before) / 1024)
"""


def verify_memory(folder: Path) -> float:
    """MiB that `agentrun verify` takes beyond its imports."""
    argv = [sys.executable, "-c", VERIFY, str(long_journal(folder))]
    return float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[-1])


def appending(folder: Path) -> float:
    """CPU to append a record without a sync, as a multiple of writing it as JSON and hashing that."""
    from core_run import CoreRun, long_package
    from msgspec import to_builtins

    records = CoreRun(long_package(folder), 1000).journal.records()
    plain = [to_builtins(record) for record in records]

    def bare() -> None:
        for each in plain:
            sha256(json.dumps(each).encode()).hexdigest()

    def append() -> None:
        with _new_run(folder, "process") as journal:
            for record in records:
                journal.append(record)

    return least(append, time.process_time) / least(bare, time.process_time)


def syncing(folder: Path) -> float:
    """Seconds to append a record that is synced, as a multiple of writing and syncing the same line.

    One after the other, because the time of a sync depends on what else the disk does, and the lower quartile of each.
    """
    from core_run import CoreRun, long_package

    from agentrun.core.facts import Record, RunStarted, ToolFinished
    from agentrun.journal.storage import MemoryJournal

    facts = [record.fact for record in CoreRun(long_package(folder), 400).journal.records()]
    made = MemoryJournal()
    for fact in facts:
        if isinstance(fact, RunStarted | ToolFinished):
            made.append(Record(len(made.records()) + 1, 0, 1, made.head, fact))
    ours, bare = [], []
    file = os.open(folder / "bare.jsonl", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    with _new_run(folder, "effects") as journal:
        for record, line in zip(made.records(), made.text().splitlines(keepends=True), strict=True):
            start = time.perf_counter()
            journal.append(record)
            between = time.perf_counter()
            os.write(file, line)
            os.fdatasync(file)
            end = time.perf_counter()
            ours.append(between - start)
            bare.append(end - between)
    os.close(file)
    return statistics.quantiles(ours)[0] / statistics.quantiles(bare)[0]


@contextmanager
def _new_run(folder: Path, sync: SyncMode) -> Iterator[StoredJournal]:
    from agentrun.spec.project import Project
    from agentrun.store.files import FileStore

    with FileStore(Project(folder / "appended"), sync=sync) as store:
        yield store.open(f"run-{time.monotonic_ns()}")
