"""How a run ends: the reason first, then every open call closed, hooks told, one terminal record.

The reason comes first because what is closed is no longer there to judge: a run that is cut off in between still knows
why it was to end.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.core.facts import RunEnding, RunStopped
from agentrun.core.facts_base import Fault
from agentrun.core.facts_calls import CallCancelled
from agentrun.core.gate import Open, Passage, Shut, pass_gate
from agentrun.core.hooks import hooks_at
from agentrun.core.package import Package
from agentrun.core.state import Gate, State
from agentrun.core.steps import Commit, Next

NOT_WAITED_FOR = "tool.aborted: the run ended before this call did"


def fail(package: Package, state: State, fault: Fault) -> Next:
    """Stop over a fault."""
    return stop(package, state, RunStopped("failed", fault=fault))


def stop(package: Package, state: State, stopped: RunStopped) -> Next:
    """The last fact of a run, or the one before calls are closed and hooks hear of it."""
    return Commit((RunEnding(stopped) if hooks_at(package, "on_stop") or any(_closed(state)) else stopped,))


def _closed(state: State) -> Iterator[CallCancelled]:
    for call in state.calls:
        if call.status not in ("finished", "done"):
            yield CallCancelled(call.call.id, NOT_WAITED_FOR)


def stopping(package: Package, state: State) -> Next:
    """Close the calls, tell the hooks, then end. What they say changes nothing any more."""
    assert state.ending.stop is not None
    if closed := tuple(_closed(state)):
        return Commit(closed)
    ending = state.ending.stop
    value = {"status": ending.status, "code": ending.fault.code if ending.fault else None}
    gate = state.gate if state.gate.subject == "stop" else Gate("stop")
    passed = pass_gate(package, state, gate, Passage("stop", "stop", value, point="on_stop"))
    return Commit((ending,)) if isinstance(passed, Open | Shut) else passed
