"""Accepted journals as snapshots of syrupy, one file each.

Rule 1  The files of cases are the same as those of `agentrun test`, byte for byte.
Rule 2  A file is unused if no case of its name has a snapshot. A case that is skipped, deselected or broken keeps it.
Rule 3  Of several accepted journals syrupy sees one: the one that the run equals, the nearest one, or the new one. The
        others are unused if the test that they are named after is gone or does not compare journals.
Rule 4  No journal is accepted in CI, because a person must look at it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import ValidationError, convert
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion
from syrupy.data import Snapshot, SnapshotCollection, SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from agentrun.engine.ci import in_ci
from agentrun.errors import AgentrunError
from agentrun.spec.project import Project, find_project
from agentrun.spec.v1.assertions import JournalSnapshot, SnapshotUsage
from agentrun.store.process_lock import lock_project_files
from agentrun.testing.plugin.options import ignored_properties, match_properties
from agentrun.testing.suite import snapshots
from agentrun.testing.suite.snapshots import (
    JOURNAL_SUFFIX,
    AcceptedJournal,
    journal_to_write,
    read_accepted,
    read_snapshot,
    replace_journal,
    split_name,
)
from agentrun.testing.suite.verdict import CaseVerdict, failure_of_error

if TYPE_CHECKING:
    import pytest
    from syrupy.types import SerializedData, SnapshotIndex

    from agentrun.testing.plugin.items import CaseItem
    from agentrun.testing.suite.discovery import LocatedCase


class JournalAssertion(SnapshotAssertion):  # noqa: PLW1641  # syrupy's class has no hash either
    """Compares a journal with its snapshot. Raises TypeError for any other value."""

    _form = snapshots.DEFAULT_FORM
    _journal_name: str | None = None
    _difference: tuple[str, ...] = ()
    """Which of several accepted journals the last comparison shows."""
    _error: AgentrunError | None = None

    @property
    def index(self) -> SnapshotIndex:
        index = super().index
        return index if self._journal_name is None else NamedIndex(index, self._journal_name)

    def __call__(self, *, usage: SnapshotUsage | None = None, ignore: Sequence[str] = (), **options: Any) -> Self:
        """Change the next comparison: `usage` and `ignore` as in the assertion `journal-snapshot`, and the options of
        syrupy, such as `name`."""
        __tracebackhide__ = True
        if usage is not None or ignore:
            written = {"type": "journal-snapshot", "usage": usage or self._form.usage, "ignore": ignore}
            try:
                form = snapshots.form_of(convert(written, JournalSnapshot))
            except ValidationError as error:
                raise TypeError(f"journal_snapshot: {error}") from None
            before, self._form = self._form, form
            self._post_assert_actions.append(lambda: setattr(self, "_form", before))
        super().__call__(**options)
        return self

    def __eq__(self, other: object) -> bool:
        __tracebackhide__ = True
        if not isinstance(other, str) and not hasattr(other, "canonical"):
            kind = type(other).__name__
            raise TypeError(f"compare journal_snapshot with a run or with the text of a journal, not with {kind}")
        now = other if isinstance(other, str) else self._take_snapshot(other)
        try:
            self._prepare(now)
        except AgentrunError as error:
            self._error = error
        try:
            is_equal = super().__eq__(now)
            if self._error is not None:
                raise self._error.with_traceback(None)
            return is_equal
        finally:
            self._journal_name = self._error = None

    def _take_snapshot(self, run: Any) -> str:
        taken = run.snapshot(self._form)
        self.test_location.item.user_properties += ignored_properties(taken.ignored)
        return str(taken.text)

    def _prepare(self, now: str) -> None:
        """Select the accepted journal that syrupy compares or writes. Raises the errors of reading and writing it."""
        path = Path(self.extension.get_location(test_location=self.test_location, index=self.index))
        if self.update_snapshots or self.update_new_snapshots_only:
            # Checked first, because syrupy creates missing directories and follows links.
            checked, project = _snapshot_path_and_project(str(path.with_name("new.journal")))
            project.source_tree("snapshot").check_writable(checked)
        accepted = read_accepted(path)
        match = snapshots.match_snapshot(accepted, now)
        if match is not None and self.extension_class is JournalSnapshotExtension:
            self.test_location.item.user_properties += match_properties(match)
        several = match is None and len(accepted) > 1
        self._difference = (snapshots.describe_nearest(accepted, now),) if several else ()
        self._journal_name = self._name_to_compare(path, accepted, now)

    def _serialize(self, data: Any) -> str:
        if self._error is not None:
            raise self._error  # syrupy counts it as a failed snapshot, and does not remove the file as unused
        return str(data)

    def get_assert_diff(self, **options: Any) -> list[str]:
        return [*self._difference, *super().get_assert_diff(**options)]

    def _name_to_compare(self, path: Path, accepted: Sequence[AcceptedJournal], now: str) -> str | None:
        """The name of the accepted journal that is compared or written."""
        add = self.test_location.item.config.option.agentrun_add if self.update_snapshots else None
        new = journal_to_write(path, accepted, now, add)
        file = next(each.path for each in accepted if each.text == now) if new is None else new.path
        return None if file == path else split_name(file.name)[1]


class NamedIndex(str):
    """The index of an accepted journal with a name. `owner`: the index of the one without a name."""

    owner: SnapshotIndex
    name: str

    def __new__(cls, owner: SnapshotIndex, name: str) -> Self:
        made = super().__new__(cls, f"{owner}.{name}")
        made.owner, made.name = owner, name
        return made


class CaseLocation(PyTestLocation):
    """The place of a case to syrupy: the folder with the name of the spec, and the name of the case. Items of one case
    with different parameters share a snapshot, because they are the same run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        located = _case_item(self).located
        fields = {"filepath": str(located.spec), "nodename": located.case.name, "testname": located.case.name}
        for name, value in fields.items():
            object.__setattr__(self, name, value)  # the class is frozen; syrupy sets its fields in this way too

    @property
    def is_item_parametrized(self) -> bool:
        return False


