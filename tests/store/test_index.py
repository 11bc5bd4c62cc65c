"""The index of the store is only a faster way to read the directories of the runs."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core.facts import ApprovalAsked, Fact, Parent, Record, Ruled, RunStopped
from agentrun.core.fault import Fault
from agentrun.core.spend import BudgetShare
from agentrun.journal.storage import MemoryJournal, read_contents
from agentrun.spec.project import Project
from agentrun.store import index
from agentrun.store.files import FileStore
from agentrun.store.index import RunFilter, RunIndex
from agentrun.store.owner import claim_store
from agentrun.store.run_summary import RunSummary, WaitReason, summarize

from ..core.test_random_runs import World
from ..journal.journals import RUN_STOPPED, WITH_TOOLS, journal, model_asked, replied, run_started
from ..long_loops import times

ALL = RunFilter(sub_agents=True)
ASKED = (Ruled("c1.0", "tool_call", "ask", ("r",)), ApprovalAsked("c1.0", "sha256:1", "sha256:2", "search", ("r",)))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def make_project(root: Path) -> Project:
    project = Project(root)
    claim_store(project)
    (root / ".agentrun/runs").mkdir(mode=0o700)
    return project


def write_run(project: Project, run: str, journal: bytes | None) -> None:
    directory = project.store_directory / "runs" / run
    directory.mkdir(exist_ok=True)
    (directory / "lock").touch()
    if journal is not None:
        (directory / "journal.jsonl").write_bytes(journal)


def remove_run(project: Project, run: str) -> None:
    directory = project.store_directory / "runs" / run
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()


def write_runs(project: Project) -> None:
    """Runs of three statuses, old enough for the index to trust the time of their directory."""
    write_run(project, "run-1", journal(*WITH_TOOLS).text())
    write_run(project, "run-2", journal(*WITH_TOOLS[:4]).text())
    write_run(project, "run-3", journal(*WITH_TOOLS).text().replace(b'"seq":3', b'"seq":'))
    settle(project)


def settle(project: Project) -> None:
    """Let the last change of the directory of all runs be a minute ago."""
    past = time.time_ns() - 60_000_000_000
    os.utime(project.store_directory / "runs", ns=(past, past))


def listed(project: Project, wanted: RunFilter = ALL) -> list[RunSummary]:
    return RunIndex(project).select(wanted)


def statuses(project: Project) -> dict[str, str]:
    return {each.run: each.status for each in listed(project)}


def truth(project: Project) -> list[RunSummary]:
    """The same list, made from the directories of the runs alone."""
    found = []
    for directory in (project.store_directory / "runs").iterdir():
        path = directory / "journal.jsonl"
        data = path.read_bytes() if path.exists() else b""
        found.append(summarize(directory.name, data, read_contents(path).records if data else list))
    return sorted(filter(None, found), key=lambda each: (each.started, each.run), reverse=True)


def is_intact(path: Path) -> bool:
    database = sqlite3.connect(path)
    try:
        return database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        database.close()


# --- an updated index equals a new one --------------------------------------------------------------------------


@cache
def journals() -> list[list[bytes]]:
    """The lines of random runs."""
    made = []
    for seed in range(12):
        run, text = World(seed), MemoryJournal()
        run.finish()
        for record in run.records:
            text.append(replace(record, prev=text.head, at=record.at + 1000 * seed))
        made.append(text.text().splitlines(keepends=True))
    return made


class History:
    """A store in which random things happen, with an index that is updated after some of them."""

    def __init__(self, project: Project, seed: int) -> None:
        self.project = project
        self.index = RunIndex(project)
        self.chance = Random(seed)  # noqa: S311  # a test
        self.written: dict[str, tuple[list[bytes], int]] = {}

    def step(self) -> None:
        runs = list(self.written)
        happens = self.chance.choice([self.start, *([self.grow, self.grow, self.finish, self.remove] if runs else [])])
        happens(self.chance.choice(runs) if runs else "")
        if self.chance.random() < 0.3:
            settle(self.project)

    def start(self, _: str) -> None:
        run = f"run-{len(self.written)}-{self.chance.randrange(10**6)}"
        self._write(run, self.chance.choice(journals()), self.chance.randint(0, 3))

    def grow(self, run: str) -> None:
        lines, length = self.written[run]
        self._write(run, lines, min(len(lines), length + self.chance.randint(1, 5)))

    def finish(self, run: str) -> None:
        self._write(run, self.written[run][0], len(self.written[run][0]))

    def remove(self, run: str) -> None:
        remove_run(self.project, run)
        del self.written[run]
        if self.chance.random() < 0.5:
            self.index.update(run)

    def _write(self, run: str, lines: list[bytes], length: int) -> None:
        self.written[run] = lines, length
        torn = b"" if length == len(lines) else lines[length][: self.chance.choice([0, 0, 10])]
        write_run(self.project, run, b"".join(lines[:length]) + torn if length else None)
        if self.chance.random() < 0.5:  # else its process was killed before
            self.index.update(run)


def first_difference(seed: int, steps: int = 25) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(make_project(Path(folder)), seed)
        for step in range(steps):
            history.step()
            if history.chance.random() < 0.5 and history.index.select(ALL) != truth(history.project):
                return f"after step {step}"
    return None


@given(st.integers(0, 2**32))
def test_updated_index_equals_a_new_one(seed: int) -> None:
    assert first_difference(seed) is None


@pytest.mark.parametrize("planted", ["sizes are not compared", "new runs are not looked for", "removed runs are kept"])
def test_planted_mistake_in_the_update_is_found(monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    if planted == "sizes are not compared":
        monkeypatch.setattr(index, "_stamp", lambda runs, run: index._NO_JOURNAL)
    elif planted == "new runs are not looked for":
        monkeypatch.setattr(index, "is_run_id", lambda name: False)
    else:
        write = index._write
        monkeypatch.setattr(index, "_write", lambda database, rows, *_: write(database, rows))
    assert any(first_difference(seed) for seed in range(10))


def test_run_that_starts_in_the_same_tick_of_the_clock_is_noticed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "CLOCK_STEP_NS", 3600 * 10**9)
    write_runs(project)
    runs = project.store_directory / "runs"
    before = runs.stat()
    assert len(listed(project)) == 3
    write_run(project, "run-4", journal(*WITH_TOOLS).text())
    os.utime(runs, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len(listed(project)) == 4


# --- a file that is not an index --------------------------------------------------------------------------------


def random_bytes(path: Path) -> None:
    path.write_bytes(Random(7).randbytes(20_000))  # noqa: S311  # a test


def flipped_bytes(path: Path) -> None:
    data, chance = bytearray(path.read_bytes()), Random(7)  # noqa: S311  # a test
    for _ in range(400):
        data[chance.randrange(100, len(data))] ^= 0xFF
    path.write_bytes(data)


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def removed(path: Path) -> None:
    path.unlink()


def changed_with(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        database = sqlite3.connect(path, isolation_level=None)
        for statement in statements:
            database.execute(statement)
        database.close()

    return change


def of_another_program(path: Path) -> None:
    path.unlink()
    changed_with("CREATE TABLE runs (run TEXT)", "INSERT INTO runs VALUES ('run-9')")(path)


DAMAGES = [
    random_bytes,
    flipped_bytes,
    truncated,
    emptied,
    removed,
    of_another_program,
    changed_with("ALTER TABLE runs DROP COLUMN turns"),
    changed_with("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END"),
    changed_with("UPDATE state SET value = '0 x' WHERE name = 'origin'"),
    changed_with("DELETE FROM state"),
    changed_with("UPDATE runs SET status = 'splendid'"),
    changed_with("UPDATE runs SET cost = cost + 1"),
    changed_with("UPDATE runs SET started = 'early'"),
    changed_with("UPDATE runs SET waits_for = '{'"),
    changed_with("UPDATE runs SET agent = x'ff'"),
    changed_with("PRAGMA journal_mode = WAL"),
    changed_with("UPDATE runs SET run = '../../runs/' || run"),
    changed_with("UPDATE runs SET run = run || char(0) WHERE ended IS NULL"),
    changed_with("UPDATE runs SET run = NULL WHERE ended IS NULL"),
    changed_with("UPDATE runs SET run = x'00' WHERE ended IS NOT NULL"),
]
NAMES = [f"{number} {damage.__qualname__.partition('.')[0]}" for number, damage in enumerate(DAMAGES)]


@pytest.mark.parametrize("damage", DAMAGES, ids=NAMES)
def test_damaged_index_is_made_again(project: Project, damage: Callable[[Path], None]) -> None:
    write_runs(project)
    expected, path = truth(project), project.store_directory / "index.sqlite"
    assert listed(project) == expected
    damage(path)
    RunIndex(project).update("run-2")
    assert listed(project) == expected
    assert is_intact(path)
    write_run(project, "run-2", journal(*WITH_TOOLS).text())
    RunIndex(project).update("run-2")
    assert listed(project) == truth(project)


def test_truncation_at_any_size_is_noticed(project: Project) -> None:
    write_runs(project)
    expected, path = truth(project), project.store_directory / "index.sqlite"
    assert listed(project) == expected
    whole = path.read_bytes()
    for size in range(0, len(whole), len(whole) // times(24, 500)):
        path.write_bytes(whole[:size])
        assert listed(project) == expected, size


def wrong_lists(project: Project, count: int) -> list[str]:
    """Change a random byte of the index, again and again, and return the changes after which another list is shown."""
    write_runs(project)
    expected, path = truth(project), project.store_directory / "index.sqlite"
    unfinished = RunFilter(status=("interrupted",))
    waiting = [each for each in expected if each.status in unfinished.status]
    assert listed(project) == expected
    whole, chance, wrong = path.read_bytes(), Random(7), []  # noqa: S311  # a test
    for _ in range(count):
        place, change = chance.randrange(len(whole)), chance.randrange(1, 256)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :])
        try:
            is_right = listed(project) == expected and listed(project, unfinished) == waiting
        except Exception:  # noqa: BLE001  # whatever it is, no list is shown
            is_right = False
        if not is_right:
            wrong.append(f"{place} ^ {change}")
    return wrong


def test_changed_byte_never_gives_another_list(project: Project) -> None:
    assert wrong_lists(project, times(500, 20_000)) == []


def test_planted_trust_in_the_file_is_found(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "crc32", lambda *_: 0)
    assert wrong_lists(project, 500) != []


# --- links and strange files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False])
def test_link_in_place_of_the_index_is_not_followed(project: Project, tmp_path: Path, exists: bool) -> None:
    write_runs(project)
    outside = tmp_path / "outside"
    if exists:
        outside.write_bytes(b"mine")
    path = project.store_directory / "index.sqlite"
    path.symlink_to(outside)
    RunIndex(project).update("run-1")
    assert listed(project) == truth(project)
    assert (outside.read_bytes() if exists else outside.exists()) == (b"mine" if exists else False)
    assert not path.is_symlink()
    assert is_intact(path)


def test_hard_link_in_place_of_the_index_is_not_written_to(project: Project, tmp_path: Path) -> None:
    write_runs(project)
    (tmp_path / "outside").write_bytes(b"")
    os.link(tmp_path / "outside", project.store_directory / "index.sqlite")
    RunIndex(project).update("run-1")
    assert listed(project) == truth(project)
    assert (tmp_path / "outside").read_bytes() == b""


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_directory_or_pipe_in_place_of_the_index_does_no_harm(project: Project, make: Callable[[Path], None]) -> None:
    write_runs(project)
    make(project.store_directory / "index.sqlite")
    RunIndex(project).update("run-1")
    assert listed(project) == truth(project)


def test_index_is_private_and_leaves_nothing_else(project: Project) -> None:
    write_runs(project)
    listed(project)
    RunIndex(project).update("run-1")
    assert sorted(os.listdir(project.store_directory)) == [".gitignore", "index.sqlite", "locks", "owner", "runs"]
    assert (project.store_directory / "index.sqlite").stat().st_mode & 0o777 == 0o600


def test_directory_that_others_can_enter_gets_no_index(project: Project) -> None:
    write_runs(project)
    project.store_directory.chmod(0o755)
    RunIndex(project).update("run-1")
    assert listed(project) == truth(project)
    assert sorted(os.listdir(project.store_directory)) == ["owner", "runs"]


def forge(path: Path, statement: str, *values: str | int) -> None:
    """Change the index as someone who knows this code would."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(path.read_bytes()[: -len(index._seal(b""))])
        database.execute(statement, values)
        database.commit()
        data = database.serialize()
    path.write_bytes(data + index._seal(data))


