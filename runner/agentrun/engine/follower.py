"""Read the records of journals after a cursor, each once, while they are written.

Rule 1  A cursor is a position in journals: the runs up to a place in the order of runs are known, and each of them is
        read to its end, except those that the cursor names with their last record. A sub-agent is known when the record
        of its parent that names it is read. So a cursor is short however many runs there are, and it is valid in every
        process, because it depends on nothing but the journals and the order of runs.
Rule 2  A finished run never changes, so it is not in the cursor. It is read to its end when its terminal record is.
Rule 3  The records of a run come in their order, after those that name it. Runs are not ordered by time.
Rule 4  A run of several that cannot be read is a `Gap` with its error, and the others continue. The cursor keeps its
        position in a damaged run and forgets a removed one. In the scope of one run the error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from msgspec.structs import replace

from agentrun.core.facts import ChildStarted, Record, RunStarted, RunStopped
from agentrun.engine.events import Cursor, Event, Gap, Scope
from agentrun.errors import HostError, RequestError, StorageError, run_not_found_error
from agentrun.store.run_ids import root_run
from agentrun.store.run_order import RunPlace

if TYPE_CHECKING:
    from agentrun.engine.memory import Journals
    from agentrun.store.watch import StoreWatch


class RecordTail(Protocol):
    def read(self) -> Iterator[Record]:
        """The records since the last one that was returned."""


@runtime_checkable
class FollowedJournals(Protocol):
    def __contains__(self, run: object) -> bool: ...

    def tail(self, run: str) -> RecordTail: ...

    def runs_after(self, place: RunPlace) -> list[RunPlace] | None:
        """The runs without a parent after a place in their order. None: there is no such place."""

    def unfinished(self, runs: Iterable[str]) -> Iterable[str]:
        """Those of the runs that have no terminal record."""

    def watch(self) -> StoreWatch | None:
        """Notices records of other processes. None: there are none."""


def follow_journals(journals: Journals) -> FollowedJournals:
    return journals if isinstance(journals, FollowedJournals) else _WholeJournals(journals)


class _WholeJournals:
    """Journals that can only be read as a whole: one run can be followed."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals

    def __contains__(self, run: object) -> bool:
        return run in self._journals

    def tail(self, run: str) -> RecordTail:
        return _WholeTail(self._journals, run)

    def runs_after(self, place: RunPlace) -> list[RunPlace] | None:  # noqa: ARG002  # the signature of the port
        message = "the journal port cannot list its runs, so that only the events of one run can be followed"
        raise HostError("host.missing", message, fields={"name": "journal"})

    def unfinished(self, runs: Iterable[str]) -> Iterable[str]:
        return runs

    def watch(self) -> None:
        return None


class _WholeTail:
    def __init__(self, journals: Journals, run: str) -> None:
        self._journals = journals
        self._run = run
        self._seq = 0

    def read(self) -> Iterator[Record]:
        for record in self._journals.records(self._run) if self._run in self._journals else ():
            if record.seq > self._seq:
                self._seq = record.seq
                yield record


# --- following -----------------------------------------------------------------------------------------------------

ReadLimit: TypeAlias = Callable[[str], int | None]
"""The number of the last record of a run to read. None: all."""


def _no_limit(run: str) -> None:  # noqa: ARG001  # a ReadLimit
    return None


class _OpenRun:
    """A run that is not read to its end."""

    def __init__(self, run: str, tail: RecordTail, seq: int) -> None:
        self.run = run
        self.seq = seq
        self.agent: str | None = None
        self.children: set[str] = set()
        """The sub-agents that the records up to `seq` name."""
        self.is_damaged = False
        self._tail = tail
        self._checked = 0
        self._reading: Iterator[Record] | None = None
        self._next: Record | None = None

    def take(self, limit: int | None) -> Record | None:
        """The next record. None: there is none yet."""
        while self._next is None:
            self._reading = self._tail.read() if self._reading is None else self._reading
            try:
                record = next(self._reading)
            except StopIteration:
                self._reading = None
                self._refuse_missing_records()
                return None
            self._checked = record.seq
            if record.seq > self.seq:
                self._next = record
            else:
                self._note(record)
        if limit is not None and self._next.seq > limit:
            return None
        record, self._next = self._next, None
        return record

    def advance(self, record: Record) -> str | None:
        """Return the sub-agent that the record names for the first time."""
        self.seq = record.seq
        return self._note(record)

    def _note(self, record: Record) -> str | None:
        fact = record.fact
        if isinstance(fact, RunStarted):
            self.agent = fact.agent
        if isinstance(fact, ChildStarted) and fact.run not in self.children:
            self.children.add(fact.run)
            return fact.run
        return None

    def _refuse_missing_records(self) -> None:
        if self._checked < self.seq:
            message = f"the journal of {self.run} ends after record {self._checked}, and record {self.seq} was read"
            raise StorageError("journal.truncated", message, fields={"seq": self._checked, "head": self.seq})


