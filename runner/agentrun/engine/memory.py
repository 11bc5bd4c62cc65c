"""Journals with their packages, and blobs by hash, in memory.

A journal has one owner. A new owner gets the next epoch, and then the previous owner cannot write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from agentrun.canonical_json import text_hash
from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import Record, RunResumed, RunStarted, RunStopped
from agentrun.engine.ports import Journal
from agentrun.errors import PackageError, StorageError, run_not_found_error
from agentrun.journal.storage import MemoryJournal
from agentrun.store.run_order import RunPlace


class Journals(Protocol):
    def __contains__(self, run: object) -> bool:
        """Whether a run has a record."""

    def keep(self, run: str, package: PackageFile) -> None: ...
    def open(self, run: str) -> Journal: ...

    def package(self, run: str, fingerprint: str) -> PackageFile:
        """A package that was kept with a run. Raises `recovery.failed`."""

    def records(self, run: str) -> Iterable[Record]:
        """Raises `run.not_found`."""


def stored_package(journals: Journals, run: str) -> PackageFile:
    facts = (record.fact for record in journals.records(run))
    *_, pinned = (fact.package for fact in facts if isinstance(fact, RunStarted | RunResumed))
    package = journals.package(run, pinned)
    if package.fingerprint != pinned:
        message, fields = f"the package stored with the run {run} has another fingerprint", {"pinned": pinned}
        raise PackageError("package.fingerprint_mismatch", message, fields={**fields, "found": package.fingerprint})
    return package


class MemoryJournals:
    """Journals and packages of runs, in memory."""

    def __init__(self) -> None:
        self._journals: dict[str, MemoryJournal] = {}
        self._packages: dict[tuple[str, str], PackageFile] = {}
        self._epochs: dict[str, int] = {}
        self._order: list[str] = []
        """The runs without a parent, as they began."""

    def __contains__(self, run: object) -> bool:
        return run in self._journals and bool(self._journals[run].records())

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(run for run in self._journals if run in self)

    def keep(self, run: str, package: PackageFile) -> None:
        self._packages[run, package.fingerprint] = package

    def package(self, run: str, fingerprint: str) -> PackageFile:
        if (run, fingerprint) not in self._packages:
            message = f"the package of the run {run} was not stored with it"
            raise StorageError("recovery.failed", message, fields={"run": run, "package": fingerprint})
        return self._packages[run, fingerprint]

    def open(self, run: str) -> Journal:
        journal = self._journals.setdefault(run, MemoryJournal())
        self._epochs[run] = self._epochs.get(run, 0) + 1
        return _OwnedJournal(self, run, journal, self._epochs[run])

    def records(self, run: str) -> tuple[Record, ...]:
        if run not in self:
            raise run_not_found_error(run)
        return self._journals[run].records()

    def tail(self, run: str) -> MemoryTail:
        return MemoryTail(self._journals, run)

    def runs_after(self, place: RunPlace) -> list[RunPlace] | None:
        if place.offset and self._order[place.offset - 1 : place.offset] != [place.run]:
            return None
        return [RunPlace(n, run) for n, run in enumerate(self._order[place.offset :], place.offset + 1)]

    def unfinished(self, runs: Iterable[str]) -> list[str]:
        return [run for run in runs if not isinstance(self.records(run)[-1].fact, RunStopped)]

    def watch(self) -> None:
        """No other process writes here."""

    def text(self, run: str) -> bytes:
        return self._journals[run].text()

    def restore(self, run: str, records: Iterable[Record]) -> None:
        self._journals[run] = MemoryJournal(records)
        self._epochs[run] = self._journals[run].epoch - 1
        for record in self._journals[run].records()[:1]:
            self._add_to_order(run, record)

    def append(self, run: str, record: Record) -> None:
        """Raises `journal.stale_owner` if the owner of the record is not the latest."""
        if record.epoch != self._epochs[run]:
            fields = {"seq": record.seq, "epoch": record.epoch, "owner": self._epochs[run]}
            raise StorageError("journal.stale_owner", f"another process has taken over the run {run}", fields=fields)
        self._journals[run].append(record)
        self._add_to_order(run, record)

    def _add_to_order(self, run: str, record: Record) -> None:
        fact = record.fact
        if isinstance(fact, RunStarted) and fact.parent is None and run not in self._order:
            self._order.append(run)


class MemoryTail:
    def __init__(self, journals: Mapping[str, MemoryJournal], run: str) -> None:
        self._journals = journals
        self._run = run
        self._seq = 0

    def read(self) -> Iterator[Record]:
        for record in self._journals[self._run].records_after(self._seq) if self._run in self._journals else ():
            self._seq = record.seq
            yield record


class _OwnedJournal:
    def __init__(self, journals: MemoryJournals, run: str, journal: MemoryJournal, epoch: int) -> None:
        self._journals = journals
        self._run = run
        self._journal = journal
        self.epoch = epoch
        self.torn = 0
        self.records = journal.records
        self.lines_after = journal.lines_after

    @property
    def head(self) -> str:
        return self._journal.head

    def append(self, record: Record) -> None:
        self._journals.append(self._run, record)


class MemoryBlobs:
    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        blob = text_hash(data)
        self._contents[blob] = data
        return blob

    def __contains__(self, blob: object) -> bool:
        return blob in self._contents

    def get(self, blob: str) -> bytes:
        return self._contents[blob]
