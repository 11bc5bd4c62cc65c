"""Follow the runs of a store: while several processes write, in new processes, and with what was removed."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentrun.core.facts import ChildStarted, Parent, Record, RunStarted, RunStopped, TimePassed
from agentrun.core.spend import BudgetShare
from agentrun.engine.events import ALL_EVENTS, Cursor, Event, Gap, agent_scope, family_scope, filter_scope, run_scope
from agentrun.engine.follower import JournalFollower
from agentrun.engine.runtime import Runtime
from agentrun.errors import AgentrunError
from agentrun.spec.project import Project
from agentrun.store import watch
from agentrun.store.files import FileStore
from agentrun.store.run_order import RunPlace
from agentrun.store.watch import StoreWatch

from ..journal.journals import RUN_STOPPED, run_started
from .stored_runs import append, finished_run

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork, in workers that have threads
WRITERS = 4
RECORDS = 10_000


def in_process(work: Callable[[], None]) -> int:
    """A process that does this and ends. Its id."""
    if child := os.fork():
        return child
    try:
        work()
    except BaseException as error:  # noqa: BLE001  # the exit code shows it
        sys.stderr.write(f"{error!r}\n")
        os._exit(1)
    os._exit(0)


def wait_for(*processes: int) -> None:
    for process in processes:
        assert os.waitpid(process, 0)[1] == 0


def open_store(root: Path) -> FileStore:
    return FileStore(Project(root), sync="process")


def read_from(store: FileStore, cursor: Cursor, scope: Any = ALL_EVENTS) -> list[Event]:
    return list(JournalFollower(store, scope, cursor).read())


def seen(events: list[Event]) -> list[tuple[str | None, int]]:
    return [(event.run, event.what.seq) for event in events if isinstance(event.what, Record)]


def start_child(store: FileStore, run: str) -> Any:
    """The journal of a new sub-agent, which the journal of the run does not name yet."""
    child = store.open(f"{run}.c1.0")
    append(child, run_started(run=child.run, agent="billing", parent=Parent(run, "c1.0", 1, BudgetShare())))
    return child


# --- many writers ----------------------------------------------------------------------------------------------


def write_runs(root: Path, name: str, records: int) -> None:
    """Several runs one after the other, some with a sub-agent. Some are left unfinished, and finished later."""
    with open_store(root) as store:
        left, written, number = [], 0, 0
        while written < records:
            number += 1
            run = f"{name}-{number}"
            journal = store.open(run)
            append(journal, run_started(run=run))
            if number % 3 == 0:
                append(journal, ChildStarted("c1.0", "billing", f"{run}.c1.0", BudgetShare()))
                append(start_child(store, run), TimePassed(), RUN_STOPPED)
            append(journal, *[TimePassed()] * (number * 37 % 200))
            written += journal.seq
            if number % 5 == 0:
                left.append(journal)
            else:
                append(journal, RUN_STOPPED)
        for journal in left:
            append(journal, RUN_STOPPED)


class RestartedFollower:
    """Followers one after the other, each from the text of the last cursor of the one before."""

    def __init__(self, root: Path) -> None:
        self.events: list[Event] = []
        self._root = root
        self._cursor = str(Cursor("all"))

    def read(self, most: int) -> bool:
        """A new follower, which ends after so many events. Whether it has read all."""
        for event in JournalFollower(open_store(self._root), ALL_EVENTS, Cursor.parse(self._cursor)).read():
            self.events.append(event)
            self._cursor = str(event.cursor)
            most -= 1
            if not most:
                return False
        return True

    def check(self) -> None:
        """Every record of the store was seen once, and those of each run in order."""
        assert not [event for event in self.events if isinstance(event.what, Gap)]
        found: dict[str, list[int]] = {}
        for run, seq in seen(self.events):
            found.setdefault(str(run), []).append(seq)
        store = open_store(self._root)
        assert {run: [*range(1, len(store.records(run)) + 1)] for run in store.runs()} == found


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index takes most of the time, and events do not depend on it."""
    monkeypatch.setattr(FileStore, "update_index", lambda store, run: None)