class JournalFollower:
    def __init__(self, journals: FollowedJournals, scope: Scope, cursor: Cursor | None) -> None:
        """`cursor`: None to begin now. Raises `run.not_found`, and `cursor.scope` for a cursor of another scope or of
        other journals."""
        self.scope = scope
        self._journals = journals
        self._place = RunPlace()
        self._open: dict[str, _OpenRun] = {}
        """Parents come before their sub-agents."""
        if cursor is not None and cursor.scope != scope.name:
            raise _scope_error(cursor, scope, f"it is for the scope {cursor.scope}, not for {scope.name}")
        if scope.run is not None and scope.run not in journals:
            raise run_not_found_error(scope.run)
        if cursor is None:
            self._skip_history()
            return
        self._place = cursor.place
        if scope.run is None and journals.runs_after(cursor.place) is None:
            raise _scope_error(cursor, scope, "it is not of this store, or the order of its runs was lost")
        for run in cursor.runs if scope.run is None else {scope.run: 0, **cursor.runs}:
            self._add(run, cursor.runs.get(run, 0))

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.scope.name, self._place, {run: each.seq for run, each in self._open.items()})

    @property
    def open_runs(self) -> tuple[str, ...]:
        """The runs that can still change."""
        return tuple(self._open)

    def agent_of(self, run: str) -> str | None:
        return self._open[run].agent if run in self._open else None

    def watch(self) -> StoreWatch | None:
        return self._journals.watch()

    def read(self, limit: ReadLimit = _no_limit) -> Iterator[Event]:
        """All events that are not read yet."""
        is_beginning, places = not self._place.offset, self._find_new_runs()
        for place in places:
            if place.run in self._open:  # the known one was removed, and its id was used again
                yield from self._fail(self._open[place.run], run_not_found_error(place.run))
        families: dict[str, list[str]] = {}
        for run in self._open:
            families.setdefault(root_run(run), []).append(run)
        for runs in families.values():
            for run in reversed(runs):  # sub-agents first: their parents record what they did
                yield from self._read(run, limit)
        yield from self._read_new_runs(places, limit, is_old=is_beginning)

    def read_run(self, run: str, seq: int) -> Iterator[Event]:
        """The events of one run up to this record, which are not read yet."""
        if run not in self._open:
            yield from self._read_new_runs(self._find_new_runs(), lambda each: seq if each == run else 0)
        yield from self._read(run, lambda each: seq if each == run else 0)

    def _find_new_runs(self) -> list[RunPlace]:
        if self.scope.run is not None:
            return []
        places = self._journals.runs_after(self._place)
        if places is None:
            raise _scope_error(self.cursor, self.scope, "the order of the runs was changed")
        return places

    def _read_new_runs(self, places: list[RunPlace], limit: ReadLimit, *, is_old: bool = False) -> Iterator[Event]:
        last = {place.run: place for place in places}
        for place in places:
            self._place = place
            if last[place.run] is place:  # otherwise it was removed, and its id was used again
                self._add(place.run)
                yield from self._read(place.run, limit, is_old=is_old)

    def _read(self, run: str, limit: ReadLimit, *, is_old: bool = False) -> Iterator[Event]:
        """`is_old`: the run may have been removed before this follower began."""
        each = self._open.get(run)
        while each is not None and not each.is_damaged:
            try:
                record = each.take(limit(run))
            except (StorageError, RequestError) as error:
                yield from self._fail(each, error, is_old=is_old)
                return
            if record is None:
                return
            yield from self._pass_on(each, record, limit)

    def _pass_on(self, each: _OpenRun, record: Record, limit: ReadLimit) -> Iterator[Event]:
        is_last = isinstance(record.fact, RunStopped)
        for known in each.children if is_last else ():
            yield from self._read(known, limit)
        child = each.advance(record)
        if child is not None and self.scope.sub_agents:
            self._add(child)
        if is_last:
            self._forget(each)
        event = Event(self.cursor, each.run, each.agent, record)
        if self.scope.sees(event):
            yield event
        if child is not None:
            yield from self._read(child, limit)

    def _forget(self, each: _OpenRun) -> None:
        """The run does not change any more, and its sub-agents that never began do not begin."""
        if each.run != self.scope.run:
            del self._open[each.run]
        for child in each.children & self._open.keys():
            if not self._open[child].seq:
                del self._open[child]

    def _fail(self, each: _OpenRun, error: StorageError | RequestError, *, is_old: bool = False) -> Iterator[Event]:
        is_removed, has_begun = error.code == "run.not_found", each.seq > 0
        if is_removed and not has_begun and root_run(each.run) != each.run:
            return  # a sub-agent that has not begun yet
        if self.scope.run is not None:
            raise error
        since = self.cursor
        each.is_damaged = True
        if is_removed:
            self._forget(each)
        if has_begun or not is_old or not is_removed:
            yield Event(self.cursor, each.run, each.agent, Gap(since, error))

    def _skip_history(self) -> None:
        scope, self.scope = self.scope, replace(self.scope, sees=lambda event: False)
        if scope.run is not None:
            self._add(scope.run)
        else:
            places = self._journals.runs_after(self._place) or []
            for run in self._journals.unfinished(dict.fromkeys(place.run for place in places)):
                self._add(run)
            self._place = places[-1] if places else self._place
        for _ in self.read():
            pass
        self.scope = scope

    def _add(self, run: str, seq: int = 0) -> None:
        self._open[run] = _OpenRun(run, self._journals.tail(run), seq)


def _scope_error(cursor: Cursor, scope: Scope, why: str) -> RequestError:
    fields = {"cursor": str(cursor), "scope": scope.name}
    return RequestError("cursor.scope", f"this cursor cannot be used here: {why}", fields=fields)
