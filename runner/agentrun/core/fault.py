"""Faults: coded failures of a run, as data."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from agentrun.errors import AgentrunError


class Fault(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """What went wrong. The code decides the retry class and the exit code."""

    code: str
    message: str
    fields: dict[str, Any] = {}
    """The evidence."""
    hint: str | None = None
    """What the user can do."""


def fault_of(error: AgentrunError) -> Fault:
    return Fault(error.code, error.message, error.fields, error.hint)
