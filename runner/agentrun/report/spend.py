"""What a run has used of what it may use, in one line."""

from __future__ import annotations

from agentrun.core.budget import allowance
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.report.amounts import dollars, duration, magnitude


def used(package: Package, state: State) -> str:
    """`turn 2 of 12 · 1.2k of 50k tokens · $0.0031 of $0.25`. What is neither limited nor used is not named."""
    limit, meter = allowance(package, state), state.meter
    seconds = max(state.elapsed, 0) // 1000 * 1000
    said = [f"turn {state.turns} of {package.budgets.turns}"]
    said.append(f"{_of(magnitude(meter.tokens), None if limit.tokens is None else magnitude(limit.tokens))} tokens")
    if meter.cost or limit.cost is not None:
        said.append(_of(dollars(meter.cost), None if limit.cost is None else dollars(limit.cost)))
    if meter.tool_calls or limit.tool_calls is not None:
        said.append(f"{_of(str(meter.tool_calls), None if limit.tool_calls is None else str(limit.tool_calls))} calls")
    if seconds or limit.time is not None:
        said.append(_of(duration(seconds), None if limit.time is None else duration(limit.time)))
    return " · ".join(said)


def _of(amount: str, limit: str | None) -> str:
    return amount if limit is None else f"{amount} of {limit}"
