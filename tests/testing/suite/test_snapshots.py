"""Reading of journal snapshots."""

import os
from pathlib import Path

import pytest

from agentrun.errors import StorageError
from agentrun.testing.suite.snapshots import read_snapshot


def test_missing_snapshot_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert read_snapshot(tmp_path / "a.journal") is None
    assert read_snapshot(tmp_path / "file" / "a.journal") is None


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_snapshot_that_is_not_a_regular_file_is_refused(tmp_path: Path, put: object) -> None:
    """A pipe would be waited for, and a device read, for ever."""
    assert callable(put)
    put(tmp_path / "a.journal")
    with pytest.raises(StorageError, match=r"the snapshot a\.journal cannot be read: it is not a regular file"):
        read_snapshot(tmp_path / "a.journal")
