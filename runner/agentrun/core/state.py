"""All that a run knows about itself: a fold over its journal, and nothing else."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from agentrun.core.facts import Fault, RunStarted, RunStopped
from agentrun.core.messages import NOTHING_USED, Reply, Transcript, Usage

Phase: TypeAlias = Literal["fresh", "thinking", "asking", "answered", "failed", "stopped"]
"""fresh: nothing happened yet. thinking: the model is to be asked. asking: a request is under way.
answered, failed: its reply, or its fault, is to be judged. stopped: over."""


class State(Struct, frozen=True):
    phase: Phase = "fresh"
    seq: int = 0
    """The record this state was reached with."""
    started: RunStarted | None = None
    transcript: Transcript = field(default_factory=Transcript)
    turns: int = 0
    """Turns begun."""
    attempt: int = 0
    """Requests sent in this turn."""
    effect: str | None = None
    """The request under way."""
    reply: Reply | None = None
    """The latest reply."""
    fault: Fault | None = None
    """Why the latest request failed."""
    repairs: int = 0
    """How often the answer was refused."""
    usage: Usage = NOTHING_USED
    """As reported."""
    estimate: int = 0
    """Tokens of the transcript, estimated."""
    reserved: int = 0
    """Tokens reserved for the request under way."""
    tokens: int = 0
    """Tokens that count against the budget."""
    stopped: RunStopped | None = None
