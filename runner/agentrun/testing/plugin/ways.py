"""How the cases of a session are run: replayed, with one axis live, or recorded.

Rule 1  What tools and sinks print is output of the test, which pytest captures. It is written when the run is over:
        until then what is printed may be kept for the tool.
Rule 2  A test answers no questions: approvals that the case does not answer find nobody.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from agentrun.testing.suite import recorded
from agentrun.testing.suite.evaluate import Play
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.played import Played
from agentrun.testing.suite.prepared import Prepared
from agentrun.testing.suite.recorded import Live, one_axis_live, replaying
from agentrun.testing.suite.told import shown


def replay(config: pytest.Config) -> Play:
    """From recordings, as a whole or but for one axis."""
    option = config.option
    tier = option.agentrun_require_tier
    if option.agentrun_live_tools or option.agentrun_live_model:
        return _live(lambda live: one_axis_live("tools" if option.agentrun_live_tools else "model", live, tier), {})
    return replaying(tier)


def record(config: pytest.Config, said: dict[str, str]) -> Play:
    """Recorded first. `said`: gets in words what was recorded, by the id of the case."""
    return _live(lambda live: recorded.recording(config.option.agentrun_record, live), said)


def _live(way: Callable[[Live], Play], said: dict[str, str]) -> Play:
    def say(found: Found, text: str) -> None:
        said[found.id] = text

    def carry_out(found: Found, prepared: Prepared) -> Played:
        printed: list[str] = []
        live = Live(said=say, printed=lambda tool, text: printed.append(text), write=printed.append)
        try:
            return way(live)(found, prepared)
        finally:
            for text in printed:
                sys.stdout.write("".join(f"{line}\n" for line in shown(text.removesuffix("\n"))))

    return carry_out
