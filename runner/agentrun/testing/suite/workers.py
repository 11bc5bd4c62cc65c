"""Run cases in several processes.

Rule 1  Results come in the order of the cases.
Rule 2  If a process dies, its current case fails, and another process runs the rest of its batch.
Rule 3  If several processes in a row die without a result, no more are started, and the remaining cases fail.
Rule 4  No process is left behind, however this ends.
Rule 5  A worker (`python -P -m agentrun.testing.suite.workers`) reads lines of JSON: first the options, then batches of
        cases (`{"file": …, "names": […]}`). It writes one line for each case, in their order. After the line
        `{"end": true}` it writes the coverage and ends. It ends at once if its input is closed, even during a case.
Rule 6  The output of cases goes to standard error of the worker. Its standard output has only results.
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

from agentrun.testing.suite.coverage import CoverageCollector
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.runner import CaseResult, SuiteOptions, SuiteRunner, relaxed_garbage_collection
from agentrun.testing.suite.verdict import CaseFailure, case_verdict

WORKER_COMMAND = (sys.executable, "-P", "-m", "agentrun.testing.suite.workers")
MAX_BATCH = 16
MAX_DEATHS = 5
"""Processes in a row that may die without a result."""
WORKER_END_SECONDS = 2.0


class _Worker:
    def __init__(self, options: SuiteOptions) -> None:
        self.process = subprocess.Popen(  # a new session, so that Ctrl-C reaches only the main process
            WORKER_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.batch: deque[int] | None = None
        """Indexes of its cases, all of one file."""
        self._rest = b""
        self.send(options)

    def send(self, what: Any) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it died, which the end of its output shows too
            self.process.stdin.write(msgspec.json.encode(what) + b"\n")
            self.process.stdin.flush()

    def lines(self) -> list[bytes] | None:
        """The next complete lines. None: its output has ended."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        return whole

    def end(self) -> int:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # it did not read all of its input
                stream.close()
        try:
            return self.process.wait(WORKER_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Workers:
    def __init__(
        self, cases: Sequence[LocatedCase], options: SuiteOptions, count: int, coverage: CoverageCollector
    ) -> None:
        self._cases = cases
        self._options = options
        self._count = count
        self._coverage = coverage
        self._batches = deque(_plan_batches(cases, max(1, min(MAX_BATCH, len(cases) // (count * 4)))))
        self._done: dict[int, CaseResult] = {}
        self._next = 0
        self._deaths = 0
        self._ready = selectors.DefaultSelector()
        self._workers: list[_Worker] = []

    def results(self) -> Iterator[CaseResult]:
        """All results in order. A caller that does not take all must `close` the generator to end the processes."""
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
        worker = _Worker(self._options)
        self._workers.append(worker)
        assert worker.process.stdout is not None
        self._ready.register(worker.process.stdout, selectors.EVENT_READ, worker)
        self._send_batch(worker)

    def _send_batch(self, worker: _Worker) -> None:
        if not self._batches:
            worker.send(CaseBatch(end=True))
            return
        worker.batch = self._batches.popleft()
        first = self._cases[worker.batch[0]]
        names = tuple(self._cases[index].case.name for index in worker.batch)
        worker.send(CaseBatch(file=str(first.file), names=names))

    def _read_results(self, worker: _Worker) -> None:
        lines = worker.lines()
        if lines is None:
            self._replace_dead_worker(worker)
            return
        for line in lines:
            if worker.batch is None:
                self._coverage.merge(msgspec.json.decode(line))
                continue
            self._done[worker.batch.popleft()] = msgspec.json.decode(line, type=CaseResult)
            self._deaths = 0
            if not worker.batch:
                worker.batch = None
                self._send_batch(worker)

    def _replace_dead_worker(self, worker: _Worker) -> None:
        self._ready.unregister(worker.process.stdout)  # type: ignore[arg-type]  # it is a pipe
        self._workers.remove(worker)
        code = worker.end()
        if worker.batch is None:
            return
        failed = [worker.batch.popleft()]
        if worker.batch:
            self._batches.appendleft(worker.batch)
        self._deaths += 1
        if self._deaths >= MAX_DEATHS:
            failed += [index for batch in self._batches for index in batch]
            self._batches.clear()
        self._done.update((index, _worker_died_result(self._cases[index], code)) for index in failed)
        if self._batches:
            self._start_worker()


def _plan_batches(cases: Sequence[LocatedCase], size: int) -> Iterator[deque[int]]:
    batch: deque[int] = deque()
    for index, located in enumerate(cases):
        if batch and (len(batch) == size or cases[batch[0]].file != located.file):
            yield batch
            batch = deque()
        batch.append(index)
    if batch:
        yield batch


def _worker_died_result(located: LocatedCase, code: int) -> CaseResult:
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    failure = CaseFailure(assertion="worker", message=f"the process that ran this case ended with {how}")
    return CaseResult(verdict=case_verdict(located, "failed", failure))


class CaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    file: str = ""
    names: tuple[str, ...] = ()
    end: bool = False


def serve_cases() -> None:
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    lines: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_read_batches, args=(lines,), name="agentrun-batches", daemon=True).start()
    coverage = CoverageCollector()
    suite = SuiteRunner(msgspec.json.decode(lines.get(), type=SuiteOptions), coverage=coverage)
    with relaxed_garbage_collection():
        _run_batches(suite, lines, results)
    results.write(msgspec.json.encode(coverage.to_dict()) + b"\n")
    results.close()
    os._exit(0)  # does not wait for threads that a case may have left running


def _run_batches(suite: SuiteRunner, lines: SimpleQueue[bytes], results: BinaryIO) -> None:
    known: dict[str, dict[str, LocatedCase]] = {}
    while not (batch := msgspec.json.decode(lines.get(), type=CaseBatch)).end:
        if batch.file not in known:
            known[batch.file] = {located.case.name: located for located in read_located_cases(Path(batch.file))}
        for name in batch.names:
            results.write(msgspec.json.encode(suite.run_case(known[batch.file][name])) + b"\n")
            results.flush()


def _read_batches(lines: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(1)


if __name__ == "__main__":
    serve_cases()
