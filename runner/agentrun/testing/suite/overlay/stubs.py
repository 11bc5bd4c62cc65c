"""What tools give in place of running.

Rule 1  An exact name wins over a pattern, and of two patterns the one that stands first.
Rule 2  A list is gone through once in each run of a family, in a conversation once in all; its last stays.
Rule 3  The tools of a sub-agent are named after the tool that it is: `read/search`. A name without a slash means the
        agent's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import UNSET

from agentrun.canon import compact
from agentrun.core.effects import Returned, RunTool
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Text
from agentrun.core.names import matches
from agentrun.spec.v1.cases import Stub
from agentrun.testing.suite.overlay.places import Member


class Stubs:
    """The stubs of a case."""

    def __init__(self, stubs: Mapping[str, Stub | list[Stub]]) -> None:
        self._stubs = stubs
        self._given: Counter[tuple[Member, str]] = Counter()

    def next(self, member: Member, call: RunTool) -> Returned | None:
        """What a call gives. None: there is no stub for it."""
        target = self.target_of("/".join((*member.above, call.name)))
        if target is None:
            return None
        stubs = self._stubs[target]
        if isinstance(stubs, Stub):
            return _returned(stubs, call)
        at = min(self._given[member, target], len(stubs) - 1)
        self._given[member, target] += 1
        return _returned(stubs[at], call)

    def target_of(self, name: str) -> str | None:
        """The stub of a tool, which is named with the tools above it: `read/search`. None: there is none."""
        return name if name in self._stubs else next((each for each in self._stubs if _means(each, name)), None)


def _means(target: str, name: str) -> bool:
    return ("/" in target) == ("/" in name) and matches(target, name)


def _returned(stub: Stub, call: RunTool) -> Returned:
    if stub.error is not UNSET:
        return Returned(fault=Fault("tool.execution", stub.error, {"tool": call.name}))
    text = stub.result if isinstance(stub.result, str) else compact(stub.result).decode()
    return Returned((Text(text),))
