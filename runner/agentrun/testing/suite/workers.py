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
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.spec.files import shown_path
from agentrun.testing.suite.carried import Orders, Result
from agentrun.testing.suite.coverage import Covering
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.verdict import Complaint, Verdict
from agentrun.testing.suite.worker import Portion

COMMAND = (sys.executable, "-P", "-m", "agentrun.testing.suite.worker")
MOST = 16
"""Cases in a portion."""
MOST_DEATHS = 5
"""Processes that may die one after the other without a result."""
PATIENCE = 2.0
"""Seconds that a process has to end."""


class _Share(Struct):
    """What a worker has to do: the places of cases, all of one file."""

    places: deque[int]


class _Worker:
    def __init__(self, orders: Orders) -> None:
        self.process = subprocess.Popen(  # a session of its own: Ctrl-C at the terminal is ours to handle
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.share: _Share | None = None
        self.is_over = False
        """Whether it was told that nothing follows."""
        self._rest = b""
        self.tell(orders)

    def tell(self, what: Any) -> None:
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
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Workers:
    """Some processes, and what they have to do."""

    def __init__(self, cases: Sequence[Found], orders: Orders, count: int, covering: Covering) -> None:
        self._cases = cases
        self._orders = orders
        self._count = count
        self._covering = covering
        self._shares = deque(_shares(cases, max(1, min(MOST, len(cases) // (count * 4)))))
        self._done: dict[int, Result] = {}
        self._next = 0
        self._deaths = 0
        self._ready = selectors.DefaultSelector()
        self._workers: list[_Worker] = []

    def results(self) -> Iterator[Result]:
        """All results, in order. Who does not take all ends the processes with `close`."""
        try:
            for _ in range(min(self._count, len(self._shares))):
                self._hire()
            while self._workers:
                for key, _ in self._ready.select():
                    self._hear(key.data)
                while self._next in self._done:
                    yield self._done.pop(self._next)
                    self._next += 1
        finally:
            for worker in self._workers:
                worker.process.terminate()
            for worker in self._workers:
                worker.end()
            self._ready.close()

    def _hire(self) -> None:
        worker = _Worker(self._orders)
        self._workers.append(worker)
        assert worker.process.stdout is not None
        self._ready.register(worker.process.stdout, selectors.EVENT_READ, worker)
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        if not self._shares:
            worker.is_over = True
            worker.tell(Portion(end=True))
            return
        worker.share = self._shares.popleft()
        first = self._cases[worker.share.places[0]]
        names = tuple(self._cases[place].case.name for place in worker.share.places)
        worker.tell(Portion(file=str(first.file), names=names))

    def _hear(self, worker: _Worker) -> None:
        lines = worker.lines()
        if lines is None:
            self._bury(worker)
            return
        for line in lines:
            if worker.share is None:
                self._covering.merge(msgspec.json.decode(line))
                continue
            self._done[worker.share.places.popleft()] = msgspec.json.decode(line, type=Result)
            self._deaths = 0
            if not worker.share.places:
                worker.share = None
                self._give(worker)

    def _bury(self, worker: _Worker) -> None:
        self._ready.unregister(worker.process.stdout)  # type: ignore[arg-type]  # it is a pipe
        self._workers.remove(worker)
        code = worker.end()
        if worker.share is None:
            return
        place = worker.share.places.popleft()
        self._done[place] = _died(self._cases[place], code)
        if worker.share.places:
            self._shares.appendleft(worker.share)
        self._deaths += 1
        if self._deaths >= MOST_DEATHS:
            for place in (place for share in self._shares for place in share.places):
                self._done[place] = _died(self._cases[place], code)
            self._shares.clear()
        if self._shares:
            self._hire()


def _shares(cases: Sequence[Found], most: int) -> Iterator[_Share]:
    """The places of cases, in portions of one file each."""
    share: deque[int] = deque()
    for place, found in enumerate(cases):
        if share and (len(share) == most or cases[share[0]].file != found.file):
            yield _Share(share)
            share = deque()
        share.append(place)
    if share:
        yield _Share(share)


def _died(found: Found, code: int) -> Result:
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    wrong = Complaint(claim="worker", message=f"the process that ran this case ended with {how}")
    file = shown_path(found.file)
    return Result(verdict=Verdict(id=found.id, file=file, line=found.line, status="failed", complaints=(wrong,)))
