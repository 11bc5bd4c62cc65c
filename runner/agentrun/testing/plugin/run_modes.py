"""Run the cases of a session: replayed, with the model or the tools live, or recorded.

Rule 1  Output of tools and sinks is output of the test, which pytest captures. It is written when the run ends, because
        until then standard output may be redirected for the tool.
Rule 2  There is no approver: approvals that the case does not answer are unavailable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.failure_text import safe_lines
from agentrun.testing.suite.recording import LiveCallbacks, partly_live_runner, recording_runner, replay_runner
from agentrun.testing.suite.replay import CaseRunner, CaseRuns, CompiledAgent


def replay_runner_for(config: pytest.Config) -> CaseRunner:
    """Replay cases, with the model or the tools live if an option says so."""
    option = config.option
    tier = option.agentrun_require_tier
    if option.agentrun_live_tools or option.agentrun_live_model:
        return _live_runner(
            lambda live: partly_live_runner("tools" if option.agentrun_live_tools else "model", live, tier), {}
        )
    return replay_runner(tier)


def recording_runner_for(config: pytest.Config, descriptions: dict[str, str]) -> CaseRunner:
    """Record cases. `descriptions` gets a description of each recording, by the id of the case."""
    return _live_runner(lambda live: recording_runner(config.option.agentrun_record, live), descriptions)


def _live_runner(make_runner: Callable[[LiveCallbacks], CaseRunner], descriptions: dict[str, str]) -> CaseRunner:
    def describe(located: LocatedCase, text: str) -> None:
        descriptions[located.id] = text

    def run_case(located: LocatedCase, agent: CompiledAgent) -> CaseRuns:
        printed: list[str] = []
        live = LiveCallbacks(
            on_recording=describe, on_printed=lambda tool, text: printed.append(text), on_sink_line=printed.append
        )
        try:
            return make_runner(live)(located, agent)
        finally:
            for text in printed:
                sys.stdout.write("".join(f"{line}\n" for line in safe_lines(text.removesuffix("\n"))))

    return run_case
