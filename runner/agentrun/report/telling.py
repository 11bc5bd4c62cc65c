"""A record on its way from a journal to the screen."""

from __future__ import annotations

from agentrun.core.facts import ModelFailed, ModelReplied, Record
from agentrun.report.screen import Screen
from agentrun.report.story import Story


def show(record: Record, story: Story, screen: Screen, run: str = "", root: Story | None = None) -> None:
    """Put what a record says on the screen. What streamed before it is told by now, or void.

    `root`: the story of the run that was started, where this is a child's: what is spent is told of the family.
    """
    lines = story.tell(record)
    if isinstance(record.fact, ModelReplied | ModelFailed):
        screen.delta(passing(run, record.fact.effect), None)
    for line in lines:
        screen.line(line)
    screen.status((root or story).spend)


def passing(run: str, effect: str) -> str:
    """What a piece of text in passing belongs to. A child has effects of the same names as its parent."""
    return f"{run}/{effect}"
