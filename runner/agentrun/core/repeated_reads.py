"""Identical reads of one reply: they run once, and each call gets that result.

Rule 1  Reads are identical if their tool and arguments are, as the model wrote them and as they are when they run.
Rule 2  Each call is checked, ruled on and approved by itself. Only the work is shared.
Rule 3  The first of them runs. The others wait for it, also while it is not allowed yet, so that the order in which
        hooks and people answer does not matter. If it is denied, the next one runs.
Rule 4  With `compare: calls` for `guards.repeated_call` every call runs.
"""

from __future__ import annotations

from agentrun.canonical_json import sorted_json
from agentrun.core.package import Package, find_tool, tool_effect
from agentrun.core.state import CallState, CallStatus, State

_UNDECIDED: tuple[CallStatus, ...] = ("new", "asking", "deferred")
"""Statuses in which it is open whether a call runs, and with which arguments."""
_WITHOUT_RESULT: tuple[CallStatus, ...] = ("denied", "done")
"""Statuses of a call that will not run any more. Only a call that has run before has a result then."""


def repeated_reads(package: Package, state: State) -> tuple[str, ...]:
    """The reads of the reply that are identical to an earlier one. Guards count such calls once."""
    calls = state.calls
    if len(calls) == 1:
        return ()
    return tuple([call.id for index, call in enumerate(calls) if any(_same_reads(package, calls[:index], call))])


def find_source(package: Package, state: State, call: CallState) -> CallState | None:
    """The identical call whose result a call gets. Null: it has to run itself."""
    index = state.calls.index(call)
    for other in _same_reads(package, state.calls[:index], call) if index else ():
        if other.status in _UNDECIDED:
            return other
        has_result = other.returned is not None or other.status not in _WITHOUT_RESULT
        if has_result and sorted_json(other.arguments) == sorted_json(call.arguments):
            return other
    return None


def _same_reads(package: Package, before: tuple[CallState, ...], call: CallState) -> list[CallState]:
    same = [other for other in before if other.signature == call.signature]
    if not same or package.guards.call_compare != "results":
        return []
    tool = find_tool(package, call.tool)
    return same if tool is not None and tool_effect(tool, call.tool) == "read" else []
