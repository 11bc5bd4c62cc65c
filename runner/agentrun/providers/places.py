"""Where in an answer something is wrong."""

from __future__ import annotations

from msgspec.structs import replace

from agentrun.core.facts_base import Fault
from agentrun.providers.faults import unreadable


def unreadable_at(error: Exception, pointer: str) -> Fault:
    """The fault of a part of an answer that was read by itself, with its place in the whole."""
    fault = unreadable(error, 0)
    return replace(fault, fields={"pointer": pointer + fault.fields.get("pointer", "")})
