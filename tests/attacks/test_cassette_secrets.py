"""Twelve secrets, planted in every place that a secret can be in: no file and no terminal ever has one of them."""

from __future__ import annotations

from pathlib import Path

from agentrun.testing.provider import ScriptedProvider

from .canary import ALL, Trap, environment, story

EVERYTHING = (ALL, "--param", f"who={ALL}", "--approve", "approvals.yaml", "--attach", "letter.txt")


def test_nothing_is_given_away(tmp_path: Path) -> None:
    trap = Trap(tmp_path)
    with ScriptedProvider(story()) as server:
        given = environment(server.url)
        recorded = trap.run("record", "canary.yaml", *EVERYTHING, "--case", "all", "--mode", "record", environment=given)
        assert len(server.requests) > 10, trap.said["record"].decode()
    print(trap.said["record"].decode()[-3000:])
    found = trap.leaks()
    print(recorded, found)
    assert not found