def test_index_of_a_store_that_is_not_trusted_is_not_opened(project: Project) -> None:
    write_runs(project)
    assert len(listed(project)) == 3
    forge(project.store_directory / "index.sqlite", "UPDATE runs SET agent = 'forged' WHERE ended IS NOT NULL")
    assert "forged" in {each.agent for each in listed(project)}, "this is only a list"
    (project.store_directory / "owner").write_text("0" * 32 + "\n")
    assert listed(project) == truth(project)
    RunIndex(project).update("run-1")
    assert listed(project) == truth(project)


def test_nothing_is_created_where_no_run_is_stored(tmp_path: Path) -> None:
    assert listed(Project(tmp_path)) == []
    RunIndex(Project(tmp_path)).update("run-1")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["link", "file", "pipe", "name", "linked journal"])
def test_strange_entry_among_the_runs_is_not_listed_as_a_good_run(project: Project, tmp_path: Path, kind: str) -> None:
    write_runs(project)
    expected, runs = truth(project), project.store_directory / "runs"
    write_run(project, "other", journal(*WITH_TOOLS).text())
    (runs / "other").rename(tmp_path / "other")
    if kind == "link":
        (runs / "run-9").symlink_to(tmp_path / "other")
    elif kind == "file":
        (runs / "run-9").write_text("x")
    elif kind == "pipe":
        os.mkfifo(runs / "run-9")
    elif kind == "name":
        (tmp_path / "other").rename(runs / "run \x1b[2J")
    else:
        (runs / "run-9").mkdir()
        (runs / "run-9/journal.jsonl").symlink_to(tmp_path / "other/journal.jsonl")
    found = listed(project)
    assert [each for each in found if each.run != "run-9"] == expected
    assert [each.status for each in found if each.run == "run-9"] in ([], ["damaged"])


