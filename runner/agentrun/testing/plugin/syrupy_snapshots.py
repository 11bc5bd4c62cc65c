"""Canonical journals as snapshots of syrupy, one file each.

Rule 1  The files of cases are the same as those of `agentrun test`, byte for byte.
Rule 2  A file is unused if no case of its name has a snapshot. A case that is skipped, deselected or broken keeps it.
Rule 3  A journal is accepted only if the case passes otherwise, as with `agentrun test --update`.
Rule 4  Only files that end in `.journal` are touched.
Rule 5  No journal is accepted in CI, because a person must look at it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion
from syrupy.data import Snapshot, SnapshotCollection, SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from agentrun.engine.ci import in_ci
from agentrun.errors import AgentrunError
from agentrun.spec.project import Project, find_project
from agentrun.store.lock import lock_project_files
from agentrun.testing.suite import snapshots
from agentrun.testing.suite.verdict import CaseVerdict, complaint_of

if TYPE_CHECKING:
    import pytest
    from syrupy.types import SerializedData, SnapshotIndex

    from agentrun.testing.plugin.items import CaseItem
    from agentrun.testing.suite.discovery import LocatedCase


class JournalAssertion(SnapshotAssertion):  # noqa: PLW1641  # syrupy's class has no hash either
    """Compares a journal with its snapshot. Raises TypeError for any other value."""

    def __eq__(self, other: object) -> bool:
        __tracebackhide__ = True
        if not isinstance(other, str) and not hasattr(other, "canonical"):
            kind = type(other).__name__
            raise TypeError(f"compare journal_snapshot with a run or with the text of a journal, not with {kind}")
        if self.update_snapshots or self.update_new_snapshots_only:
            # Checked first, because syrupy creates missing directories and follows links.
            folder = self.extension.dirname(test_location=self.test_location)
            path, project = _snapshot_path_and_project(str(Path(folder, "new.journal")))
            project.source_tree("snapshot").check_writable(path)
        return super().__eq__(other)


def make_journal_assertion(item: pytest.Item, extension: type[SingleFileSnapshotExtension]) -> SnapshotAssertion:
    """Make the assertion of a test. The fixture `snapshot` is not used, because it would look for its own kind of files
    and report all others in the folder as unused."""
    option = item.config.option
    return JournalAssertion(
        session=item.config._syrupy,  # type: ignore[attr-defined]  # noqa: SLF001  # the session of syrupy
        extension_class=extension,
        test_location=PyTestLocation(item),
        update_snapshots=option.update_snapshots and not in_ci(),
        update_new_snapshots_only=option.update_new_snapshots_only and not in_ci(),
    )


class JournalSnapshotExtension(SingleFileSnapshotExtension):
    """The journal of a run in a Python test: `__snapshots__/<module>/<test>.journal`."""

    _write_mode = WriteMode.TEXT
    file_extension = "journal"

    def serialize(self, data: Any, **_: Any) -> str:
        """A text, or the canonical journal of a run."""
        return data if isinstance(data, str) else str(data.canonical)

    def read_snapshot_data_from_location(
        self,
        *,
        snapshot_location: str,
        snapshot_name: str,  # noqa: ARG002  # the file has one snapshot
        session_id: str,  # noqa: ARG002  # nothing is cached
    ) -> str | None:
        """Read the file like `agentrun test`."""
        return snapshots.read_snapshot(Path(snapshot_location))

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
        self, *, test_location: PyTestLocation, ignore_extensions: list[str] | None = None
    ) -> SnapshotCollections:
        """The files that no case uses."""
        unused = SnapshotCollections()
        if "journal" in (ignore_extensions or ()):
            return unused
        for path in sorted(Path(self.dirname(test_location=test_location)).glob("*.journal")):
            if path.stem not in _case_item(test_location).cases.with_snapshot:
                collection = SnapshotCollection(location=str(path))
                collection.add(Snapshot(name=path.stem))
                unused.add(collection)
        return unused


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
    """Compares the journal of a case with its snapshot, and accepts the new journal if an option says so."""

    def __init__(self, item: CaseItem, *, has_snapshot: bool) -> None:
        self._assertion = make_journal_assertion(item, CaseSnapshotExtension)
        """Made also for a case without a snapshot, because syrupy finds unused files by it."""
        self._located = item.located
        self._has_snapshot = has_snapshot
        self._new: str | None = None
        """Accepted if the case passes."""

    def compare(self, located: LocatedCase, now: str) -> str | None:
        if not snapshots.may_accept_snapshot(located):
            return snapshots.accepted_snapshot(located, now)
        is_new = self._assertion.update_new_snapshots_only and snapshots.accepted_snapshot(located, "") is None
        if self._assertion.update_snapshots or is_new:
            snapshots.refuse_credentials(located, now)
            self._new = now
            return now
        return self._compare_with_syrupy(now)

    def settle(self, verdict: CaseVerdict) -> CaseVerdict:
        """Write the new journal, or keep the accepted one. If that fails, the case fails."""
        try:
            self._settle(passed=verdict.status == "passed")
        except AgentrunError as error:
            return verdict if verdict.is_bad else replace(verdict, status="failed", complaints=(complaint_of(error),))
        return verdict

    def _settle(self, *, passed: bool) -> None:
        if self._new is not None and passed:
            # Checked now, because syrupy writes after all tests, when no test can fail any more.
            snapshots.check_snapshot_writable(self._located)
            self._compare_with_syrupy(self._new)
        elif self._has_snapshot and not self._assertion.num_executions:
            before = snapshots.accepted_snapshot(self._located, "")
            if before is not None:
                self._compare_with_syrupy(before)  # marks it as used, so that syrupy does not remove it

    def _compare_with_syrupy(self, now: str) -> str | None:
        self._assertion == now  # noqa: B015  # syrupy compares, writes and counts in __eq__
        result = self._assertion.executions[self._assertion.num_executions - 1]
        if result.exception is not None:
            raise result.exception
        return None if result.final_data is None else str(result.final_data)