@contextmanager
def cases_at_their_specs(items: Iterable[CaseItem]) -> Iterator[None]:
    """Give items the paths of their specs while syrupy looks for unused files: it takes them from the folder that has
    the name of an item's file, without asking the extension."""
    paths = [(item, item.path) for item in items]
    for item, _ in paths:
        item.path = item.located.spec
    try:
        yield
    finally:
        for item, path in paths:
            item.path = path


def make_journal_assertion(
    item: pytest.Item,
    extension: type[SingleFileSnapshotExtension],
    location: type[PyTestLocation] = PyTestLocation,
) -> SnapshotAssertion:
    """Make the assertion of a test. The fixture `snapshot` is not used, because it would look for its own kind of files
    and report all others in the folder as unused."""
    option = item.config.option
    return JournalAssertion(
        session=item.config._syrupy,  # type: ignore[attr-defined]  # noqa: SLF001  # the session of syrupy
        extension_class=extension,
        test_location=location(item),
        update_snapshots=option.update_snapshots and not in_ci(),
        update_new_snapshots_only=option.update_new_snapshots_only and not in_ci(),
    )


class JournalSnapshotExtension(SingleFileSnapshotExtension):
    """The journal of a run in a Python test: `__snapshots__/<module>/<test>.journal`."""

    _write_mode = WriteMode.TEXT
    file_extension = "journal"

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: SnapshotIndex = 0) -> str:
        owner = index.owner if isinstance(index, NamedIndex) else index
        return super().get_snapshot_name(test_location=test_location, index=owner)

    @classmethod
    def get_file_basename(cls, *, test_location: PyTestLocation, index: SnapshotIndex) -> str:
        name = cls.get_snapshot_name(test_location=test_location, index=index)
        return f"{name}.{index.name}" if isinstance(index, NamedIndex) else name

    def discover_snapshots(
        self,
        *,
        test_location: PyTestLocation,
        ignore_extensions: list[str] | None = None,  # noqa: ARG002  # has ours too
    ) -> SnapshotCollections:
        """All files of the module, except for several accepted journals of one test, of which syrupy sees one. With
        `--agentrun-add` there may soon be several."""
        config = test_location.item.config
        ignored = config.option.ignore_file_extensions
        found = SnapshotCollections()
        files = super().discover_snapshots(test_location=test_location, ignore_extensions=ignored)
        tests = [
            self.get_snapshot_name(test_location=PyTestLocation(item))
            for item in config._syrupy._collected_items.values()  # type: ignore[attr-defined]  # noqa: SLF001  # syrupy's session
            if item.path == test_location.item.path and "journal_snapshot" in item.fixturenames
        ]
        owners = {each.location: _owner(Path(each.location).name, tests) for each in files}
        adds = config.option.agentrun_add is not None
        shared = {owner for location, owner in owners.items() if adds or Path(location).name != owner}
        for each in files:
            if owners[each.location] is None or owners[each.location] not in shared:
                found.add(each)
        return found

    def serialize(self, data: Any, **_: Any) -> str:
        return str(data)

    def read_snapshot_data_from_location(
        self,
        *,
        snapshot_location: str,
        snapshot_name: str,  # noqa: ARG002  # the file has one snapshot
        session_id: str,  # noqa: ARG002  # nothing is cached
    ) -> str | None:
        """Read the file like `agentrun test`."""
        return read_snapshot(Path(snapshot_location))

    @classmethod
    def write_snapshot_collection(
        cls,
        *,
        snapshot_collection: SnapshotCollection,
        name_order: dict[str, int] | None = None,  # noqa: ARG003  # the file has one snapshot
    ) -> None:
        """Write like all project files: under the lock, and without following links."""
        path, project = _snapshot_path_and_project(snapshot_collection.location)
        tree = project.source_tree("snapshot")
        with lock_project_files(project):
            for snapshot in snapshot_collection:
                tree.write(path, str(snapshot.data).encode())

    def delete_snapshots(self, *, snapshot_location: str, snapshot_names: set[str]) -> None:  # noqa: ARG002  # one per file
        if in_ci():  # accepted journals do not change in CI
            return
        path, project = _snapshot_path_and_project(snapshot_location)
        project.source_tree("snapshot").remove(path)
        project.source_tree("snapshot").remove_empty_directory(path.parent)

    def diff_lines(self, serialized_data: SerializedData, snapshot_data: SerializedData) -> Any:
        if snapshot_data == "":  # there is none, and so no difference to explain
            yield "to accept the journal: pytest --snapshot-update"
            return
        yield from snapshots.journal_diff(str(snapshot_data), str(serialized_data), "accepted", "now")


