"""What two canonical journals say differently, in words."""

from __future__ import annotations

from msgspec import Struct


class Change(Struct, frozen=True):
    text: str
    """In a line: `turn 2: the call of refund has amount 25, was 20`."""


def changes_between(before: str, after: str) -> tuple[Change, ...]:
    """The differences between two canonical journals, in the order of the run."""
    return () if before == after else (Change("the journal differs"),)
