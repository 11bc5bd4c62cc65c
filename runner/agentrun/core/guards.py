"""Guards: they detect an agent that repeats itself.

Rule 1  What guards remember is part of the state, so it survives a resume. `extend_streaks` only counts.
Rule 2  The order: parallel_tools, repeated_call, cycle, repeated_batch, stagnation. The first one that trips
        stops the run before any call of the reply runs.
Rule 3  Tools marked as observation have their own limit. If a guard looks at several tools, the smallest limit counts.
Rule 4  The limits of repeated_call and cycle are the count that trips. The other limits are the count that is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core import model_texts as texts
from agentrun.core.fault import Fault
from agentrun.core.messages import ToolCall
from agentrun.core.package import Package
from agentrun.core.package_lookup import find_tool
from agentrun.core.state import CallSignature, CallState, GuardState, State, Streaks
from agentrun.core.tally import fnv1a

LONGEST_CYCLE = 4


def call_signature(call: ToolCall, arguments: dict[str, Any] | None) -> CallSignature:
    """A call as guards see it. Arguments that are not a JSON object are compared as text."""
    return call.tool, data_hash(sorted_json([call.tool, call.arguments if arguments is None else arguments]))


def extend_streaks(
    detector: GuardState, calls: Iterable[tuple[ToolCall, dict[str, Any] | None]]
) -> list[tuple[Streaks, tuple[CallSignature, ...]]]:
    """For each further call: the streaks that it continues, and the latest calls."""
    tail, streaks, seen = detector.tail, detector.streaks, []
    for call, arguments in calls:
        latest = call_signature(call, arguments)
        one, two, three, four = streaks
        streaks = (
            one + 1 if tail[-1:] == (latest,) else 0,
            two + 1 if tail[-2:-1] == (latest,) else 0,
            three + 1 if tail[-3:-2] == (latest,) else 0,
            four + 1 if tail[-4:-3] == (latest,) else 0,
        )
        tail = (*tail[1 - LONGEST_CYCLE :], latest)
        seen.append((streaks, tail))
    return seen


def add_batch(detector: GuardState, calls: tuple[CallState, ...]) -> GuardState:
    """The detector after the calls of a reply. The signature of a single call is also that of its batch."""
    signatures = [call.recent[-1][1] for call in calls]
    batch = signatures[0] if len(signatures) == 1 else data_hash(sorted_json(signatures))
    return replace(
        detector,
        tail=calls[-1].recent,
        streaks=calls[-1].streaks,
        batch=batch,
        in_a_row=detector.in_a_row + 1 if detector.batch == batch else 1,
        batches=detector.batches.plus(batch),
    )


def add_text(detector: GuardState, text: str) -> GuardState:
    """The detector after a text of the assistant that did not end the run."""
    trimmed = text.strip()
    return replace(detector, texts=detector.texts.plus(trimmed)) if trimmed else detector


def find_guard_fault(package: Package, state: State) -> Fault | None:
    """The fault of the first guard that trips over the calls of the reply."""
    return (
        _parallel_tools(package, state)
        or _repeated_call(package, state)
        or _cycle(package, state)
        or _repeated_batch(package, state)
        or stagnation_fault(package, state, state.replies.original_text, 0)
    )


def _parallel_tools(package: Package, state: State) -> Fault | None:
    limit, count = package.limits.parallel_tools, len(state.calls)
    if count <= limit or package.limits.on_oversize_batch != "fail":
        return None
    return Fault(
        "guard.parallel_tools",
        texts.parallel_calls(count, limit),
        {"count": count, "limit": limit, "turn": state.turns},
        "raise limits.parallel_tools, or set limits.on_oversize_batch",
    )


def _repeated_call(package: Package, state: State) -> Fault | None:
    for call in state.calls:
        count = call.streaks[0] + 1
        limit = _reached_limit(package, package.guards.repeated_call, count, call.recent[-1:])
        if limit is not None:
            fields = {"pattern": [call.tool], "count": count, "limit": limit, "call": call.id}
            hint = "raise guards.repeated_call, or mark the tool `observation: true`"
            return Fault("guard.repeated_call", texts.repeated_call(call.tool, count), fields, hint)
    return None


def _cycle(package: Package, state: State) -> Fault | None:
    guards = package.guards
    least = 0 if guards.cycle is None else min(guards.cycle, guards.observation)
    for call in state.calls:
        for length in range(2, LONGEST_CYCLE + 1):
            count = call.streaks[length - 1] // length + 1
            if count < least:
                continue
            steps = call.recent[-length:]
            limit = _reached_limit(package, package.guards.cycle, count, steps)
            if limit is not None and len(set(steps)) > 1:
                pattern = [tool for tool, _ in steps]
                fields = {"pattern": pattern, "count": count, "limit": limit, "call": call.id}
                hint = "raise guards.cycle, or mark the tools `observation: true`"
                return Fault("guard.cycle", texts.repeated_cycle(pattern, count), fields, hint)
    return None


def _repeated_batch(package: Package, state: State) -> Fault | None:
    guards, detector = package.guards, state.detector
    batch = detector.batch or ""
    count = detector.batches.count(batch) if guards.batch_scope == "session" else detector.in_a_row
    limit = _reached_limit(package, guards.repeated_batch, count - 1, [call.recent[-1] for call in state.calls])
    if limit is None:
        return None
    fields = {"signature": batch, "count": count, "limit": limit, "turn": state.turns}
    message = texts.repeated_batch(count, limit)
    return Fault("guard.repeated_batch", message, fields, "raise guards.repeated_batch")


def stagnation_fault(package: Package, state: State, text: str, more: int) -> Fault | None:
    """Whether the assistant wrote a text too often. `more`: times that are not counted in the state yet."""
    limit, trimmed = package.guards.stagnation, text.strip()
    if limit is None or not trimmed:
        return None
    count = state.detector.texts.count(trimmed) + more
    if count <= limit:
        return None
    fields = {"hash": fnv1a(trimmed), "count": count, "limit": limit}
    return Fault("guard.stagnation", texts.repeated_text(count, limit), fields, "raise guards.stagnation")


def _reached_limit(package: Package, limit: int | None, count: int, calls: Iterable[CallSignature]) -> int | None:
    """The smallest limit of the called tools, if a count reaches it. None: it does not, or the guard is off."""
    if limit is None or count < min(limit, package.guards.observation):
        return None
    found = [find_tool(package, name) for name, _ in calls]
    least = min(package.guards.observation if tool is not None and tool.observation else limit for tool in found)
    return least if count >= least else None
