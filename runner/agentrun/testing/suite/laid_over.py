"""What a case lays over its recording: stubs, faults, and the clock."""

from __future__ import annotations

from agentrun.engine.assemble import Overlay
from agentrun.spec.v1.cases import Case


def overlay_of(case: Case) -> Overlay:  # noqa: ARG001
    return Overlay()
