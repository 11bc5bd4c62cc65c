"""The blobs of a run and its sub-agents: contents that are too large for a journal, in files that are named by their
hash."""

from __future__ import annotations

import os
import re
from pathlib import Path

from agentrun.canonical_json import data_hash
from agentrun.files import ProjectTree
from agentrun.journal.storage import MAX_BLOB_BYTES

_BLOB = re.compile(r"sha256:([0-9a-f]{64})")


class RunBlobs:
    """Blobs in files, by their hash. Those of a run without a first record are in memory."""

    def __init__(self, tree: ProjectTree, directory: Path, *, sync: bool) -> None:
        self._tree = tree
        self._sync = sync
        self._directory = directory
        self._pending: dict[str, bytes] | None = None if directory.parent.is_dir() else {}

    def put(self, data: bytes) -> str:
        blob = data_hash(data)
        if self._pending is not None:
            self._pending[blob] = data
        else:
            self._write(blob, data)
        return blob

    def get(self, blob: str) -> bytes:
        if self._pending is not None:
            return self._pending[blob]
        data = self._tree.read(self._path(blob), MAX_BLOB_BYTES + 1)
        if data is None or data_hash(data) != blob:
            raise KeyError(blob)
        return data

    def write_pending(self) -> None:
        pending, self._pending = self._pending or {}, None
        for blob, data in pending.items():
            self._write(blob, data)

    def _write(self, blob: str, data: bytes) -> None:
        path = self._path(blob)
        if not os.path.lexists(path):
            self._tree.write(path, data, sync=self._sync)

    def _path(self, blob: str) -> Path:
        if (found := _BLOB.fullmatch(blob)) is None:
            raise KeyError(blob)
        return self._directory / found[1]
