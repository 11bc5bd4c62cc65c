"""Snapshots of cases: compare, write and remove the accepted journals in `__snapshots__/<spec>/` next to the spec.

Rule 1  A journal is accepted only if the case has a `journal-snapshot` assertion and passes otherwise. A case with
        `xfail` keeps its snapshot.
Rule 2  A recording writes no credential of the environment. A replay writes what its cassette has.
Rule 3  A case or Python test can have several: `<case>.journal` and `<case>.<name>.journal`. A run passes if it equals
        one of them. There are at most five, because a case that accepts all tests nothing.
Rule 4  A name has the form of the names in a spec, so it has no dot: the name of a file says which case it belongs to.
Rule 5  A journal that is not equal to any is compared with the nearest one. Accepting it replaces that one, or adds one
        under a new name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from functools import lru_cache
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from time import time_ns
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.compiler.cases import CASES_FILE_SUFFIX
from agentrun.credentials import hidden_secrets
from agentrun.engine.run import FinishedRun
from agentrun.errors import RequestError, StorageError
from agentrun.files import ProjectTree
from agentrun.report.change import RunChange
from agentrun.report.journal_diff import compare_journals
from agentrun.report.snapshot_form import SnapshotForm, SnapshotText, dump_snapshot
from agentrun.spec.project import find_project
from agentrun.spec.safe_text import join_words
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.assertions import NEGATION_PREFIX, JournalSnapshot
from agentrun.spec.v1.field_types import NAME_PATTERN
from agentrun.store.process_lock import lock_project_files
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.verdict import CaseFailure, CaseVerdict, SnapshotMatch

MAX_DIFF_LINES = 200
DEFAULT_FORM = SnapshotForm()
MAX_ACCEPTED_JOURNALS = 5
JOURNAL_SUFFIX = ".journal"
SETTLED_NANOSECONDS = 2_000_000_000
"""More than the resolution of the times of any file system."""
JOURNAL_NAME_FORM = "a name of at most 64 lowercase letters, digits, - and _ that begins with a letter"
_NAME = re.compile(NAME_PATTERN)


class AcceptedJournal(Struct, frozen=True):
    path: Path
    text: str


SnapshotLookup: TypeAlias = Callable[[LocatedCase, str], Sequence[AcceptedJournal]]
"""Gets a case and its current journal, and returns the accepted journals. A function that accepts the current journal
returns it among them."""


def snapshot_directory(file: Path) -> Path:
    return file.parent / "__snapshots__" / file.name.removesuffix(CASES_FILE_SUFFIX)


def snapshot_path(located: LocatedCase) -> Path:
    return snapshot_directory(located.file) / f"{located.case.name}{JOURNAL_SUFFIX}"


def canonical_text(runs: Iterable[FinishedRun]) -> str:
    """The canonical journals of the runs of a case."""
    return "\n".join(run.canonical() for run in runs)


def take_snapshot(runs: Iterable[FinishedRun], form: SnapshotForm = DEFAULT_FORM) -> SnapshotText:
    return dump_snapshot((fact for run in runs for fact in run.canonical_facts()), form)


def snapshot_form(located: LocatedCase) -> SnapshotForm:
    """What the snapshot of a case contains."""
    return DEFAULT_FORM if located.snapshot is None else form_of(located.snapshot)


def form_of(snapshot: JournalSnapshot) -> SnapshotForm:
    usage = "rounded" if snapshot.usage is UNSET else snapshot.usage
    return SnapshotForm(usage, tuple(dict.fromkeys(snapshot.ignore)))


def journal_diff(before: str, now: str, before_name: str, now_name: str) -> Iterator[str]:
    """The changes in words, an empty line, and a unified diff."""
    yield from (change.text for change in compare_journals(before, now))
    yield ""
    lines = unified_diff(before.splitlines(), now.splitlines(), before_name, now_name, lineterm="")
    yield from islice(lines, MAX_DIFF_LINES)


def accepted_snapshots(located: LocatedCase, now: str = "") -> tuple[AcceptedJournal, ...]:  # noqa: ARG001  # a `SnapshotLookup`
    return read_accepted(snapshot_path(located))


class SnapshotComparison(Struct, frozen=True, kw_only=True):
    failure: CaseFailure | None = None
    changes: tuple[RunChange, ...] = ()
    match: SnapshotMatch | None = None
    ignored: dict[str, int] = {}
    """How many values each path of `ignore` replaced."""


def compare_snapshot(
    located: LocatedCase, runs: tuple[FinishedRun, ...], compare: SnapshotLookup
) -> SnapshotComparison:
    """Compare the journal of a case with its snapshots."""
    taken = take_snapshot(runs, snapshot_form(located))
    accepted = compare(located, taken.text)
    negated = located.snapshot is not None and located.snapshot.negated
    compared = _compare_texts(accepted, taken.text, "not-journal-snapshot" if negated else "journal-snapshot")
    return replace(compared, ignored=taken.ignored)


def _compare_texts(accepted: Sequence[AcceptedJournal], now: str, assertion: str) -> SnapshotComparison:
    if not accepted:
        hint = "to accept the journal: agentrun test --update"
        failure = CaseFailure(assertion=assertion, message="this case has no snapshot yet", hint=hint)
        return SnapshotComparison(failure=failure)
    negated = assertion.startswith(NEGATION_PREFIX)
    if (match := match_snapshot(accepted, now)) is not None:
        message = f"the journal equals the accepted one{f', {match.equals}' if match.others else ''}"
        return SnapshotComparison(
            match=match, failure=CaseFailure(assertion=assertion, message=message) if negated else None
        )
    if negated:
        return SnapshotComparison()
    nearest = nearest_journal(accepted, now)
    message, hint = "the journal differs from the accepted one", "to accept the new journal: agentrun test --update"
    if len(accepted) > 1:
        message = describe_nearest(accepted, now)
        hint = f"{hint} (replaces {nearest.path.name}), or --update --add NAME"
    detail = "\n".join(journal_diff(nearest.text, now, "accepted", "now"))
    failure = CaseFailure(assertion=assertion, message=message, detail=detail, hint=hint)
    return SnapshotComparison(failure=failure, changes=compare_journals(nearest.text, now))


def describe_nearest(accepted: Sequence[AcceptedJournal], now: str) -> str:
    """The message about a journal that differs from several accepted ones."""
    nearest = nearest_journal(accepted, now).path.name
    return f"the journal differs from all {len(accepted)} accepted ones; the nearest is {nearest}"


def accepted_and_now(located: LocatedCase, runs: tuple[FinishedRun, ...]) -> tuple[str, str] | None:
    """The accepted journal that is nearest to the one of these runs, and that one. None: there is none to compare."""
    accepted = accepted_snapshots(located) if located.snapshot is not None and runs else ()
    if not accepted:
        return None
    now = take_snapshot(runs, snapshot_form(located)).text
    return nearest_journal(accepted, now).text, now


def match_snapshot(accepted: Sequence[AcceptedJournal], now: str) -> SnapshotMatch | None:
    """Which accepted journal a run equals. None: none of them."""
    equal = next((each for each in accepted if each.text == now), None)
    if equal is None:
        return None
    return SnapshotMatch(equals=equal.path.name, others=tuple(each.path.name for each in accepted if each is not equal))


class WrittenSnapshot(Struct, frozen=True, kw_only=True):
    path: str
    how: Literal["new", "changed"]
    changes: tuple[str, ...] = ()


class UnwrittenSnapshot(Struct, frozen=True, kw_only=True):
    path: str
    why: str
    """Why `--update` did not write the new journal: `contains failed`."""


class SnapshotUpdate:
    """A `SnapshotLookup` that accepts the current journal of one case. `write` writes it.

    `add`: the name under which it is accepted in addition to the others. None: it replaces the nearest one.
    """

    def __init__(self, add: str | None = None) -> None:
        self._add = add
        self._before: str | None = None
        self._new: AcceptedJournal | None = None

    def __call__(self, located: LocatedCase, now: str) -> tuple[AcceptedJournal, ...]:
        accepted = accepted_snapshots(located)
        self._new = new_snapshot(located, accepted, now, self._add) if may_accept_snapshot(located) else None
        if self._new is None:
            return accepted
        self._before = read_snapshot(self._new.path)
        return replace_journal(accepted, self._new)

    def write(self, located: LocatedCase) -> WrittenSnapshot | None:
        """Returns None if nothing changed. Raises `storage.failed`, and `input.rejected` if there are too many."""
        if self._new is None:
            return None
        write_snapshot(located, self._new, self._before)
        path = display_path(self._new.path)
        if self._before is None:
            return WrittenSnapshot(path=path, how="new")
        changes = tuple(change.text for change in compare_journals(self._before, self._new.text))
        return WrittenSnapshot(path=path, how="changed", changes=changes)

    def unwritten(self, located: LocatedCase, verdict: CaseVerdict) -> UnwrittenSnapshot | None:
        """The journal of a case that did not pass. None: there is nothing to accept."""
        if verdict.status == "missed" and may_accept_snapshot(located):
            return UnwrittenSnapshot(path=display_path(snapshot_path(located)), why="the cassette does not match")
        if self._new is None:
            return None
        failed = ", ".join(dict.fromkeys(each.assertion for each in verdict.failures))
        return UnwrittenSnapshot(path=display_path(self._new.path), why=f"{failed} failed")


def may_accept_snapshot(located: LocatedCase) -> bool:
    snapshot = located.snapshot
    return snapshot is not None and not snapshot.negated and located.case.xfail is UNSET


def new_snapshot(
    located: LocatedCase, accepted: Sequence[AcceptedJournal], now: str, add: str | None
) -> AcceptedJournal | None:
    """The file to write so that a journal is accepted. None: it is accepted. Raises `input.rejected` if there would be
    too many, and `storage.failed` if the journal contains a credential."""
    new = journal_to_write(snapshot_path(located), accepted, now, add)
    name = None if new is None else hidden_secrets.redactor.find_first(now)
    if new is not None and name is not None:
        message = f"{display_path(new.path)} was not written because the journal contains the value of {name}"
        hint = f"record the case again while {name} is set: the cassette then has a placeholder instead"
        raise StorageError("storage.failed", message, hint=hint, fields={"path": "snapshot"})
    return new


def find_unused_snapshots(files: Iterable[Sequence[LocatedCase]]) -> list[tuple[LocatedCase, Path]]:
    """The snapshots that no case uses, each with a case of its file. `files`: all cases of each case file."""
    unused: list[tuple[LocatedCase, Path]] = []
    for cases in files:
        used = {snapshot_path(each).name for each in cases if each.snapshot is not None}
        folder = snapshot_directory(cases[0].file)
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        journals = [name for name in names if name.endswith(JOURNAL_SUFFIX)]
        unused += [(cases[0], folder / name) for name in journals if split_name(name)[0] not in used]
    return unused


def find_unmatched_paths(
    files: Iterable[Sequence[LocatedCase]], ignored: Mapping[str, Mapping[str, int]]
) -> Iterator[tuple[Path, str]]:
    """The paths of `ignore` that replaced nothing in any case of their file. `files`: all cases of each case file;
    `ignored`: what each path replaced in each case that was compared, by the id of the case."""
    for cases in files:
        found: dict[str, bool] = {}
        for each in cases:
            for path in each.snapshot.ignore if each.snapshot is not None else ():
                found[path] = found.get(path, False) or ignored.get(each.id, {}).get(path) != 0
        yield from ((cases[0].file, path) for path, is_used in found.items() if not is_used)


def remove_snapshot(located: LocatedCase, path: Path) -> None:
    """Remove a snapshot, and its folder if it is empty then. Raises `storage.failed`."""
    tree, path = _tree_and_path(located, path)
    tree.remove(path)
    tree.remove_empty_directory(path.parent)


def write_snapshot(located: LocatedCase, new: AcceptedJournal, before: str | None) -> None:
    """Replace the snapshot `before`. Raises `storage.failed`, for example if another process changed it meanwhile, and
    `input.rejected` if there would be too many."""
    project = find_project(located.spec)
    tree, path = _tree_and_path(located, new.path)
    with lock_project_files(project):
        if read_snapshot(path) not in (before, new.text):
            message = f"{display_path(path)} was not written because another process changed it meanwhile"
            raise StorageError("storage.failed", message, hint="run the command again", fields={"path": "snapshot"})
        refuse_too_many(replace_journal(accepted_snapshots(located), new))
        tree.write(path, new.text.encode())


def check_snapshot_writable(located: LocatedCase, path: Path) -> None:
    """Raises `storage.failed` if a snapshot of a case cannot be written."""
    tree, path = _tree_and_path(located, path)
    tree.check_writable(path)


def _tree_and_path(located: LocatedCase, path: Path) -> tuple[ProjectTree, Path]:
    """The tree and path to write to. Links are resolved in the path of the case file, which the user gave, and not
    below it."""
    tree = find_project(located.spec).source_tree("snapshot")
    return tree, Path(os.path.realpath(located.file.parent)) / path.relative_to(located.file.parent)


def is_journal_name(text: str) -> bool:
    """Whether a text can be the name of an accepted journal."""
    return _NAME.fullmatch(text) is not None


def named_path(path: Path, name: str | None) -> Path:
    """The file of an accepted journal. `path`: the one without a name, `<case>.journal`."""
    return path if name is None else path.with_name(f"{path.name.removesuffix(JOURNAL_SUFFIX)}.{name}{JOURNAL_SUFFIX}")


def split_name(file: str) -> tuple[str, str | None]:
    """The file of the journal without a name, and the name: `a.b.journal` → `a.journal`, `b`."""
    owner, dot, name = file.removesuffix(JOURNAL_SUFFIX).rpartition(".")
    return (f"{owner}{JOURNAL_SUFFIX}", name) if dot and is_journal_name(name) else (file, None)


def read_accepted(path: Path) -> tuple[AcceptedJournal, ...]:
    """The one without a name, if there is one, then the others in the order of their names. Raises `storage.failed`,
    and `input.rejected` if there are too many."""
    try:
        names = _named_files(str(path.parent)).get(path.name, ())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise _read_error(path, error.strerror, error.errno) from None
    files = (path, *map(path.with_name, names))
    found = tuple(AcceptedJournal(each, text) for each in files if (text := read_snapshot(each)) is not None)
    refuse_too_many(found)
    return found


def _named_files(folder: str) -> dict[str, tuple[str, ...]]:
    """The files with names, by the file without one. A folder may have thousands, one for each case, so they are listed
    once, unless the folder changed so recently that its time would be the same after another change."""
    changed = os.stat(folder).st_mtime_ns
    is_settled = time_ns() - changed > SETTLED_NANOSECONDS
    return _list_settled(folder, changed) if is_settled else _list_named_files(folder)


@lru_cache(maxsize=16)
def _list_settled(folder: str, changed: int) -> dict[str, tuple[str, ...]]:  # noqa: ARG001  # part of the key
    return _list_named_files(folder)


def _list_named_files(folder: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(JOURNAL_SUFFIX) and (owner := split_name(name)[0]) != name:
            found[owner] = (*found.get(owner, ()), name)
    return found


def journal_to_write(
    path: Path, accepted: Sequence[AcceptedJournal], now: str, add: str | None = None
) -> AcceptedJournal | None:
    """How to accept a journal: under the name `add`, or instead of the nearest one. None: it is accepted. Raises
    `input.rejected` if there would be too many."""
    if any(each.text == now for each in accepted):
        return None
    if add is None:
        return AcceptedJournal(nearest_journal(accepted, now).path if accepted else path, now)
    added = AcceptedJournal(named_path(path, add), now)
    refuse_too_many(replace_journal(accepted, added))
    return added


def replace_journal(accepted: Sequence[AcceptedJournal], new: AcceptedJournal) -> tuple[AcceptedJournal, ...]:
    """The journals after one was written."""
    if all(each.path != new.path for each in accepted):
        return (*accepted, new)
    return tuple(new if each.path == new.path else each for each in accepted)


def nearest_journal(accepted: Sequence[AcceptedJournal], now: str) -> AcceptedJournal:
    """The one with the fewest changed lines; of several, the first."""
    return min(accepted, key=lambda each: _count_changed_lines(each.text, now)) if len(accepted) > 1 else accepted[0]


def _count_changed_lines(before: str, now: str) -> int:
    if before == now:
        return 0
    lines = unified_diff(before.splitlines(), now.splitlines(), n=0, lineterm="")
    return sum(line.startswith(("+", "-")) for line in lines)


def refuse_too_many(accepted: Sequence[AcceptedJournal]) -> None:
    """Raises `input.rejected`."""
    if len(accepted) > MAX_ACCEPTED_JOURNALS:
        message = f"a case can have at most {MAX_ACCEPTED_JOURNALS} accepted journals, not {len(accepted)}"
        names = join_words([each.path.name for each in accepted if each.path.exists()])
        hint = f"remove one of {names}, or replace one by its name: agentrun test --update --add NAME"
        raise RequestError("input.rejected", message, hint=hint, fields={"reason": "snapshot"})


def read_snapshot(path: Path) -> str | None:
    """None: there is none. Raises `storage.failed`."""
    try:
        if S_ISREG(path.stat().st_mode):  # a pipe would never end
            return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _read_error(path, error.strerror, error.errno) from None
    raise _read_error(path, "it is not a regular file")


def _read_error(path: Path, why: str | None, errno: int | None = None) -> StorageError:
    fields = {"path": "snapshot", "errno": errno}
    return StorageError("storage.failed", f"the snapshot {path.name} cannot be read: {why}", fields=fields)
