"""`make races`: several processes start at the same moment; one wins, and the others are refused at once.

    python -m tests.durability.races [--seed N]

A race is for a session, for the id of a new run, or for a run that somebody left. The winner holds what it got until
all have tried. The seed says how long each process waits before it tries.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

from agentrun.errors import AgentrunError
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.store.sessions import open_session

from ..journal.journals import run_started
from ..store.stored_runs import append
from .series import Case, choose_seed, run_series

PROCESSES = 6
RACES = 1000
"""Of each kind."""
LEAST_RACES = 1000
"""In all: on a busy machine there is not enough time for more."""
MAX_DELAY = 0.002
"""Seconds. An attempt takes about as long."""


def start_session(store: FileStore) -> None:
    open_session(store, "ada", "new")


def create_run(store: FileStore) -> None:
    append(store.open("run-1"), run_started())


def continue_run(store: FileStore) -> None:
    store.open("run-1")


KINDS = (start_session, create_run, continue_run)


def check_race(folder: Path, work: Callable[[FileStore], None], delays: Sequence[float]) -> None:
    """Raise AssertionError unless one process wins. The folder is new, and removed in the end."""
    folder.mkdir()
    if work is continue_run:
        with FileStore(Project(folder), sync="process") as store:
            create_run(store)
    codes = [code.replace("run.duplicate", "session.busy") for code in race(folder, work, delays)]
    assert sorted(codes) == [*["session.busy"] * (len(delays) - 1), "won"], codes
    if work is not start_session:
        assert len(FileStore(Project(folder)).records("run-1")) == 1, "a loser changed the run of the winner"
    shutil.rmtree(folder)


def race(folder: Path, work: Callable[[FileStore], None], delays: Sequence[float]) -> list[str]:
    """What each process got: `won` or a code."""
    answers, answer = os.pipe()
    begin, begun = os.pipe()
    stay, end = os.pipe()
    children = []
    for delay in delays:
        if not (child := os.fork()):
            for other in (begun, end):
                os.close(other)
            os.read(begin, 1)  # until the parent closes the other end
            time.sleep(delay)
            os.write(answer, f"{_attempt(folder, work)}\n".encode())
            os.read(stay, 1)
            os._exit(0)
        children.append(child)
    for own in (begin, begun, stay):
        os.close(own)
    got = b""
    while got.count(b"\n") < len(delays):
        got += os.read(answers, 4096)
    os.close(end)
    for child in children:
        os.waitpid(child, 0)
    for own in (answers, answer):
        os.close(own)
    return got.decode().split("\n")[:-1]


def _attempt(folder: Path, work: Callable[[FileStore], None]) -> str:
    try:
        work(FileStore(Project(folder), sync="process"))
    except AgentrunError as error:
        return error.code
    except BaseException as error:  # noqa: BLE001  # it is shown
        return repr(error)
    return "won"


def random_delays(chance: Random) -> list[float]:
    return [chance.uniform(0, MAX_DELAY) for _ in range(PROCESSES)]


def main(races: int = RACES) -> int:
    """`races`: how many of each kind."""
    seed = choose_seed()
    chance = Random(seed)  # noqa: S311  # reproducible, not secret
    with tempfile.TemporaryDirectory(prefix="races-") as name:
        os.environ["XDG_STATE_HOME"] = f"{name}/state"  # the ids of these stores are not in the home directory
        cases = []
        for number, work in enumerate(KINDS * races):
            folder = Path(name) / str(number)
            case = partial(_run_case, folder, work, random_delays(chance))
            cases.append(Case(f"{work.__name__} {number}", case))
        least = min(LEAST_RACES, len(cases))
        return run_series("races", cases, seed, least=least, workers=1)  # the processes of a race use all cores


def _run_case(folder: Path, work: Callable[[FileStore], None], delays: Sequence[float], _worker: int) -> None:
    check_race(folder, work, delays)


if __name__ == "__main__":
    sys.exit(main())
