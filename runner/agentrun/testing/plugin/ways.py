"""How the cases of a session are run: replayed, with one axis live, or recorded.

Rule 1  What tools and sinks print is output of the test, which pytest captures.
Rule 2  A test answers no questions: approvals that the case does not answer find nobody.
"""

from __future__ import annotations

import sys

import pytest

from agentrun.testing.suite import recorded
from agentrun.testing.suite.evaluate import Play
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.recorded import Live, one_axis_live, replaying


def replay(config: pytest.Config) -> Play:
    """From recordings, as a whole or but for one axis."""
    option = config.option
    tier = option.agentrun_require_tier
    if option.agentrun_live_tools or option.agentrun_live_model:
        return one_axis_live("tools" if option.agentrun_live_tools else "model", _live({}), tier)
    return replaying(tier)


def record(config: pytest.Config, said: dict[str, str]) -> Play:
    """Recorded first. `said`: gets in words what was recorded, by the id of the case."""
    return recorded.recording(config.option.agentrun_record, _live(said))


def _live(said: dict[str, str]) -> Live:
    def say(found: Found, text: str) -> None:
        said[found.id] = text

    return Live(said=say, printed=lambda tool, text: _out(text), write=print)


def _out(text: str) -> None:
    sys.stdout.write(text)
