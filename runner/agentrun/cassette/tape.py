"""A recording in memory."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from agentrun.wire import HttpCall, HttpReply


class Interaction(Struct, frozen=True):
    """One request and its reply."""

    call: HttpCall
    reply: HttpReply
    start: int | None = None
    """When it was sent, in milliseconds after the recording began."""
    end: int | None = None
    line: int = 0
    """Where it stands in its file."""


class Cassette(Struct, frozen=True):
    """One recording."""

    interactions: tuple[Interaction, ...]
    metadata: dict[str, Any]
    recorded_at: int
    """When the recording began, in milliseconds since 1970. 0: it does not say."""
    hash: str
    """Hash of the file."""
