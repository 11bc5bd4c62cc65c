"""Read a journal of the store while another process writes it.

Rule 1  Each record is checked and returned once. The last line counts only when it is complete.
Rule 2  Nothing is locked or written. The owner of the journal does not notice its readers.
Rule 3  A journal that became shorter than what was read of it is `journal.truncated`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from agentrun.core.facts import Record
from agentrun.errors import StorageError, run_not_found_error, storage_failed
from agentrun.files import ProjectTree
from agentrun.journal.records import HashChain, follow_chain
from agentrun.journal.storage import JOURNAL_NAME, JournalContents, read_contents


class JournalTail:
    def __init__(self, directory: Path, tree: ProjectTree) -> None:
        """`directory`: of the run, in the store."""
        self._path = directory / JOURNAL_NAME
        self._tree = tree
        self._chain = HashChain()
        self._offset = 0

    def read(self) -> Iterator[Record]:
        """The records since the last one that was returned. None yet: the run has not begun. Facts of kinds that this
        release does not know are `UnknownFact`. Raises `run.not_found` if the run is not in the store, or not any
        more, and `journal.*`, `recovery.failed`."""
        contents = self._read_contents()
        if contents is None:
            return
        for record in follow_chain(
            self._chain, self._measure(contents.lines), unknown=True, read_blob=contents.read_blob
        ):
            contents.check_head(record.seq, self._chain.head)
            yield record
        contents.refuse_missing_records(self._chain.seq)

    def _measure(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        for line in lines:
            self._offset += len(line) + 1
            yield line

    def _read_contents(self) -> JournalContents | None:
        """The part of the journal that was not read yet. None: there is nothing new."""
        try:
            size = os.stat(self._path, follow_symlinks=False).st_size
        except FileNotFoundError:
            if self._offset or not self._path.parent.is_dir():
                raise run_not_found_error(self._path.parent.name) from None
            return None
        except OSError as error:
            raise storage_failed("journal", f"the journal cannot be read: {error.strerror}", error) from error
        if size < self._offset:
            message = f"the journal became shorter; it had {self._chain.seq} records"
            raise StorageError("journal.truncated", message, fields={"seq": self._chain.seq, "head": self._chain.seq})
        return None if size == self._offset else read_contents(self._path, self._tree, start=self._offset)
