"""Convert cassettes between packed and whole requests, without changing what they contain.

Rule 1  Both forms have the same hash: the same requests, replies, times and metadata. If not, nothing is written.
Rule 2  A file is converted under the lock of its recorder. A link is not replaced.
Rule 3  The conversion goes through vcrpy's data, so that it keeps everything that other programs wrote.
"""

from __future__ import annotations

from msgspec import Struct

from agentrun.cassette.file import load_cassette, parse_cassette_text, save_cassette
from agentrun.cassette.selection import CassetteFile, CassetteLock
from agentrun.cassette.writer import CassetteSerializer, WholeSerializer
from agentrun.errors import InternalError, storage_failed


class Conversion(Struct, frozen=True):
    interactions: int
    before: int
    """Bytes."""
    after: int
    is_changed: bool
    """Whether the file was written."""


def convert_cassette(file: CassetteFile, lock: CassetteLock, *, packed: bool) -> Conversion:
    """Raises `cassette.damaged`, and `storage.failed` if the file cannot be written or is too large."""
    if file.path.is_symlink():
        raise storage_failed("cassette", f"{file.label} was not converted because it is a link")
    limit = file.project.cassette_limit
    with lock(file.project, file.path):
        cassette = load_cassette(file.path, limit)
        before = file.path.read_text(encoding="utf-8")
        after = converted_text(before, packed=packed)
        again = parse_cassette_text(after)
        if again.hash != cassette.hash:
            raise InternalError("internal", f"{file.label} was not converted because its content would change")
        if after != before:
            save_cassette(file.tree, file.path, after, limit)
    size = len(before.encode())
    return Conversion(len(cassette.interactions), size, len(after.encode()), after != before)


def converted_text(text: str, *, packed: bool) -> str:
    """The text of a cassette with packed or whole requests. Raises `PackingError`."""
    serializer = CassetteSerializer if packed else WholeSerializer
    return serializer.serialize(serializer.deserialize(text))