# --- statuses and filters ---------------------------------------------------------------------------------------


def store_run(store: FileStore, run: str, *facts: Fact, at: int = 1000) -> None:
    journal = store.open(run)
    for fact in facts:
        journal.append(Record(journal.seq + 1, at, journal.epoch, journal.head, fact))


def test_run_is_running_while_its_lock_is_held(tmp_path: Path) -> None:
    project, child = Project(tmp_path), "run-1.c1.0"
    with FileStore(project) as store:
        store_run(store, "run-1", run_started(), model_asked())
        store_run(store, child, run_started(run=child, parent=Parent("run-1", "c1.0", 1, BudgetShare())))
        store_run(store, "run-2", *WITH_TOOLS)
        assert statuses(project) == {"run-1": "running", child: "running", "run-2": "completed"}
    assert statuses(project) == {"run-1": "interrupted", child: "interrupted", "run-2": "completed"}


def test_store_updates_the_index_after_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a run is left and ends. Without the comparison that readers make, which also finds new runs."""
    project, update = Project(tmp_path), RunIndex.update
    journals = []

    def spy(self: RunIndex, run: str) -> None:
        directory = project.store_directory / "runs" / run
        journals.append((directory / "journal.jsonl").read_bytes().count(b"\n"))
        assert int((directory / "head").read_bytes()[:8]) == journals[-1], "the head is written before"
        update(self, run)

    def rows() -> list[tuple[str, str, int]]:
        database = sqlite3.connect(project.store_directory / "index.sqlite")
        try:
            return database.execute("SELECT run, status, seq FROM runs").fetchall()
        finally:
            database.close()

    monkeypatch.setattr(RunIndex, "update", spy)
    with FileStore(project) as store:
        store_run(store, "run-1", run_started())
    assert rows() == [("run-1", "interrupted", 1)]
    with FileStore(project) as store:
        store_run(store, "run-1", model_asked(), replied("", "search"), *ASKED)
        assert rows() == [("run-1", "interrupted", 1)]
    assert rows() == [("run-1", "waiting", 5)]
    with FileStore(project) as store:
        store_run(store, "run-1", RUN_STOPPED)
        assert rows() == [("run-1", "completed", 6)]
    assert journals == [1, 5, 6]


def test_run_is_stored_without_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agentrun.store.index", None)
    with FileStore(Project(tmp_path)) as store:
        store_run(store, "run-1", *WITH_TOOLS)
    monkeypatch.undo()
    assert statuses(Project(tmp_path)) == {"run-1": "completed"}


def test_index_is_made_in_memory_where_sqlite_cannot_be_saved(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "CAN_SAVE", False)
    write_runs(project)
    RunIndex(project).update("run-1")
    assert listed(project) == truth(project)
    assert not (project.store_directory / "index.sqlite").exists()


def test_probe_of_a_lock_does_not_take_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with FileStore(project) as store:
        store_run(store, "run-1", run_started())
    assert statuses(project) == {"run-1": "interrupted"}
    with FileStore(project) as store:
        store.open("run-1")
        assert statuses(project) == {"run-1": "running"}


@pytest.fixture
def varied(project: Project) -> Project:
    """Runs that differ in everything that can be filtered."""
    failed = RunStopped("failed", fault=Fault("budget.cost", "too much"))
    cancelled = RunStopped("failed", fault=Fault("cancelled", "no"))
    parent = Parent("run-1", "c1.0", 1, BudgetShare())
    runs: dict[str, list[Fact]] = {
        "run-1": [run_started(agent="a"), RUN_STOPPED],
        "run-1.c1.0": [run_started(agent="b", parent=parent), RUN_STOPPED],
        "run-2": [run_started(agent="b", session="chat"), failed],
        "run-3": [run_started(agent="b", session="other"), cancelled],
        "run-4": [run_started(agent="a"), model_asked(), replied("", "search"), *ASKED],
        "run-5": [run_started(agent="x' OR 1=1 --"), model_asked()],
    }
    for number, (run, facts) in enumerate(runs.items(), 1):
        made = MemoryJournal()
        for fact in facts:
            made.append(Record(len(made.records()) + 1, 1000 * number, 1, made.head, fact))
        write_run(project, run, made.text())
    settle(project)
    return project


@pytest.mark.parametrize(
    ("wanted", "runs"),
    [
        (RunFilter(), "run-5 run-4 run-3 run-2 run-1"),
        (RunFilter(sub_agents=True), "run-5 run-4 run-3 run-2 run-1.c1.0 run-1"),
        (RunFilter(agent=("a",)), "run-4 run-1"),
        (RunFilter(agent=("b",), sub_agents=True), "run-3 run-2 run-1.c1.0"),
        (RunFilter(agent=("a", "b")), "run-4 run-3 run-2 run-1"),
        (RunFilter(status=("completed",)), "run-1"),
        (RunFilter(status=("failed", "cancelled")), "run-3 run-2"),
        (RunFilter(status=("waiting",)), "run-4"),
        (RunFilter(status=("interrupted",)), "run-5"),
        (RunFilter(status=("interrupted", "failed")), "run-5 run-2"),
        (RunFilter(status=("interrupted", "waiting", "completed"), limit=2), "run-5 run-4"),
        (RunFilter(status=("running",)), ""),
        (RunFilter(code=("budget.cost",)), "run-2"),
        (RunFilter(session=("chat", "other")), "run-3 run-2"),
        (RunFilter(since=4000), "run-5 run-4 run-3"),
        (RunFilter(until=4000), "run-2 run-1"),
        (RunFilter(since=3000, until=5000, agent=("b",)), "run-3 run-2"),
        (RunFilter(limit=2), "run-5 run-4"),
        (RunFilter(agent=("x' OR 1=1 --",)), "run-5"),
        (RunFilter(agent=("' OR 1=1 --",)), ""),
        (RunFilter(session=("chat') OR (1=1",)), ""),
        (RunFilter(code=("?", "budget.cost")), "run-2"),
        (RunFilter(agent=("\0", "a\0", "\ud800")), ""),
    ],
)
def test_filters_select_runs(varied: Project, wanted: RunFilter, runs: str) -> None:
    assert [each.run for each in listed(varied, wanted)] == runs.split()


def test_waiting_run_says_what_it_waits_for(varied: Project) -> None:
    (run,) = listed(varied, RunFilter(status=("waiting",)))
    assert run.waits_for == (WaitReason("approval", "c1.0", "search"),)


# --- several processes, and stores that cannot be written -------------------------------------------------------

WORK = """
import sys
from pathlib import Path
from agentrun.spec.project import Project
from agentrun.store.index import RunFilter, RunIndex

