"""The recording of a run, in its directory: `recording.jsonl`, a log of interactions of which the cassette is made."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from agentrun.files import ProjectTree

RECORDING_NAME = "recording.jsonl"


class RunRecording(Struct, frozen=True):
    tree: ProjectTree
    path: Path
    syncs: bool
    """Whether a line is on the disk before the record that follows from it is written."""

    def exists(self) -> bool:
        return self.tree.read(self.path, 1) is not None

    def append(self, data: bytes) -> None:
        self.tree.append(self.path, data, sync=self.syncs)

    def read(self) -> bytes:
        return self.tree.read(self.path, self.path.stat().st_size) or b"" if self.exists() else b""

    def rewrite(self, data: bytes) -> None:
        self.tree.write(self.path, data)

    def remove(self) -> None:
        if self.exists():
            self.tree.remove(self.path)