@pytest.mark.usefixtures("no_index")
def test_ten_thousand_events_of_several_writers_come_once(tmp_path: Path) -> None:
    open_store(tmp_path).check_writable()
    writing = [partial(write_runs, tmp_path, f"run-{n}", RECORDS // WRITERS) for n in range(WRITERS)]
    processes = {in_process(work) for work in writing}
    dice, follower = random.Random(18), RestartedFollower(tmp_path)  # noqa: S311  # no secret
    while True:
        is_over = not processes
        if follower.read(dice.choice((1, 7, 60, 500))) and is_over:
            break
        for process in tuple(processes):
            ended, status = os.waitpid(process, os.WNOHANG)
            assert status == 0
            processes -= {ended}
    follower.check()
    assert len(follower.events) >= RECORDS
    assert max(len(str(event.cursor)) for event in follower.events) < 4_000
    assert len(str(follower.events[-1].cursor)) < 100, "all runs are finished"


def follow_open_runs(root: Path) -> RestartedFollower:
    """Followers of runs that are written in turns, each of which ends somewhere."""
    dice, follower = random.Random(18), RestartedFollower(root)  # noqa: S311  # no secret
    with open_store(root) as store:
        journals = [store.open(f"run-{n}") for n in range(6)]
        for step in range(240):
            journal = journals[dice.randrange(min(len(journals), 1 + step // 30))]
            if not journal.seq:
                append(journal, run_started(run=journal.run))
            elif journal.seq == 3:
                append(journal, ChildStarted("c1.0", "billing", f"{journal.run}.c1.0", BudgetShare()))
                journals.append(start_child(store, journal.run))
            else:
                append(journal, TimePassed())
            if step % 5 == 0:
                follower.read(dice.choice((1, 2, 9)))
        for journal in reversed(journals):
            append(journal, RUN_STOPPED)
            follower.read(3)
    for _ in range(60):
        if follower.read(50):
            break
    return follower


@pytest.mark.usefixtures("no_index")
def test_runs_that_are_written_in_turns_are_followed_in_any_pieces(tmp_path: Path) -> None:
    follow_open_runs(tmp_path).check()


class Planted:
    """Mistakes that lose or double events, which the tests above must notice."""

    @staticmethod
    def forget_runs_that_have_not_begun(cursor: Cursor) -> Cursor:
        return Cursor(cursor.scope, cursor.place, {run: seq for run, seq in cursor.runs.items() if seq})

    @staticmethod
    def forget_open_runs(cursor: Cursor) -> Cursor:
        return Cursor(cursor.scope, cursor.place, dict([*cursor.runs.items()][-1:]))

    @staticmethod
    def name_the_record_before(cursor: Cursor) -> Cursor:
        return Cursor(cursor.scope, cursor.place, {run: max(0, seq - 1) for run, seq in cursor.runs.items()})

    @staticmethod
    def name_the_next_record(cursor: Cursor) -> Cursor:
        return Cursor(cursor.scope, cursor.place, {run: seq + (seq == 2) for run, seq in cursor.runs.items()})

    @staticmethod
    def stay_at_the_first_run(cursor: Cursor) -> Cursor:
        return Cursor(cursor.scope, RunPlace(6, "run-0"), cursor.runs)


@pytest.mark.usefixtures("no_index")
@pytest.mark.parametrize("mistake", [name for name in vars(Planted) if not name.startswith("__")])
def test_planted_mistake_of_cursors_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    change, right = getattr(Planted, mistake), JournalFollower.cursor
    monkeypatch.setattr(JournalFollower, "cursor", property(lambda follower: change(right.fget(follower))))  # type: ignore[attr-defined]  # a property
    with pytest.raises((AssertionError, AgentrunError)):
        follow_open_runs(tmp_path).check()


def test_run_that_began_after_the_order_was_read_is_not_lost(tmp_path: Path) -> None:
    """A run is in the order before it has a record, and the cursor of another event names it."""
    with open_store(tmp_path) as store:
        finished_run(store, "run-a")
        store.create_directory("run-b")
        store._order.add("run-b", is_left=False, sync=False)
        finished_run(store, "run-c")
        events = read_from(store, Cursor("all"))
        assert seen(events) == [("run-a", 1), ("run-a", 2), ("run-c", 1), ("run-c", 2)]
        assert events[-1].cursor.runs == {"run-b": 0}
        append(store.open("run-b"), run_started(run="run-b"))
        assert seen(read_from(store, events[-1].cursor)) == [("run-b", 1)]
        assert Planted.forget_runs_that_have_not_begun(events[-1].cursor).runs == {}
        lost = read_from(store, Planted.forget_runs_that_have_not_begun(events[-1].cursor))
        assert seen(lost) == [], "that would be a mistake"


# --- what was removed or damaged ---------------------------------------------------------------------------------


def test_removed_run_is_a_gap_once_and_its_id_can_be_used_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        append(store.open("run-a"), run_started(run="run-a"), TimePassed())
        finished_run(store, "run-b")
        follower = JournalFollower(store, ALL_EVENTS, Cursor("all"))
        cursor = [event.cursor for event in follower.read()][-1]
        store.remove("run-a", force=True)
        finished_run(store, "run-a")
        for events in (list(follower.read()), read_from(store, cursor)):
            gap, *rest = events
            assert isinstance(gap.what, Gap)
            assert gap.what.error is not None
            assert (gap.run, gap.what.error.code, gap.what.since) == ("run-a", "run.not_found", cursor)
            assert seen(rest) == [("run-a", 1), ("run-a", 2)]
            assert seen(read_from(store, gap.cursor)) == seen(rest)
        assert seen(read_from(store, Cursor("all"))) == [("run-b", 1), ("run-b", 2), ("run-a", 1), ("run-a", 2)]


def test_run_that_is_removed_while_it_is_followed_raises(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        append(store.open("run-a"), run_started(run="run-a"))
        follower = JournalFollower(store, run_scope("run-a"), Cursor("run:run-a"))
        assert len(list(follower.read())) == 1
        store.remove("run-a", force=True)
        with pytest.raises(AgentrunError) as caught:
            list(follower.read())
        assert caught.value.code == "run.not_found"


@pytest.mark.parametrize("how", ["cut", "other"])
def test_journal_that_changes_while_it_is_followed_has_its_code(tmp_path: Path, how: str) -> None:
    with open_store(tmp_path) as store:
        append(store.open("run-a"), run_started(run="run-a"), TimePassed(), TimePassed())
        follower = JournalFollower(store, run_scope("run-a"), Cursor("run:run-a"))
        assert len(list(follower.read())) == 3
        path = store.journal_path("run-a")
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:2] if how == "cut" else [*lines, lines[-1]]))
        with pytest.raises(AgentrunError) as caught:
            list(follower.read())
        assert caught.value.code == {"cut": "journal.truncated", "other": "journal.damaged"}[how]


@pytest.mark.parametrize(("seq", "code"), [(2, "journal.damaged"), (3, "journal.truncated")])
def test_head_that_names_another_record_is_noticed(tmp_path: Path, seq: int, code: str) -> None:
    """The last records were replaced or cut off before they were read."""
    with open_store(tmp_path) as store:
        append(store.open("run-a"), run_started(run="run-a"), TimePassed())
        head = store.journal_path("run-a").with_name("head")
        head.write_bytes(f"{seq:08} sha256:{'0' * 64}\n".encode())
        with pytest.raises(AgentrunError) as caught:
            read_from(store, Cursor("run:run-a"), run_scope("run-a"))
        assert caught.value.code == code


def test_incomplete_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        append(store.open("run-a"), run_started(run="run-a"), TimePassed(), TimePassed())
        path = store.journal_path("run-a")
        whole = path.read_bytes()
        first, second, _ = whole.splitlines(keepends=True)
        path.with_name("head").unlink()
        path.write_bytes(first)
        follower = JournalFollower(store, family_scope("run-a"), Cursor("family:run-a"))
        ends = {len(first): 1, len(first + second): 1, len(whole): 1}
        found = {}
        for end in sorted({*range(len(first), len(whole), 23), len(first + second) - 1, len(whole) - 1, *ends}):
            path.write_bytes(whole[:end])
            if count := len(list(follower.read())):
                found[end] = count
        assert found == ends


def test_torn_line_of_the_order_loses_no_later_run(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        finished_run(store, "run-a")
        order = tmp_path / ".agentrun" / "order"
        order.write_bytes(order.read_bytes() + b"run-to")
        finished_run(store, "run-b")
        assert order.read_bytes() == b"run-a\nrun-to\nrun-b\n"
        assert seen(read_from(store, Cursor("all")))[-2:] == [("run-b", 1), ("run-b", 2)]


def test_process_that_ended_before_the_first_record_leaves_one_line(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        finished_run(store, "run-a")
        store.create_directory("run-b")
        store._order.add("run-b", is_left=False, sync=False)
        store.close()
        finished_run(store, "run-b")
        assert (tmp_path / ".agentrun" / "order").read_bytes() == b"run-a\nrun-b\n"


# --- scopes and places -----------------------------------------------------------------------------------------


def test_scopes_select_from_one_position(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        append(store.open("run-a"), run_started(run="run-a"))
        append(store._journals["run-a"], ChildStarted("c1.0", "billing", "run-a.c1.0", BudgetShare()))
        append(start_child(store, "run-a"), RUN_STOPPED)
        finished_run(store, "run-b")
        ends = filter_scope("ends", lambda event: event.is_terminal)
        billing = agent_scope("billing")
        for scope, expected in {
            ends: [("run-a.c1.0", 2), ("run-b", 2)],
            billing: [("run-a.c1.0", 1), ("run-a.c1.0", 2)],
            family_scope("run-a"): [("run-a", 1), ("run-a", 2), ("run-a.c1.0", 1), ("run-a.c1.0", 2)],
            run_scope("run-a"): [("run-a", 1), ("run-a", 2)],
        }.items():
            assert seen(read_from(store, Cursor(scope.name), scope)) == expected


@pytest.mark.parametrize("scope", [ALL_EVENTS, family_scope("run-a")], ids=lambda scope: str(scope.name))
def test_sub_agent_is_followed_before_it_begins(tmp_path: Path, scope: Any) -> None:
    with open_store(tmp_path) as store:
        journal = store.open("run-a")
        append(journal, run_started(run="run-a"), ChildStarted("c1.0", "billing", "run-a.c1.0", BudgetShare()))
        follower = JournalFollower(store, scope, Cursor(scope.name))
        events = list(follower.read())
        assert seen(events) == [("run-a", 1), ("run-a", 2)]
        assert [event.what for event in events if isinstance(event.what, Gap)] == []
        assert list(follower.read()) == []
        start_child(store, "run-a")
        for again in (list(follower.read()), read_from(store, events[-1].cursor, scope)):
            assert seen(again) == [("run-a.c1.0", 1)]


@pytest.mark.parametrize(
    ("place", "after"),
    [
        (RunPlace(), ["run-a", "run-bb"]),
        (RunPlace(6, "run-a"), ["run-bb"]),
        (RunPlace(13, "run-bb"), []),
        (RunPlace(6, "run-b"), None),
        (RunPlace(13, "un-bb"), None),
        (RunPlace(5, "run-a"), None),
        (RunPlace(12, "run-bb"), None),
        (RunPlace(99, "run-c"), None),
        (RunPlace(6, ""), None),
    ],
)
def test_place_in_the_order_is_that_of_its_run(tmp_path: Path, place: RunPlace, after: list[str] | None) -> None:
    with open_store(tmp_path) as store:
        finished_run(store, "run-a")
        finished_run(store, "run-bb")
        found = store.runs_after(place)
        assert (None if found is None else [each.run for each in found]) == after


# --- watching --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is part of Linux")
def test_change_of_another_process_is_noticed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without inotify, this would wait for an hour."""
    monkeypatch.setattr(watch, "LOOK_SECONDS", 3600.0)
    with open_store(tmp_path) as store, store.watch() as changes:
        journal = store.open("run-a")
        append(journal, run_started(run="run-a"))
        assert changes.follow(["run-a"])
        assert not changes.follow(["run-a"])
        assert changes.pause == 3600.0
        follower = JournalFollower(store, ALL_EVENTS, Cursor("all"))
        assert len(list(follower.read())) == 1
        append(journal, TimePassed())
        changes.wait()
        assert len(list(follower.read())) == 1
        wait_for(in_process(lambda: finished_run(open_store(tmp_path), "run-b")))
        changes.wait()
        assert seen(list(follower.read())) == [("run-b", 1), ("run-b", 2)]
        changes.follow([])
        append(journal, TimePassed())
        assert changes.follow(["run-a"]), "it was not watched"


def test_store_is_looked_at_again_and_again_without_inotify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_open_inotify", lambda: -1)
    with StoreWatch(tmp_path / ".agentrun") as changes:
        assert (changes.fileno(), changes.follow(["run-a"]), changes.pause) == (-1, False, watch.PAUSE_SECONDS)
        changes.wait()


def test_store_that_does_not_exist_yet_is_looked_at_often(tmp_path: Path) -> None:
    with StoreWatch(tmp_path / ".agentrun") as changes:
        assert (changes.follow([]), changes.pause) == (False, watch.PAUSE_SECONDS)
        finished_run(open_store(tmp_path), "run-a")
        changes.follow([])
        assert sys.platform != "linux" or changes.pause == watch.LOOK_SECONDS


# --- Python ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_inotify", [True, False])
def test_subscription_gets_the_events_of_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_inotify: bool
) -> None:
    """With `async for`: first those of the store, then those that come."""
    if not has_inotify:
        monkeypatch.setattr(watch, "_open_inotify", lambda: -1)
    finished_run(open_store(tmp_path), "run-a")

    def write() -> None:
        with open_store(tmp_path) as store:
            journal = store.open("run-b")
            append(journal, run_started(run="run-b"), TimePassed(), RUN_STOPPED)

    async def main(store: FileStore) -> list[Event]:
        subscription = Runtime.in_memory(journals=store).subscribe(cursor=Cursor("all"))
        events, writer = list[Event](), 0
        async for event in subscription:
            events.append(event)
            if event.run == "run-a" and event.is_terminal:
                writer = in_process(write)
            elif event.is_terminal:
                subscription.close()
        wait_for(writer)
        return events

    with open_store(tmp_path) as store:
        events = asyncio.run(asyncio.wait_for(main(store), 60))
    assert seen(events) == [("run-a", 1), ("run-a", 2), ("run-b", 1), ("run-b", 2), ("run-b", 3)]


def test_cursor_of_one_process_is_valid_in_another(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        append(store.open("run-a"), run_started(run="run-a"), TimePassed())
        runtime = Runtime.in_memory(journals=store)
        cursors = [str(event.cursor) for event in runtime.subscribe(run_scope("run-a"), Cursor("run:run-a"))]
    reader, writer = os.pipe()

    def resume() -> None:
        with open_store(tmp_path) as store:
            append(store.open("run-a"), RUN_STOPPED)
            subscription = Runtime.in_memory(journals=store).subscribe(run_scope("run-a"), Cursor.parse(cursors[0]))
            os.write(writer, repr(seen(list(subscription))).encode())

    wait_for(in_process(resume))
    assert os.read(reader, 100) == b"[('run-a', 2), ('run-a', 3)]"
    for end in (reader, writer):
        os.close(end)


def test_terminal_record_is_that_of_the_store(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        finished_run(store, "run-a")
        append(store.open("run-b"), run_started(run="run-b"))
        runtime = Runtime.in_memory(journals=store)
        record = runtime.terminal_record("run-a")
        assert record is not None
        assert isinstance(record.fact, RunStopped)
        assert runtime.terminal_record("run-b") is None
        with pytest.raises(AgentrunError) as caught:
            runtime.terminal_record("run-c")
        assert caught.value.code == "run.not_found"


def test_every_event_has_the_agent_of_its_run(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        append(store.open("run-a"), run_started(run="run-a", agent="desk"), TimePassed())
        events = read_from(store, Cursor("all"))
        assert isinstance(events[0].what, Record)
        assert isinstance(events[0].what.fact, RunStarted)
        again = read_from(store, events[0].cursor)
        assert [event.agent for event in (*events, *again)] == ["desk"] * 3
