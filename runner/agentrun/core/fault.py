"""What facts have in common.

They are kept out of garbage collection (`gc=False`), as messages and state are: they never form cycles, and a long run
holds so many that looking at them again and again would cost more than making them.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from agentrun.errors import AgentrunError


class Fault(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """What went wrong, as data. The code decides retry class and exit code (`errors.CODES`)."""

    code: str
    message: str
    fields: dict[str, Any] = {}
    """The evidence."""
    hint: str | None = None
    """What the reader can do."""


def fault_of(error: AgentrunError) -> Fault:
    """An error as data."""
    return Fault(error.code, error.message, error.fields, error.hint)
