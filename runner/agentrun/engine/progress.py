"""What calls say about how far they are, on its way to whoever listens.

Rule 1  It is one line without secrets and without anything that acts on a terminal. It is cleaned whole, and then cut.
Rule 2  A call that says too much, or too often, is heard now and then. One that is over is not heard any more.
Rule 3  A tool says it in any thread. It is told on the event loop, before what the call gives.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial

from agentrun.cassette.redaction import redact_text
from agentrun.core.effects import RunTool
from agentrun.engine.clock import StepClock
from agentrun.engine.ports import Progress
from agentrun.engine.world import World
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible

LONGEST = 300
"""Characters of what is told."""
GAP = 100
"""Milliseconds between two."""
MOST = 1000
"""Of one call."""


class Heard:
    """What one call says."""

    def __init__(self, world: World, run: str, call: RunTool) -> None:
        self._world = world
        self._run = run
        self._call = call
        self._next = 0
        """Nothing is told before this moment."""
        self._left = MOST
        self._closed = False
        self._later = _at_once if isinstance(world.clock, StepClock) else _on_the_loop()

    def __call__(self, text: str) -> None:
        now = self._world.clock.now()
        if self._closed or now < self._next or not self._left:
            return
        self._next = now + GAP
        self._left -= 1
        self._later(lambda: self._tell(text))

    def close(self) -> None:
        self._closed = True

    def _tell(self, text: str) -> None:
        clean = mask(redact_text(text, self._world.redactor)).encode("utf-8", "replace").decode()
        line = escape_invisible(clean)[:LONGEST]
        with suppress(Exception):  # who listens cannot make a call fail
            self._world.listen(self._run, Progress(self._run, self._call.id, self._call.name, line))


def _at_once(tell: Callable[[], None]) -> None:
    tell()


def _on_the_loop() -> Callable[[Callable[[], None]], object]:
    """In the context of now: in that of the tool, what a listener prints would count as printed by the tool."""
    from asyncio import get_running_loop  # late: a clock moved by hand needs no event loop

    return partial(get_running_loop().call_soon_threadsafe, context=copy_context())
