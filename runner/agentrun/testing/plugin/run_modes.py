"""How the cases of a session are run: replayed, with one axis live, or recorded.

Rule 1  What tools and sinks print is output of the test, which pytest captures. It is written when the run is over:
        until then what is printed may be kept for the tool.
Rule 2  A test answers no questions: approvals that the case does not answer find nobody.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from agentrun.testing.suite import recording
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.failure_text import safe_lines
from agentrun.testing.suite.recording import LiveCallbacks, partly_live_runner, replay_runner
from agentrun.testing.suite.replay import CaseRunner, CaseRuns, CompiledAgent


def replay_runner_for(config: pytest.Config) -> CaseRunner:
    """From recordings, as a whole or but for one axis."""
    option = config.option
    tier = option.agentrun_require_tier
    if option.agentrun_live_tools or option.agentrun_live_model:
        return _live_runner(
            lambda live: partly_live_runner("tools" if option.agentrun_live_tools else "model", live, tier), {}
        )
    return replay_runner(tier)


def recording_runner_for(config: pytest.Config, said: dict[str, str]) -> CaseRunner:
    """Recorded first. `said`: gets in words what was recorded, by the id of the case."""
    return _live_runner(lambda live: recording.recording_runner(config.option.agentrun_record, live), said)


def _live_runner(way: Callable[[LiveCallbacks], CaseRunner], said: dict[str, str]) -> CaseRunner:
    def say(found: LocatedCase, text: str) -> None:
        said[found.id] = text

    def carry_out(found: LocatedCase, prepared: CompiledAgent) -> CaseRuns:
        printed: list[str] = []
        live = LiveCallbacks(
            on_recording=say, on_printed=lambda tool, text: printed.append(text), on_sink_line=printed.append
        )
        try:
            return way(live)(found, prepared)
        finally:
            for text in printed:
                sys.stdout.write("".join(f"{line}\n" for line in safe_lines(text.removesuffix("\n"))))

    return carry_out
