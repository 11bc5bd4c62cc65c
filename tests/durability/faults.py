"""`make faults`: disks that fail, fill up or cannot be written, and limits of the process, in real runs.

    python -m tests.durability.faults [--seed N]

Rule 1  The command of a run whose store fails goes on, or ends with exit code 7 or 8. It is never killed by the fault,
        and never a bug of agentrun (70).
Rule 2  After a record that could not be written or synced, that process writes nothing to the journal.
Rule 3  When the disk works again, other commands continue the run, and it ends like one that nothing disturbed.
Rule 4  If the directory of a run is gone, no other call starts.
Rule 5  A file of the project that cannot be opened is no bug of agentrun either, and nothing happens twice.
Rule 6  All other system calls fail only on files of the store. strace counts calls, and how many files a process opens
        before differs a little, because a run looks for messages from time to time. A fault that hits another file is
        aimed again. If it never hits the store, that is no case, and is counted apart.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from .crash import Undisturbed
from .dying_command import CALLS, NO_INJECTION, WAIT_FOR_STRACE, inject
from .killed_run import FAILED, KILLED, RESULTS, WAITS, Fault, KilledRun
from .outside_world import Effect, OutsideWorld
from .series import Case, CaseMissed, choose_seed, run_series

KINDS = ("signal=SIGKILL", "error=EIO", "error=ENOSPC")
MORE_KINDS = {"openat": ("error=EMFILE", "error=EROFS"), "write": ("error=EDQUOT", "error=EROFS")}
DISK_SIZE = 512
"""KiB of a small file system."""
AIMS = 8
"""How often a fault is aimed at a call."""
_CALL = re.compile(r'([0-9]+ +)?([a-z0-9]+)\((?:AT_FDCWD|[0-9]+)(?:<([^>]*)>)?(?:, "([^"]*)")?')
_STORES = (".agentrun", ".local")
"""Directories of the store, and of the ids of stores."""
_JOURNAL = re.compile(r"(?:write|fdatasync)\([0-9]+<([^>]*/journal\.jsonl)>")


# --- what this machine allows ----------------------------------------------------------------------------------------


@cache
def tracing_problem() -> str | None:
    """Why strace cannot be used here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed; on Debian and Ubuntu: apt-get install strace"
    with subprocess.Popen([sys.executable, "-c", WAIT_FOR_STRACE]) as process:
        try:
            with inject(process.pid, "fdatasync:error=EIO:when=1", Path(os.devnull)):
                return None
        except AssertionError:
            return "strace is not allowed to trace processes here"


