"""Replay a package against a cassette of any form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentrun.cassette.file import load_cassette
from agentrun.cassette.interactions import Cassette
from agentrun.cassette.player import Player
from agentrun.cassette.redaction import RunRedaction
from agentrun.compiler.package_file import seal_package
from agentrun.core.package import Package
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun, replay_run


def replay_package(
    agent: Package,
    cassette: Path | Cassette | Player,
    message: str | None = None,
    params: dict[str, Any] | None = None,
    **options: Any,
) -> FinishedRun:
    """A package against a cassette. `options`: as for `replay_run`."""
    request = Request(agent=agent.name, package=seal_package(agent), message=message, params=params or {})
    return replay_run(request, player_of(agent, cassette), **options)


def player_of(agent: Package, cassette: Path | Cassette | Player) -> Player:
    if isinstance(cassette, Player):
        return cassette
    recorded_cassette = load_cassette(cassette) if isinstance(cassette, Path) else cassette
    return Player(recorded_cassette, volatile=agent.replay.volatile, redaction=RunRedaction(agent.replay.redact))
