"""Several processes start at the same moment: one wins, and the others are refused at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.errors import AgentrunError
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.store.process_lock import ProcessLock
from agentrun.store.sessions import read_session

from ..journal.journals import run_started
from ..long_loops import times
from .stored_runs import append

PROCESSES = 6


def start_session(store: FileStore) -> None:
    read_session(store, "ada")


def create_run(store: FileStore) -> None:
    append(store.open("run-1"), run_started())


def continue_run(store: FileStore) -> None:
    store.open("run-1")


def race(folder: Path, work: Callable[[FileStore], None]) -> list[str]:
    """What each process got: `won` or a code. The winner holds what it got until all have tried."""
    answers, answer = os.pipe()
    begin, begun = os.pipe()
    stay, end = os.pipe()
    children = []
    for _ in range(PROCESSES):
        if not (child := os.fork()):
            for other in (begun, end):
                os.close(other)
            os.read(begin, 1)  # until the parent closes the other end
            os.write(answer, f"{_attempt(folder, work)}\n".encode())
            os.read(stay, 1)
            os._exit(0)
        children.append(child)
    for own in (begin, begun, stay):
        os.close(own)
    got = b""
    while got.count(b"\n") < PROCESSES:
        got += os.read(answers, 4096)
    os.close(end)
    for child in children:
        os.waitpid(child, 0)
    for own in (answers, answer):
        os.close(own)
    return sorted(got.decode().split("\n")[:-1])


def _attempt(folder: Path, work: Callable[[FileStore], None]) -> str:
    try:
        work(FileStore(Project(folder), sync="process"))
    except AgentrunError as error:
        return error.code
    except BaseException as error:  # noqa: BLE001  # the test shows it
        return repr(error)
    return "won"


ONE_WINNER = sorted(["won", *["session.busy"] * (PROCESSES - 1)])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the workers of pytest-xdist have threads
@pytest.mark.parametrize("work", [start_session, create_run, continue_run], ids=lambda work: str(work.__name__))
def test_one_process_wins(tmp_path: Path, work: Callable[[FileStore], None]) -> None:
    for number in range(times(12, 1000)):
        folder = tmp_path / str(number)
        folder.mkdir()
        if work is continue_run:
            with FileStore(Project(folder), sync="process") as store:
                create_run(store)
        got = race(folder, work)
        assert [code.replace("run.duplicate", "session.busy") for code in got] == ONE_WINNER
        if work is create_run:
            assert len(FileStore(Project(folder)).records("run-1")) == 1, "a loser removes nothing of the winner"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # as above
def test_without_the_lock_several_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted twin."""
    monkeypatch.setattr(ProcessLock, "acquire", lambda lock, busy, *, wait=0: None)
    assert race(tmp_path, start_session) == ["won"] * PROCESSES