@cache
def mounting_problem() -> str | None:
    """Why no file system can be mounted here, or None."""
    try:
        with tempfile.TemporaryDirectory() as folder, mounted(Path(folder)):
            return None
    except (OSError, subprocess.CalledProcessError):
        return "mounting a file system is not allowed here"


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A small file system in memory, on this folder."""
    given = ",".join((f"size={DISK_SIZE}k", "mode=700", *options))
    subprocess.run(["mount", "-t", "tmpfs", "-o", given, "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


# --- system calls that fail ------------------------------------------------------------------------------------------


class FaultCases:
    def __init__(self, folder: Path, worlds: Sequence[OutsideWorld]) -> None:
        self._folder = folder
        self._worlds = worlds
        self._undisturbed = Undisturbed("batch", folder, worlds)

    def system_calls(self) -> list[Case]:
        """Each system call on a file of the store fails, or the process is killed in it."""
        run = KilledRun("batch", self._folder / "traced", self._worlds[0])
        run.run([Fault(NO_INJECTION)])
        found: list[tuple[StoreCall, str]] = []
        for name in CALLS:
            places = store_places(run.trace, name)
            calls = (StoreCall(name, number, place) for number, place in enumerate(places, 1))
            found += [(call, kind) for call in calls for kind in (*KINDS, *MORE_KINDS.get(name, ()))]
        return [Case(f"{call} {kind}", partial(self.try_call, call, kind)) for call, kind in found]

    def other_files(self) -> list[Case]:
        """Files of the project and of imports cannot be opened. The run may fail, or never begin."""
        run = KilledRun("batch", self._folder / "traced-files", self._worlds[0])
        run.run([Fault(NO_INJECTION)])
        places = {*range(1, count_calls(run.trace, "openat") + 1)}.difference(store_places(run.trace, "openat"))
        return [Case(f"file {place}", partial(self._try_other_file, place)) for place in sorted(places)]

    def _try_other_file(self, place: int, worker: int) -> None:
        run = self._undisturbed.new_run(worker)
        code, text = run.execute(run.start_command, Fault(f"openat:error=EIO:when={place}"))
        assert code in (0, 2, 6, FAILED, WAITS), f"exit {code}\n{text}"
        run.check_integrity()
        shutil.rmtree(run.project.root)

    def try_call(self, call: StoreCall, kind: str, worker: int) -> None:
        place = call.place
        for _ in range(AIMS):
            run = self._undisturbed.new_run(worker)
            code, text = run.execute(run.start_command, Fault(f"{call.name}:{kind}:when={place}"))
            places = store_places(run.trace, call.name)
            if place in places:
                assert code in (0, FAILED, WAITS, *([KILLED] if "signal" in kind else [])), f"exit {code}\n{text}"
                check_poisoned(run)
                self._undisturbed.finish(run)
                return
            run.check_integrity()
            shutil.rmtree(run.project.root)
            missing = call.number - len(places)
            place = place + missing if missing > 0 else places[call.number - 1]
        raise CaseMissed

    def try_fault(self, fault: Fault, worker: int) -> None:
        self._undisturbed.try_disturbances([fault], worker)

    # --- limits of the process ---------------------------------------------------------------------------------------

    def file_sizes(self) -> list[Case]:
        """No file can grow beyond a size. The first sign is a short write."""
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"
        faults = (Fault(prelude=limit.format(size)) for size in (0, 1, 100, *range(1000, 40_000, 777)))
        return [Case(str(fault), partial(self.try_fault, fault)) for fault in faults]

    def open_files(self) -> list[Case]:
        """No more files can be opened. This also stops connections, so that the run may fail at its provider."""
        return [Case(f"{count} files", partial(self._try_open_files, count)) for count in range(4, 30)]

    def _try_open_files(self, count: int, worker: int) -> None:
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({count}, {count}))"
        run = KilledRun("batch", self._new_folder(f"files-{count}"), self._worlds[worker])
        code, text = run.execute(run.start_command, Fault(prelude=limit))
        assert code in (0, 2, 6, FAILED, WAITS), f"exit {code}\n{text}"
        run.check_integrity()
        shutil.rmtree(run.project.root)

    def full_output(self) -> list[Case]:
        fault = Fault(output="/dev/full", codes=(0, 1, FAILED, WAITS))
        return [Case("standard output is full", partial(self.try_fault, fault))]

    # --- file systems ------------------------------------------------------------------------------------------------

    def full_disks(self) -> list[Case]:
        """There is space for so many KiB. When more is free, the run continues."""
        spaces = (0, *range(4, 160, 4))
        return [Case(f"{space} KiB of space", partial(self._try_full_disk, space)) for space in spaces]

    def _try_full_disk(self, space: int, worker: int) -> None:
        disk = self._new_folder(f"disk-{space}")
        disk.mkdir()
        with mounted(disk):
            filler = disk / "filler"
            filler.write_bytes(bytes((DISK_SIZE - space) * 1024))
            fault = Fault(prelude=f"{space} * 1024", repair=filler.unlink)
            self._undisturbed.try_disturbances([fault], worker, disk / "store")
        disk.rmdir()

    def read_only_disk(self) -> list[Case]:
        return [Case("a file system that is read-only", self._try_read_only)]

    def _try_read_only(self, worker: int) -> None:
        disk = self._new_folder("read-only")
        disk.mkdir()
        world = self._worlds[worker]
        with mounted(disk, "ro"):
            run = KilledRun("batch", self._new_folder("run-read-only"), world, store=disk / "store")
            code, text = run.execute(run.start_command, Fault(prelude="None"))
            assert (code, run.events) == (FAILED, 0), f"exit {code}, {run.events} events\n{text}"
            assert "AGENTRUN_STORE" in text, text

    def removed_directories(self) -> list[Case]:
        """The directory of the run is removed at any event of the world."""
        events = range(1, self._undisturbed.command.events - 1)
        return [Case(f"directory removed at event {event}", partial(self._try_removed, event)) for event in events]

    def _try_removed(self, event: int, worker: int) -> None:
        world = self._worlds[worker]
        run = KilledRun("batch", self._new_folder(f"removed-{event}"), world)
        allowed: set[Effect] = set()

        def remove(effect: Effect | None) -> bool:
            allowed.update(world.happened(), *([{effect}] if effect else []))
            shutil.rmtree(run.project.store_directory / "runs")
            return False

        code, text = run.execute(run.start_command, Fault(prelude="None", event=event, action=remove))
        assert code == FAILED, f"exit {code}\n{text}"
        later = [effect for effect in world.happened() if effect not in allowed and effect.tool in RESULTS]
        assert not later, f"started after the directory was removed: {later}"
        assert max(world.happened().values(), default=1) == 1
        shutil.rmtree(run.project.root)

    def _new_folder(self, name: str) -> Path:
        return self._folder / name


class StoreCall(NamedTuple):
    name: str
    number: int
    """Which of the calls with this name on files of the store."""
    place: int
    """Which of all calls with this name, in the run that was traced."""

    def __str__(self) -> str:
        return f"{self.name} {self.number}"


def store_places(trace: Path, name: str) -> list[int]:
    """The places of the calls on files of the store among the calls with this name, from 1. They are of the main
    thread: no other one may change the store."""
    places, number, main = [], 0, None
    for thread, call, above, below in filter(None, map(_parse_call, trace.read_text(encoding="utf-8").splitlines())):
        main = main or thread
        is_of_store = not {*_STORES}.isdisjoint(f"{above}/{below}".split("/"))
        assert thread == main or not is_of_store, f"{call} of another thread: {above} {below}"
        if call == name and thread == main:
            number += 1
            if is_of_store:
                places.append(number)
    return places


def count_calls(trace: Path, name: str) -> int:
    """How many calls with this name the main thread makes."""
    calls = [*filter(None, map(_parse_call, trace.read_text(encoding="utf-8").splitlines()))]
    return sum((thread, call) == (calls[0][0], name) for thread, call, *_ in calls)


def _parse_call(line: str) -> tuple[str, str, str, str] | None:
    """The thread, the name of the call, the path of its descriptor, and the name below it."""
    if (found := _CALL.match(line)) is None:
        return None
    thread, call, above, below = (text or "" for text in found.groups())
    return thread, call, above, below if call.endswith("at") else ""


def check_poisoned(run: KilledRun) -> None:
    """Raise AssertionError if a journal is written or synced again after that failed."""
    failed: set[str] = set()
    for line in run.trace.read_text(encoding="utf-8").splitlines():
        if (found := _JOURNAL.search(line)) is not None:
            assert found[1] not in failed, f"written after a failure: {line}"
            if "(INJECTED)" in line and "= -1" in line:
                failed.add(found[1])


def main() -> int:
    seed = choose_seed()
    chance = Random(seed)  # noqa: S311  # reproducible, not secret
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        cases = FaultCases(folder, [stack.enter_context(OutsideWorld()) for _ in range(os.cpu_count() or 1)])
        chosen = [*cases.file_sizes(), *cases.open_files(), *cases.full_output(), *cases.removed_directories()]
        for problem, makers in (
            (tracing_problem(), (cases.system_calls, cases.other_files)),
            (mounting_problem(), (cases.full_disks, cases.read_only_disk)),
        ):
            if problem is None:
                chosen += [case for make in makers for case in make()]
            else:
                sys.stderr.write(f"faults: skipped {', '.join(make.__name__ for make in makers)}: {problem}\n")
        chance.shuffle(chosen)
        return run_series("faults", chosen, seed)


if __name__ == "__main__":
    sys.exit(main())
