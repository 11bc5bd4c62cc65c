"""Where a compiled agent delivers its answer."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from agentrun.core.package_tools import Auth


class SinkBase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """What sinks of every kind have in common."""

    delivery: Literal["required", "optional", "disabled"]
    """What a failed delivery means."""
    timeout: int
    """How long one delivery may take, in milliseconds."""


class FileSink(SinkBase, frozen=True, tag="file"):
    """Writes the answer to a file."""

    path: str
    """The file, relative to the project's root."""


class JsonlSink(SinkBase, frozen=True, tag="jsonl"):
    """Appends one JSON line."""

    path: str
    """The file, relative to the project's root."""


class HttpSink(SinkBase, frozen=True, tag="http"):
    """Posts the answer as JSON."""

    url: str
    """Where it is sent."""
    headers: dict[str, str]
    """Request headers."""
    auth: Auth | None
    """The credential to send."""
    private_network: bool
    """Whether loopback and private addresses may be reached."""


class StdoutSink(SinkBase, frozen=True, tag="stdout"):
    """Prints the answer as one JSON line."""


Sink: TypeAlias = FileSink | JsonlSink | HttpSink | StdoutSink
