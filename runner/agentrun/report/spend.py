"""What a run has used of what it may use, in one line."""

from __future__ import annotations

from collections.abc import Callable

from agentrun.core.budget import allowance
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.report.amounts import dollars, duration, magnitude


def used(package: Package, state: State) -> str:
    """`turn 2 of 12 · 1.2k of 50k tokens · $0.0031 of $0.25`. What is neither limited nor used is not named."""
    limit, meter = allowance(package, state), state.meter
    seconds = max(state.elapsed, 0) // 1000 * 1000
    said = [f"turn {state.turns} of {package.budgets.turns}", f"{_of(meter.tokens, limit.tokens, magnitude)} tokens"]
    if meter.cost or limit.cost is not None:
        said.append(_of(meter.cost, limit.cost, dollars))
    if meter.tool_calls or limit.tool_calls is not None:
        one = (limit.tool_calls or meter.tool_calls) == 1
        said.append(f"{_of(meter.tool_calls, limit.tool_calls, str)} {'call' if one else 'calls'}")
    if seconds or limit.time is not None:
        said.append(_of(seconds, limit.time, duration))
    return " · ".join(said)


def _of(amount: int, limit: int | None, write: Callable[[int], str]) -> str:
    return write(amount) if limit is None else f"{write(amount)} of {write(limit)}"
