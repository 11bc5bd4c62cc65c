"""The stories of a run and of its children, as they happen at the same time."""

from __future__ import annotations

from agentrun.core.facts import Record
from agentrun.core.facts_calls import ChildStarted
from agentrun.core.package import Package
from agentrun.report.story import Story


class Family:
    """Which story a record belongs to. Who a child is, its parent's journal says before the child begins."""

    def __init__(self, package: Package, *, tells_failure: bool = False) -> None:
        """`tells_failure`: whether the story of the run that was started says why it failed."""
        self.root = Story(package, tells_failure=tells_failure)
        self._packages: dict[str, Package] = {}
        self._stories: dict[str, Story] = {}
        self._package = package

    def story_of(self, run: str, record: Record) -> Story:
        """The story that a record goes on with. The first run that is heard of is the one that was started."""
        if not self._stories:
            self._packages[run], self._stories[run] = self._package, self.root
        fact = record.fact
        if isinstance(fact, ChildStarted):
            child = self._packages[run].agents[fact.tool]
            self._packages[fact.run] = child
            self._stories.setdefault(fact.run, Story(child))
        return self._stories[run]