project, name, count = Project(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
journal = (project.root / "journal").read_bytes()
lines, index = journal.splitlines(keepends=True), RunIndex(project)
print("ready", flush=True)
for number in range(count):
    run = f"run-{name}-{number}"
    directory = project.store_directory / "runs" / run
    directory.mkdir()
    (directory / "journal.jsonl").write_bytes(b"".join(lines[:2]))
    index.update(run)
    listed = {each.run: each.status for each in index.select(RunFilter())}
    assert listed[run] == "interrupted", listed
    (directory / "journal.jsonl").write_bytes(journal)
    index.update(run)
    listed = {each.run: each.status for each in index.select(RunFilter())}
    assert listed[run] == "completed", listed
"""


def start_worker(project: Project, name: str, count: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", WORK, str(project.root), name, str(count)]
    worker = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def test_processes_that_use_the_index_at_once_see_their_own_runs(project: Project) -> None:
    (project.root / "journal").write_bytes(journal(*WITH_TOOLS).text())
    workers = [start_worker(project, name, times(20, 400)) for name in "abc"]
    for worker in workers:
        assert worker.communicate(timeout=600)[1] == ""
    assert listed(project) == truth(project)
    assert len(truth(project)) == 3 * times(20, 400)


def test_killed_processes_leave_an_index_that_is_right(project: Project) -> None:
    (project.root / "journal").write_bytes(journal(*WITH_TOOLS).text())
    chance = Random(7)  # noqa: S311  # a test
    for number in range(times(3, 60)):
        worker = start_worker(project, str(number), 10**6)
        time.sleep(chance.uniform(0, 0.1))
        worker.kill()
        worker.communicate()
        assert listed(project) == truth(project)
    assert is_intact(project.store_directory / "index.sqlite")


def test_run_does_not_wait_long_for_the_index(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runs(project)
    listed(project)
    monkeypatch.setattr(index, "READ_WAIT", 0.05)
    with (project.store_directory / "locks/index.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_run(project, "run-2", journal(*WITH_TOOLS).text())
        RunIndex(project).update("run-2")
        assert listed(project) == truth(project), "in memory"
    assert listed(project) == truth(project)


def in_fork(work: Callable[[], bool]) -> bool:
    """What the work says in a process of its own, which may change itself."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def test_full_disk_breaks_nothing(project: Project) -> None:
    def is_right_without_room() -> bool:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        RunIndex(project).update("run-4")
        return listed(project) == truth(project)

    write_runs(project)
    assert in_fork(is_right_without_room)
    assert listed(project) == truth(project)
    write_run(project, "run-4", journal(*WITH_TOOLS).text())
    assert in_fork(is_right_without_room)


def test_store_that_cannot_be_written_is_listed() -> None:
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        project = make_project(Path(folder))
        write_runs(project)
        expected = truth(project)
        for path in [Path(folder), *Path(folder).rglob("*")]:
            os.chown(path, user, -1)
        project.store_directory.chmod(0o500)

        def work() -> bool:
            os.setuid(user)
            RunIndex(project).update("run-2")
            return listed(project) == expected

        assert in_fork(work)
        assert sorted(os.listdir(project.store_directory)) == ["owner", "runs"]
        project.store_directory.chmod(0o700)