class CaseSnapshotExtension(JournalSnapshotExtension):
    """The journal of a case: `__snapshots__/<spec>/<case>.journal` next to the spec."""

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: SnapshotIndex = 0) -> str:  # noqa: ARG003  # syrupy's signature
        """One for each case, however often it is compared."""
        return test_location.testname

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        return str(snapshots.snapshot_directory(_case_item(test_location).located.file))

    def discover_snapshots(
        self,
        *,
        test_location: PyTestLocation,
        ignore_extensions: list[str] | None = None,  # noqa: ARG002  # has ours too
    ) -> SnapshotCollections:
        unused = SnapshotCollections()
        if "journal" in (test_location.item.config.option.ignore_file_extensions or ()):
            return unused
        used = {f"{name}{JOURNAL_SUFFIX}" for name in _case_item(test_location).cases.with_snapshot}
        for path in sorted(Path(self.dirname(test_location=test_location)).glob("*.journal")):
            if split_name(path.name)[0] not in used:
                collection = SnapshotCollection(location=str(path))
                collection.add(Snapshot(name=path.stem))
                unused.add(collection)
        return unused


def _owner(file: str, tests: Sequence[str]) -> str | None:
    """The file without a name that a file belongs to. None: no test compares a journal with it."""
    return next((each for each in (file, split_name(file)[0]) if _is_owned(each, tests)), None)


def _is_owned(file: str, tests: Iterable[str]) -> bool:
    """Whether one of these tests compares a journal with this file: its first one, a later one, or one with a name."""
    stem = file.removesuffix(JOURNAL_SUFFIX)
    return any(
        stem.startswith(test) and re.fullmatch(r"(\.\d+|\[.*\])?", stem.removeprefix(test), re.DOTALL) for test in tests
    )


def _snapshot_path_and_project(location: str) -> tuple[Path, Project]:
    """The file of a snapshot, `<directory>/__snapshots__/<module or spec>/<name>.journal`, and its project. Links are
    resolved up to the directory, and not followed below it."""
    path = Path(location)
    directory = path.parents[2]
    return Path(os.path.realpath(directory)) / path.relative_to(directory), find_project(directory / "x")


def _case_item(location: PyTestLocation) -> CaseItem:
    item: Any = location.item
    return item  # type: ignore[no-any-return]  # this extension is used only for cases


class CaseSnapshot:
    """Compares the journal of a case with its snapshots, and accepts the new journal if an option says so."""

    def __init__(self, item: CaseItem) -> None:
        self._assertion = make_journal_assertion(item, CaseSnapshotExtension, CaseLocation)
        """Made also for a case without a snapshot, because syrupy finds unused files by it."""
        self._located = item.located
        self._add: str | None = item.config.option.agentrun_add
        self._new: AcceptedJournal | None = None
        """Accepted if the case passes."""

    def compare(self, located: LocatedCase, now: str) -> Sequence[AcceptedJournal]:
        accepted = snapshots.accepted_snapshots(located)
        if not snapshots.may_accept_snapshot(located):
            return accepted
        if self._assertion.update_snapshots or (self._assertion.update_new_snapshots_only and not accepted):
            self._new = snapshots.new_snapshot(located, accepted, now, self._add)
        if self._new is not None:
            return replace_journal(accepted, self._new)
        self._compare_with_syrupy(now)
        return accepted

    def settle(self, verdict: CaseVerdict) -> CaseVerdict:
        """Write the new journal if the case passed. If that fails, the case fails."""
        if self._new is None or verdict.status != "passed":
            return verdict
        try:
            snapshots.check_snapshot_writable(self._located, self._new.path)
            self._compare_with_syrupy(self._new.text)
        except AgentrunError as error:
            return replace(verdict, status="failed", failures=(failure_of_error(error),))
        return verdict

    def _compare_with_syrupy(self, now: str) -> None:
        self._assertion == now  # noqa: B015  # syrupy compares, writes and counts in __eq__
        result = self._assertion.executions[self._assertion.num_executions - 1]
        if result.exception is not None:
            raise result.exception
