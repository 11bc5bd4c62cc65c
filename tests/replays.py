"""Replays for tests: a package and a cassette, whatever form they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentrun.cassette.file import load
from agentrun.cassette.player import Player
from agentrun.cassette.redaction import Redaction
from agentrun.cassette.tape import Cassette
from agentrun.compiler.fingerprint import sealed
from agentrun.core.package import Package
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun, replay_run


def replay_package(
    agent: Package,
    cassette: Path | Cassette | Player,
    message: str | None = None,
    params: dict[str, Any] | None = None,
    *,
    fingerprint: str = "sha256:0",
    **options: Any,
) -> FinishedRun:
    """A package against a cassette. `options`: as for `replay_run`."""
    file = replace(sealed(agent), fingerprint=fingerprint, agent=agent)
    request = Request(agent=agent.name, package=file, message=message, params=params or {})
    return replay_run(request, player_of(agent, cassette), **options)


def player_of(agent: Package, cassette: Path | Cassette | Player) -> Player:
    if isinstance(cassette, Player):
        return cassette
    tape = load(cassette) if isinstance(cassette, Path) else cassette
    return Player(tape, volatile=agent.replay.volatile, redaction=Redaction(agent.replay.redact))
