"""The journals of a run and of its sub-agents, read for commands that show or check them.

Rule 1  The journals of sub-agents are beside that of their parent: `run.c1.0.jsonl` beside `run.jsonl`, and in the
        store `RUN.c1.0/journal.jsonl` beside `RUN/journal.jsonl`.
Rule 2  A damaged journal has the records before the damage, and the error.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct

from agentrun.core.effect_ids import CallId, parse_effect_id
from agentrun.core.facts import ChildStarted, Fact, Record, RunResumed, RunStarted, RunStopped
from agentrun.errors import StorageError
from agentrun.files import ProjectTree
from agentrun.journal.storage import JOURNAL_NAME, child_journal_path, read_contents


class ReadJournal(Struct, frozen=True):
    path: Path
    records: tuple[Record, ...]
    """A fact of a kind that this release does not know is an `UnknownFact`."""
    has_head: bool
    """Whether a head file names the last record."""
    length: int
    """The number of records, including those that were not kept."""
    error: StorageError | None = None

    @property
    def run(self) -> str | None:
        """None: not even its first record can be read."""
        return None if not self.records else self.started.run

    @property
    def started(self) -> RunStarted:
        started = self.records[0].fact
        assert isinstance(started, RunStarted), "a journal begins with run_started"
        return started

    @property
    def is_finished(self) -> bool:
        return bool(self.records) and isinstance(self.records[-1].fact, RunStopped)

    @property
    def child_runs(self) -> tuple[str, ...]:
        facts = (record.fact for record in self.records)
        return tuple(dict.fromkeys(fact.run for fact in facts if isinstance(fact, ChildStarted)))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The packages that the run started and was resumed with."""
        facts = (record.fact for record in self.records)
        return tuple(dict.fromkeys(fact.package for fact in facts if isinstance(fact, RunStarted | RunResumed)))


class RunFamily(Struct, frozen=True):
    root: ReadJournal
    children: Mapping[str, ReadJournal]
    """The journals of sub-agents at any depth, by run id."""

    @property
    def journals(self) -> tuple[ReadJournal, ...]:
        return (self.root, *self.children.values())


def read_family(
    path: Path, tree: ProjectTree | None = None, *, unknown: bool = True, keep_all: bool = True
) -> RunFamily:
    """Read a journal and those of its sub-agents. `tree`: the store that contains them. `unknown`: whether facts of
    kinds that this release does not know are read. Without `keep_all`, only the first and the last record are kept, and
    those that name other journals and packages. Raises `storage.failed` if it cannot be read at all."""
    read = partial(_read, tree=tree, unknown=unknown, keep_all=keep_all)
    root = read(path)
    children: dict[str, ReadJournal] = {}
    waiting = list(root.child_runs)
    while waiting:
        run = waiting.pop(0)
        file = _child_path(path, str(root.run), run)
        if run not in children and file.is_file():
            children[run] = read(file)
            waiting += children[run].child_runs
    return RunFamily(root, children)


def _read(path: Path, tree: ProjectTree | None, unknown: bool, keep_all: bool) -> ReadJournal:
    records: list[Record] = []
    has_head, length, error = False, 0, None
    try:
        contents = read_contents(path, tree)
        has_head = contents.head is not None
        for record in contents.records(unknown=unknown):
            if not keep_all and records and not isinstance(records[-1].fact, RunStarted | RunResumed | ChildStarted):
                records.pop()
            records.append(record)
            length = record.seq
        contents.refuse_torn()
    except StorageError as found:
        if not found.code.startswith(("journal.", "recovery.")):
            raise
        error = found
    if not records and error is None:
        error = StorageError("journal.truncated", "the journal has no records", fields={"seq": 0})
    return ReadJournal(path, tuple(records), has_head, length, error)


def _child_path(path: Path, root: str, run: str) -> Path:
    if path.name == JOURNAL_NAME and path.resolve().parent.name == root:
        return path.resolve().parents[1] / run / JOURNAL_NAME
    return child_journal_path(path, run.removeprefix(f"{root}."))


def call_of(fact: Fact) -> str | None:
    """The call that a fact is about, such as `c1.0`, or None."""
    names = (getattr(fact, field, None) for field in ("call", "subject", "effect"))
    return next((name for name in names if isinstance(name, str) and isinstance(parse_effect_id(name), CallId)), None)
