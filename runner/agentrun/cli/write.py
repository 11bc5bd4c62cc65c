"""Writing files that people asked for: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from agentrun.errors import StorageError


def write_file(path: Path, data: bytes) -> None:
    """Replaces a file's content in one step; on failure the old content is untouched."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        fields = {"path": path.name, "errno": error.errno}
        raise StorageError("storage.failed", f"cannot write {path}: {error.strerror}", fields=fields) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
