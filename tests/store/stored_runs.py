"""Runs in a store, made from facts."""

from __future__ import annotations

from agentrun.core.facts import Fact, Record
from agentrun.store.files import FileStore, StoredJournal

from ..journal.journals import RUN_STOPPED, run_started


def append(journal: StoredJournal, *facts: Fact, at: int = 1000) -> None:
    for fact in facts:
        journal.append(Record(journal.seq + 1, at, journal.epoch, journal.head, fact))


def finished_run(store: FileStore, run: str, *, at: int = 1000, **changes: object) -> None:
    append(store.open(run), run_started(run=run, **changes), RUN_STOPPED, at=at)
