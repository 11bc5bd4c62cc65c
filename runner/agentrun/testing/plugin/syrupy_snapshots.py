"""Canonical journals as snapshots of syrupy, one file each.

Rule 1  The files of cases are those of `agentrun test`, byte for byte and in the same place.
Rule 2  A file is unused when no case of its name asks for it. A case that was skipped, left out or could not be run
        still has its file.
Rule 3  Only the journal of a case that holds otherwise is accepted, as by `agentrun test --update`.
Rule 4  Only what is a journal is ours: other files beside it are nobody's business here.
Rule 5  Where CI is set no journal is accepted: that is for people, who look at it.
"""

from __future__ import annotations

import os
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion
from syrupy.data import Snapshot, SnapshotCollection, SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from agentrun.engine.ci import in_ci
from agentrun.errors import AgentrunError
from agentrun.report.journal_diff import compare_journals
from agentrun.spec.project import Project, find_project
from agentrun.store.lock import lock_project_files
from agentrun.testing.suite.snapshots import (
    accepted_snapshot,
    check_snapshot_writable,
    may_accept_snapshot,
    read_snapshot,
    refuse_credentials,
    snapshot_directory,
)
from agentrun.testing.suite.verdict import CaseVerdict, Complaint

if TYPE_CHECKING:
    import pytest
    from syrupy.types import SerializedData, SnapshotIndex

    from agentrun.testing.plugin.items import CaseItem
    from agentrun.testing.suite.discovery import LocatedCase


class JournalAssertion(SnapshotAssertion):  # noqa: PLW1641  # nor has that of syrupy a hash
    """What a journal is compared with; with anything else it is a mistake in the test."""

    def __eq__(self, other: object) -> bool:
        __tracebackhide__ = True
        if not isinstance(other, str) and not hasattr(other, "canonical"):
            kind = type(other).__name__
            raise TypeError(f"journal_snapshot is for a run, or for the text of a journal, not for a value of {kind}")
        if self.update_snapshots or self.update_new_snapshots_only:
            # Before syrupy is asked: it creates missing directories itself, and follows links.
            path, project = _snapshot_path_and_project(
                str(Path(self.extension.dirname(test_location=self.test_location), "new.journal"))
            )
            project.source_tree("snapshot").check_writable(path)
        return super().__eq__(other)


def make_journal_assertion(item: pytest.Item, extension: type[SingleFileSnapshotExtension]) -> SnapshotAssertion:
    """What a journal is compared with. Not made by the fixture `snapshot`: that one also looks for files of its own
    form, and takes all others in the folder for remains."""
    option = item.config.option
    return JournalAssertion(
        session=item.config._syrupy,  # type: ignore[attr-defined]  # noqa: SLF001  # where syrupy keeps its session
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
        """A text as it is; of a run, its canonical journal."""
        return data if isinstance(data, str) else str(data.canonical)

    def read_snapshot_data_from_location(
        self,
        *,
        snapshot_location: str,
        snapshot_name: str,  # noqa: ARG002  # it is the file's
        session_id: str,  # noqa: ARG002  # nothing is kept
    ) -> str | None:
        """As `agentrun test` reads it, whatever is in it."""
        return read_snapshot(Path(snapshot_location))

    @classmethod
    def write_snapshot_collection(
        cls,
        *,
        snapshot_collection: SnapshotCollection,
        name_order: dict[str, int] | None = None,  # noqa: ARG003  # there is one in each file
    ) -> None:
        """As all files of a project are written: under its lock, and through no link."""
        path, project = _snapshot_path_and_project(snapshot_collection.location)
        tree = project.source_tree("snapshot")
        with lock_project_files(project):
            for snapshot in snapshot_collection:
                tree.write(path, str(snapshot.data).encode())

    def delete_snapshots(self, *, snapshot_location: str, snapshot_names: set[str]) -> None:  # noqa: ARG002  # it is the file's
        """Not where CI is set: what is accepted stays as it is there."""
        if in_ci():
            return
        path, project = _snapshot_path_and_project(snapshot_location)
        project.source_tree("snapshot").remove(path)
        project.source_tree("snapshot").remove_empty_directory(path.parent)

    def diff_lines(self, serialized_data: SerializedData, snapshot_data: SerializedData) -> Any:
        before, now = str(snapshot_data), str(serialized_data)
        yield from (change.text for change in compare_journals(before, now))
        yield ""
        yield from unified_diff(before.splitlines(), now.splitlines(), "accepted", "now", lineterm="")


class CaseSnapshotExtension(JournalSnapshotExtension):
    """The journal of a case: `__snapshots__/<spec>/<case>.journal` beside the spec."""

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: SnapshotIndex = 0) -> str:  # noqa: ARG003  # as syrupy calls it
        """One for each case, however often it is compared."""
        return test_location.testname

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        return str(snapshot_directory(_case_item(test_location).found.file))

    def discover_snapshots(
        self, *, test_location: PyTestLocation, ignore_extensions: list[str] | None = None
    ) -> SnapshotCollections:
        """The files that no case asks for."""
        found = SnapshotCollections()
        for path in sorted(Path(self.dirname(test_location=test_location)).glob("*.journal")):
            if path.stem not in _case_item(test_location).cases.with_snapshot and "journal" not in (
                ignore_extensions or ()
            ):
                collection = SnapshotCollection(location=str(path))
                collection.add(Snapshot(name=path.stem))
                found.add(collection)
        return found


