"""Bugs that are planted in the store, each with a test that must fail because of it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun import files
from agentrun.files import ProjectTree
from agentrun.journal import records, storage
from agentrun.journal.storage import FileJournal, JournalContents
from agentrun.spec.project import Project
from agentrun.store import owner, retention
from agentrun.store.files import FileStore, LastRecord
from agentrun.store.process_lock import ProcessLock
from agentrun.store.run_blobs import RunBlobs

from ..journal import test_stored_journal as journal_tests
from ..journal.test_stored_journal import synced  # noqa: F401  # a fixture
from . import test_files as file_tests
from . import test_large_records as large_record_tests
from . import test_owner as owner_tests
from . import test_retention as retention_tests

DAY = retention_tests.DAY


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project")


@pytest.fixture
def store(project: Project) -> Iterator[FileStore]:
    with FileStore(project) as store:
        yield store


@pytest.fixture
def directory(tmp_path: Path) -> journal_tests.Directory:
    return journal_tests.Directory(tmp_path)


def lock_without_the_kernel(lock: Any) -> bool:
    lock._descriptor = lock._tree.open_file(lock._path, os.O_RDWR | os.O_CREAT, sync=False)
    return True


def forget_a_failure(journal: Any, record: Any, append: Any = FileJournal.append) -> None:
    try:
        append(journal, record)
    except BaseException:
        journal._poisoned = False
        raise


def cut_without_a_copy(journal: Any, torn: bytes) -> None:
    files.cut_file(journal._file, journal._ends[-1])
    journal.torn = len(torn)


def continue_with_the_same_epoch(store: Any, run: str, open_run: Any = FileStore.open) -> Any:
    journal = open_run(store, run)
    if journal._file is not None:
        journal._file.epoch = 1
    return journal


def remove_only_the_root(store: Any, run: str, _names: Any = ()) -> None:
    store._tree.remove_directory(store.run_directory(run))


def read_any_blob(blobs: Any, blob: str) -> bytes:
    return bytes(blobs._tree.read(blobs._path(blob), 100))


def open_through_links(directory: int, part: str, _depth: int, *, create: int | None) -> int:
    if create is not None and not os.path.lexists(f"/proc/self/fd/{directory}/{part}"):
        os.mkdir(part, create, dir_fd=directory)
    return os.open(part, os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)


def size_alone(journal: Any) -> int:
    return os.lseek(journal._file, 0, os.SEEK_END)


def nothing(*_: Any, **__: Any) -> None: ...


BUGS: dict[str, tuple[Any, str, Any, Callable[..., None], dict[str, Any]]] = {
    "lock that is not taken": (
        ProcessLock,
        "_try",
        lock_without_the_kernel,
        file_tests.test_run_has_one_owner_across_stores,
        {},
    ),
    "lock on a removed file": (
        ProcessLock,
        "_try",
        lock_without_the_kernel,
        file_tests.test_lock_on_a_removed_file_does_not_count,
        {},
    ),
    "files that others can read": (
        ProjectTree,
        "_file_mode",
        0o644,
        file_tests.test_store_is_private_to_the_user,
        {},
    ),
    "first record that leaves a directory": (
        FileStore,
        "undo_creation",
        nothing,
        file_tests.test_first_record_that_cannot_be_written_leaves_no_trace_in_its_session,
        {},
    ),
    "run that is started again": (
        FileStore,
        "__contains__",
        lambda store, run: False,
        file_tests.test_existing_run_is_not_started_again,
        {},
    ),
    "next owner with the same epoch": (
        FileStore,
        "open",
        continue_with_the_same_epoch,
        file_tests.test_former_owner_in_the_same_process_cannot_write,
        {},
    ),
    "blob that is not checked": (
        RunBlobs,
        "get",
        read_any_blob,
        file_tests.test_damaged_blob_is_not_returned,
        {},
    ),
    "sub-agents that are left": (
        FileStore,
        "_remove_directories",
        remove_only_the_root,
        file_tests.test_remove_takes_the_run_with_its_sub_agents,
        {},
    ),
    "torn line that is not kept": (
        FileJournal,
        "_cut",
        cut_without_a_copy,
        file_tests.test_torn_last_line_is_kept_aside_and_cut_off,
        {},
    ),
    "missing records at the end": (
        JournalContents,
        "refuse_missing_records",
        nothing,
        file_tests.test_tail_cut_at_a_record_boundary_is_found,
        {},
    ),
    "other last record": (
        JournalContents,
        "check_head",
        nothing,
        file_tests.test_replaced_last_record_is_found,
        {},
    ),
    "directory that is not looked at": (
        FileJournal,
        "check_directory",
        size_alone,
        file_tests.test_vanished_directory_stops_the_run_before_the_next_effect,
        {},
    ),
    "read-only directory": (
        FileJournal,
        "check_directory",
        size_alone,
        file_tests.test_read_only_directory_stops_the_run_before_the_next_effect,
        {},
    ),
    "directory of the root that is not looked at": (
        FileStore,
        "check_directory",
        nothing,
        file_tests.test_sub_agent_stops_before_its_next_effect_if_the_directory_of_its_root_vanishes,
        {"sync": "effects"},
    ),
    "second writer": (
        FileJournal,
        "_check_size",
        nothing,
        file_tests.test_writer_that_lost_its_file_to_another_is_refused,
        {},
    ),
    "link that is followed": (
        files,
        "_open_below",
        open_through_links,
        file_tests.test_linked_run_directory_is_not_followed,
        {},
    ),
    "store that is not tried": (
        FileStore,
        "check_writable",
        nothing,
        file_tests.test_store_that_cannot_be_written_names_the_setting,
        {},
    ),
    "sync that is forgotten": (
        storage,
        "_SYNCED_FACTS",
        dict.fromkeys(("process", "effects", "full"), storage.INTENTS),
        journal_tests.test_journal_is_synced_as_the_mode_says,
        {"mode": "effects"},
    ),
    "journal that goes on after a failed sync": (
        FileJournal,
        "append",
        forget_a_failure,
        journal_tests.test_failed_sync_poisons_the_journal_and_is_not_repeated,
        {},
    ),
    "record that cannot be read back": (
        storage,
        "refuse_unreadable",
        nothing,
        journal_tests.test_record_that_could_not_be_read_back_is_not_written,
        {},
    ),
    "journal without a limit": (
        FileJournal,
        "_check_limits",
        nothing,
        journal_tests.test_full_journal_takes_only_the_end_of_the_run,
        {},
    ),
    "damage that is passed over": (
        records,
        "data_hash",
        lambda data: records.GENESIS_HASH,
        journal_tests.test_damage_before_the_end_stops,
        {},
    ),
    "large record in its line": (
        storage,
        "MAX_RECORD_BYTES",
        10**7,
        large_record_tests.test_fact_above_the_limit_is_in_a_blob,
        {},
    ),
    "store that git tracks": (
        owner,
        "_is_tracked",
        lambda project: False,
        owner_tests.test_store_that_git_tracks_is_not_trusted,
        {},
    ),
    "copy of a store": (
        owner,
        "is_claimed",
        lambda project: True,
        owner_tests.test_copy_with_an_unknown_id_is_not_trusted,
        {},
    ),
    "forged store that is claimed": (
        owner,
        "_is_empty",
        lambda tree, directory: True,
        owner_tests.test_store_with_anything_else_is_not_claimed,
        {"name": "index.sqlite"},
    ),
    "run that is kept too long": (
        retention,
        "RUN_DAYS",
        31,
        retention_tests.test_finished_run_is_removed_after_30_days,
        {"age": 30 * DAY + 1, "is_kept": False},
    ),
    "run that is removed too early": (
        retention,
        "RUN_DAYS",
        29,
        retention_tests.test_finished_run_is_removed_after_30_days,
        {"age": 30 * DAY, "is_kept": True},
    ),
    "unfinished run that is removed": (
        LastRecord,
        "is_terminal",
        property(lambda last: True),
        retention_tests.test_unfinished_run_is_never_removed,
        {},
    ),
    "active session that is removed": (
        retention,
        "_is_old_session",
        lambda *_: True,
        retention_tests.test_session_with_an_active_run_is_kept,
        {},
    ),
    "removal without a limit": (
        retention,
        "enumerate",
        lambda runs: ((0, run) for run in runs),
        retention_tests.test_one_call_removes_a_limited_number,
        {},
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_found(bug: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, planted, test, values = BUGS[bug]
    needed = inspect.signature(test).parameters.keys() - values.keys()
    fixtures = {each: request.getfixturevalue(each) for each in needed}
    monkeypatch.setattr(where, name, planted, raising=name != "enumerate")  # a built-in function is not in the module
    try:
        test(**fixtures, **values)
    except (TypeError, AttributeError, NameError):  # the bug does not fit the code any more
        raise
    except (Exception, pytest.fail.Exception):  # noqa: BLE001  # that is how a test fails
        return
    pytest.fail("no test fails")
