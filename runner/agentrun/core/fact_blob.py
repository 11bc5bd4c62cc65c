"""A record whose fact is in a file of its own."""

from __future__ import annotations

from msgspec import Struct


class FactBlob(Struct, frozen=True, forbid_unknown_fields=True):
    """The place of a fact that is too large for a line of the journal."""

    blob: str
    """The hash of the file with the fact."""
    size: int
    """The bytes of the fact."""
    type: str
    """The kind of the fact."""