def _snapshot_path_and_project(location: str) -> tuple[Path, Project]:
    """The file of a snapshot, `<directory>/__snapshots__/<module or spec>/<name>.journal`, and its project. The way to
    the directory is as pytest was told; below it no link is followed."""
    path = Path(location)
    directory = path.parents[2]
    return Path(os.path.realpath(directory)) / path.relative_to(directory), find_project(directory / "x")


def _case_item(location: PyTestLocation) -> CaseItem:
    item: Any = location.item
    return item  # type: ignore[no-any-return]  # none but cases have files of cases


class CaseSnapshot:
    """The snapshot of a case: compares, and accepts what is new where that is asked for."""

    def __init__(self, item: CaseItem, *, is_kept: bool) -> None:
        self._assertion = make_journal_assertion(item, CaseSnapshotExtension)
        """Also of a case without a snapshot: it is how files are found that are not used any more."""
        self._found = item.found
        self._is_kept = is_kept
        self._new: str | None = None
        """What is accepted if all else holds."""

    def compare(self, found: LocatedCase, now: str) -> str | None:
        if not may_accept_snapshot(found):
            return accepted_snapshot(found, now)
        if self._is_update(found):
            refuse_credentials(found, now)
            self._new = now
            return now
        return self._compare_with_syrupy(now)

    def settle(self, verdict: CaseVerdict) -> CaseVerdict:
        """The case is over: what is new is written, or what was accepted stays. What keeps it from being written, or
        from being read, is a failure of the case."""
        try:
            self._settle(passed=verdict.status == "passed")
        except AgentrunError as error:
            wrong = Complaint(claim=error.code, message=error.message, hint=error.hint)
            return verdict if verdict.is_bad else replace(verdict, status="failed", complaints=(wrong,))
        return verdict

    def _settle(self, *, passed: bool) -> None:
        if self._new is not None and passed:
            check_snapshot_writable(self._found)  # syrupy writes at the end of all tests, where a failure is nobody's
            self._compare_with_syrupy(self._new)
        elif self._is_kept and not self._assertion.num_executions:
            before = accepted_snapshot(self._found, "")
            if before is not None:
                self._compare_with_syrupy(before)  # not compared, but used: syrupy removes what nobody asks for

    def _is_update(self, found: LocatedCase) -> bool:
        assertion = self._assertion
        return assertion.update_snapshots or (
            assertion.update_new_snapshots_only and accepted_snapshot(found, "") is None
        )

    def _compare_with_syrupy(self, now: str) -> str | None:
        self._assertion == now  # noqa: B015  # syrupy compares, writes and counts when it is asked
        result = self._assertion.executions[self._assertion.num_executions - 1]
        if result.exception is not None:
            raise result.exception
        return None if result.final_data is None else str(result.final_data)
