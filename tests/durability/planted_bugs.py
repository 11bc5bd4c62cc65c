"""Bugs that the tests of crashes must find, in this process and in processes that are killed.

Each function puts a bug into the product with `patch`, which is `setattr` or that of pytest's `monkeypatch`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentrun.canonical_json import data_hash
from agentrun.core import tool_calls, transitions
from agentrun.core.evolve import evolve
from agentrun.core.facts import Fact, Record, ToolFinished, ToolStarted
from agentrun.core.state import State
from agentrun.engine import driver
from agentrun.engine.driver import RunLog
from agentrun.journal.storage import FileJournal
from agentrun.store.files import FileStore, StoredJournal

Patch = Callable[[object, str, Any], None]


class Bug(NamedTuple):
    plant: Callable[[Patch], None]
    violation: str
    """A regular expression for what a test in this process finds."""
    killed_at: str = ""
    """A regular expression for the moments at which to kill a process that has the bug. Empty: at none."""
    violation_in_processes: str = ""


def repeat_calls(patch: Patch) -> None:
    """Every tool is taken for one that may run twice."""
    patch(tool_calls, "tool_effect", lambda tool, name: "read")


def start_without_a_record(patch: Patch) -> None:
    """The start of a payment is written together with its result."""
    owed: dict[int, Record] = {}

    def append(log: Any, fact: Fact, seq: int, at: int) -> Record:
        record = Record(seq, at, log._journal.epoch, "", fact)
        after = evolve(log.state, record)
        if isinstance(fact, ToolStarted) and fact.tool == "pay":
            owed[id(log)] = record
        else:
            for each in (owed.pop(id(log), None), record):
                if each is not None:
                    log._journal.append(replace(each, prev=log._journal.head))
        log.state = after
        return record

    patch(RunLog, "_append", append)


def keep_torn_lines(patch: Patch) -> None:
    def keep(journal: Any, torn: bytes) -> None:
        journal._ends[-1] += len(torn)

    patch(FileJournal, "_cut", keep)


def lose_results(patch: Patch) -> None:
    """What a call returns after a resume is not written."""
    resumed: list[str] = []
    take_over = RunLog.take_over

    def marked(log: RunLog, fingerprint: str) -> None:
        take_over(log, fingerprint)
        resumed.append(fingerprint)

    def forgetful(state: State, fact: Fact) -> bool:
        return not (resumed and isinstance(fact, ToolFinished)) and transitions.is_acceptable(state, fact)

    patch(RunLog, "take_over", marked)
    patch(driver, "is_acceptable", forgetful)


def write_the_head_first(patch: Patch) -> None:
    append = FileJournal.append

    def too_early(journal: Any, record: Record) -> None:
        if journal._head_file is not None:
            line = f"{record.seq:08} {data_hash(journal._chain.line(record))}\n"
            os.pwrite(journal._head_file, line.encode(), 0)
        append(journal, record)

    patch(FileJournal, "append", too_early)


def write_the_package_last(patch: Patch) -> None:
    write, append_first = FileStore.write_package, StoredJournal._append_first
    is_first: list[bool] = []

    def not_yet(store: FileStore, run: str) -> None:
        if not is_first:
            write(store, run)

    def too_late(journal: Any, record: Record) -> None:
        is_first.append(True)
        append_first(journal, record)
        is_first.clear()
        write(journal._store, journal.run)

    patch(FileStore, "write_package", not_yet)
    patch(StoredJournal, "_append_first", too_late)


BUGS = {
    "repeat_calls": Bug(repeat_calls, "Counter", r"event 1.", r"tool='(pay|note)', about='..'\): 2"),
    "start_without_a_record": Bug(start_without_a_record, "Counter", r"event 1.", r"tool='pay', about='..'\): 2"),
    "keep_torn_lines": Bug(
        keep_torn_lines, r"journal\.(damaged|truncated)", r"torn .*journal\.jsonl", r"journal\.(damaged|truncated)"
    ),
    "lose_results": Bug(lose_results, "is pending, but it is not running", r"event ", "exit 70"),
    "write_the_head_first": Bug(
        write_the_head_first, r"journal\.truncated", r"before .*\(write .*journal\.jsonl", r"journal\.truncated"
    ),
    "write_the_package_last": Bug(write_the_package_last, "was not stored with it"),
}
BUGS_IN_PROCESSES = [name for name, bug in BUGS.items() if bug.killed_at]
