"""Where runs live as long as their process: journals with their packages, and contents by hash.

Rule 1  The package is stored with the run, before its first record.
Rule 2  A journal has one owner. Who takes it over gets the next epoch; from then on the owner before cannot write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from agentrun.canonical_json import text_hash
from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import Record, RunResumed, RunStarted
from agentrun.engine.ports import Journal
from agentrun.engine.request import run_not_found_error
from agentrun.errors import PackageError, StorageError
from agentrun.journal.storage import MemoryJournal


class Journals(Protocol):
    """The journals of all runs."""

    def __contains__(self, run: object) -> bool:
        """Whether a run has a record."""

    def keep(self, run: str, package: PackageFile) -> None:
        """Store a package with a run that is about to begin, or to go on, with it."""

    def package(self, run: str, fingerprint: str) -> PackageFile:
        """A package that was stored with a run. Raises `recovery.failed`."""

    def open(self, run: str) -> Journal:
        """The journal of a run for its next owner; a new one for a new run."""

    def records(self, run: str) -> Iterable[Record]:
        """What a run's journal holds, for readers. Raises `run.not_found`."""


def stored_package(journals: Journals, run: str) -> PackageFile:
    """The package that a run goes on with. Raises `run.not_found`, `recovery.failed`."""
    facts = (record.fact for record in journals.records(run))
    *_, pinned = (fact.package for fact in facts if isinstance(fact, RunStarted | RunResumed))
    package = journals.package(run, pinned)
    if package.fingerprint != pinned:
        message, fields = f"the package stored with the run {run} is another one", {"pinned": pinned}
        raise PackageError("package.fingerprint_mismatch", message, fields={**fields, "found": package.fingerprint})
    return package


class MemoryJournals:
    def __init__(self) -> None:
        self._journals: dict[str, MemoryJournal] = {}
        self._packages: dict[tuple[str, str], PackageFile] = {}
        self._epochs: dict[str, int] = {}

    def __contains__(self, run: object) -> bool:
        return run in self._journals and bool(self._journals[run].records())

    @property
    def runs(self) -> tuple[str, ...]:
        """All runs, children included, in the order in which they began."""
        return tuple(run for run in self._journals if run in self)

    def keep(self, run: str, package: PackageFile) -> None:
        self._packages[run, package.fingerprint] = package

    def package(self, run: str, fingerprint: str) -> PackageFile:
        if (run, fingerprint) not in self._packages:
            message = f"the package of the run {run} was not stored with it"
            raise StorageError("recovery.failed", message, fields={"run": run, "package": fingerprint})
        return self._packages[run, fingerprint]

    def open(self, run: str) -> Journal:
        self._journals.setdefault(run, MemoryJournal())
        self._epochs[run] = self._epochs.get(run, 0) + 1
        return _OwnedJournal(self, run, self._epochs[run])

    def records(self, run: str) -> tuple[Record, ...]:
        if run not in self:
            raise run_not_found_error(run)
        return self._journals[run].records()

    def lines_after(self, run: str, seq: int) -> Iterable[bytes]:
        """The lines of a run's records after this one."""
        return self._journals[run].lines_after(seq)

    def text(self, run: str) -> bytes:
        """The file that a run's journal would be."""
        return self._journals[run].text()

    def restore(self, run: str, records: Iterable[Record]) -> None:
        """Take in the journal of a run that began elsewhere."""
        journal, epoch = MemoryJournal(), 0
        for record in records:
            journal.append(record)
            epoch = record.epoch
        self._journals[run], self._epochs[run] = journal, epoch

    def append(self, run: str, record: Record) -> None:
        """Write for an owner. Raises `journal.stale_owner` for one that is not the latest."""
        if record.epoch != self._epochs[run]:
            fields = {"seq": record.seq, "epoch": record.epoch, "owner": self._epochs[run]}
            raise StorageError("journal.stale_owner", f"another owner has gone on with the run {run}", fields=fields)
        self._journals[run].append(record)

    def head(self, run: str) -> str:
        return self._journals[run].head


class _OwnedJournal:
    """A journal in the hands of one owner."""

    def __init__(self, journals: MemoryJournals, run: str, epoch: int) -> None:
        self._journals = journals
        self._run = run
        self.epoch = epoch

    @property
    def head(self) -> str:
        return self._journals.head(self._run)

    def append(self, record: Record) -> None:
        self._journals.append(self._run, record)

    def records(self) -> tuple[Record, ...]:
        return self._journals.records(self._run) if self._run in self._journals else ()

    def lines_after(self, seq: int) -> Iterable[bytes]:
        return self._journals.lines_after(self._run, seq)


class MemoryBlobs:
    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        blob = text_hash(data)
        self._contents[blob] = data
        return blob

    def get(self, blob: str) -> bytes:
        return self._contents[blob]
