"""What facts have in common.

They are kept out of garbage collection (`gc=False`), as messages and state are: they never form cycles, and a long run
holds so many that looking at them again and again would cost more than making them.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.messages import VOLATILE


class Fault(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """What went wrong, as data. The code decides retry class and exit code (`errors.CODES`)."""

    code: str
    message: str
    fields: dict[str, Any] = {}
    """The evidence."""
    hint: str | None = None
    """What the reader can do."""


class Share(Struct, frozen=True, forbid_unknown_fields=True):
    """What a child may spend of its parent's budget. Null: no limit."""

    tokens: int | None = None
    cost: int | None = None
    """Micro-dollars."""
    time: Annotated[int | None, VOLATILE] = None
    """Milliseconds. What is left depends on the clock."""
    tool_calls: int | None = None
    runs: int | UnsetType = UNSET
    """Runs that it may start below itself, of all depths. Absent: none, or as many as its own limit allows."""


def counted(runs: int | UnsetType) -> int:
    """The number of runs that is written down, or left out because there are none."""
    return 0 if runs is UNSET else runs


class Observation(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type"):
    """A fact that came from outside."""


class Decision(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type"):
    """A fact that `decide` made."""
