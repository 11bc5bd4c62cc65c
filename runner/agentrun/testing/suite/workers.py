"""Cases carried out by several processes at once.

Rule 1  Results come in the order of the cases, whoever is ready first.
Rule 2  A process that dies fails the case that it was at; what it had not begun is done by another.
Rule 3  Where one after the other dies and nothing comes of it, none is started any more: the cases that are left fail.
Rule 4  However this ends, no process is left.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from agentrun.spec.source_files import display_path
from agentrun.testing.suite.coverage import CoverageCollector
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.runner import CaseResult, SuiteOptions, SuiteRunner, relaxed_garbage_collection
from agentrun.testing.suite.verdict import CaseVerdict, Complaint

WORKER_COMMAND = (sys.executable, "-P", "-m", "agentrun.testing.suite.workers")
MAX_BATCH = 16
"""Cases in a portion."""
MAX_DEATHS = 5
"""Processes that may die one after the other without a result."""
WORKER_END_SECONDS = 2.0
"""Seconds that a process has to end."""


class _BatchPlan(Struct):
    """What a worker has to do: the places of cases, all of one file."""

    places: deque[int]


class _Worker:
    def __init__(self, orders: SuiteOptions) -> None:
        self.process = subprocess.Popen(  # a session of its own: Ctrl-C at the terminal is ours to handle
            WORKER_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.batch: _BatchPlan | None = None
        self.is_over = False
        """Whether it was told that nothing follows."""
        self._rest = b""
        self.send(orders)

    def send(self, what: Any) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead, which its output says too
            self.process.stdin.write(msgspec.json.encode(what) + b"\n")
            self.process.stdin.flush()

    def lines(self) -> list[bytes] | None:
        """The lines that have come. None: there is no more."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        return whole

    def end(self) -> int:
        """End it, if it has not. How it ended."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # what it did not read is read by nobody
                stream.close()
        try:
            return self.process.wait(WORKER_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Workers:
    """Some processes, and what they have to do."""

    def __init__(
        self, cases: Sequence[LocatedCase], orders: SuiteOptions, count: int, covering: CoverageCollector
    ) -> None:
        self._cases = cases
        self._orders = orders
        self._count = count
        self._covering = covering
        self._batches = deque(_plan_batches(cases, max(1, min(MAX_BATCH, len(cases) // (count * 4)))))
        self._done: dict[int, CaseResult] = {}
        self._next = 0
        self._deaths = 0
        self._ready = selectors.DefaultSelector()
        self._workers: list[_Worker] = []

    def results(self) -> Iterator[CaseResult]:
        """All results, in order. Who does not take all ends the processes with `close`."""
        try:
            for _ in range(min(self._count, len(self._batches))):
                self._start_worker()
            while self._workers:
                for key, _ in self._ready.select():
                    self._read_results(key.data)
                while self._next in self._done:
                    yield self._done.pop(self._next)
                    self._next += 1
        finally:
            for worker in self._workers:
                worker.process.terminate()
            for worker in self._workers:
                worker.end()
            self._ready.close()

    def _start_worker(self) -> None:
        worker = _Worker(self._orders)
        self._workers.append(worker)
        assert worker.process.stdout is not None
        self._ready.register(worker.process.stdout, selectors.EVENT_READ, worker)
        self._send_batch(worker)

    def _send_batch(self, worker: _Worker) -> None:
        if not self._batches:
            worker.is_over = True
            worker.send(CaseBatch(end=True))
            return
        worker.batch = self._batches.popleft()
        first = self._cases[worker.batch.places[0]]
        names = tuple(self._cases[place].case.name for place in worker.batch.places)
        worker.send(CaseBatch(file=str(first.file), names=names))

    def _read_results(self, worker: _Worker) -> None:
        lines = worker.lines()
        if lines is None:
            self._replace_dead_worker(worker)
            return
        for line in lines:
            if worker.batch is None:
                self._covering.merge(msgspec.json.decode(line))
                continue
            self._done[worker.batch.places.popleft()] = msgspec.json.decode(line, type=CaseResult)
            self._deaths = 0
            if not worker.batch.places:
                worker.batch = None
                self._send_batch(worker)

    def _replace_dead_worker(self, worker: _Worker) -> None:
        self._ready.unregister(worker.process.stdout)  # type: ignore[arg-type]  # it is a pipe
        self._workers.remove(worker)
        code = worker.end()
        if worker.batch is None:
            return
        place = worker.batch.places.popleft()
        self._done[place] = _worker_died_result(self._cases[place], code)
        if worker.batch.places:
            self._batches.appendleft(worker.batch)
        self._deaths += 1
        if self._deaths >= MAX_DEATHS:
            for place in (place for share in self._batches for place in share.places):
                self._done[place] = _worker_died_result(self._cases[place], code)
            self._batches.clear()
        if self._batches:
            self._start_worker()


def _plan_batches(cases: Sequence[LocatedCase], most: int) -> Iterator[_BatchPlan]:
    """The places of cases, in portions of one file each."""
    share: deque[int] = deque()
    for place, found in enumerate(cases):
        if share and (len(share) == most or cases[share[0]].file != found.file):
            yield _BatchPlan(share)
            share = deque()
        share.append(place)
    if share:
        yield _BatchPlan(share)


def _worker_died_result(found: LocatedCase, code: int) -> CaseResult:
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    wrong = Complaint(claim="worker", message=f"the process that ran this case ended with {how}")
    file = display_path(found.file)
    return CaseResult(
        verdict=CaseVerdict(id=found.id, file=file, line=found.line, status="failed", complaints=(wrong,))
    )


# --- a process that carries cases out for another: `python -P -m agentrun.testing.suite.workers` --------------


class CaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Some cases of one file, or the end."""

    file: str = ""
    names: tuple[str, ...] = ()
    end: bool = False


def serve_cases() -> None:
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    lines: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_read_batches, args=(lines,), name="agentrun-portions", daemon=True).start()
    covering = CoverageCollector()
    suite = SuiteRunner(msgspec.json.decode(lines.get(), type=SuiteOptions), covering=covering)
    with relaxed_garbage_collection():
        _run_batches(suite, lines, results)
    results.write(msgspec.json.encode(covering.to_dict()) + b"\n")
    results.close()
    os._exit(0)  # nothing is left to do, and nobody waits for what a case may have left running


def _run_batches(suite: SuiteRunner, lines: SimpleQueue[bytes], results: BinaryIO) -> None:
    known: dict[str, dict[str, LocatedCase]] = {}
    while not (portion := msgspec.json.decode(lines.get(), type=CaseBatch)).end:
        if portion.file not in known:
            known[portion.file] = {found.case.name: found for found in read_located_cases(Path(portion.file))}
        for name in portion.names:
            results.write(msgspec.json.encode(suite.run_case(known[portion.file][name])) + b"\n")
            results.flush()


def _read_batches(lines: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(1)


if __name__ == "__main__":
    serve_cases()
