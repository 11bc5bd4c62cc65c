"""Guards: they detect an agent that repeats itself. Identical reads of one reply run only once.

Rule 1  What guards remember is part of the state, so it survives a resume. `add_batch` and `add_results` only count.
Rule 2  The first guard that trips stops the run before any call of the reply runs.
Rule 3  Tools marked as observation have their own limit. If a guard looks at several tools, the smallest limit counts.
Rule 4  The limits of repeated_call and cycle are the count that trips. The other limits are the count that is allowed.
Rule 5  With `compare: results` calls are equal if their results are equal too: what the model reads. A call that has no
        result yet, such as those of the reply that is checked, equals any call with its tool and arguments.
Rule 6  A cycle has at least two different calls, whatever their results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core import model_texts as texts
from agentrun.core.facts import EarlierRuns
from agentrun.core.fault import Fault
from agentrun.core.messages import ToolCall
from agentrun.core.package import GuardComparison, Package, find_tool, tool_effect
from agentrun.core.state import NO_STREAKS, CallSignature, CallState, CallStatus, GuardState, PastCall, State, Streaks
from agentrun.core.tally import Tally, TextTally, fnv1a

LONGEST_CYCLE = 4

CountedCall: TypeAlias = tuple[CallState, Streaks, tuple[PastCall, ...]]
"""A call of the reply that counts, the streaks that it continues, and the latest calls."""


def call_signature(call: ToolCall, arguments: dict[str, Any] | None) -> CallSignature:
    """A call as guards see it. Arguments that are not a JSON object are compared as text."""
    return call.tool, data_hash(sorted_json([call.tool, call.arguments if arguments is None else arguments]))


def first_guard_state(earlier: EarlierRuns) -> GuardState:
    result_batches = {} if earlier.result_batches is UNSET else earlier.result_batches
    most_equal: dict[str, int] = {}
    for key, count in result_batches.items():
        batch = _batch_of(key)
        most_equal[batch] = max(count, most_equal.get(batch, 0))
    return GuardState(
        batches=Tally(earlier.batches),
        result_batches=Tally(result_batches),
        most_equal=Tally(most_equal),
        texts=TextTally(earlier.texts),
    )


def extend_streaks(
    streaks: Streaks, tail: tuple[PastCall, ...], calls: Iterable[PastCall], compare: GuardComparison
) -> list[tuple[Streaks, tuple[PastCall, ...]]]:
    """For each further call: the streaks that it continues, and the latest calls."""
    is_equal = _is_same_result if compare == "results" else _is_same_call
    seen = []
    for latest in calls:
        if latest[1] in [signature for _, signature, _ in tail]:
            equal = [is_equal(earlier, latest) for earlier in reversed(tail)]
            equal += [False] * (LONGEST_CYCLE - len(equal))
            streaks = tuple([streak + 1 if same else 0 for streak, same in zip(streaks, equal, strict=True)])
        else:
            streaks = NO_STREAKS
        tail = (*tail[1 - LONGEST_CYCLE :], latest)
        seen.append((streaks, tail))
    return seen


def _is_same_call(one: PastCall, two: PastCall) -> bool:
    return one[1] == two[1]


def _is_same_result(one: PastCall, two: PastCall) -> bool:
    return one[1] == two[1] and (one[2] is None or two[2] is None or one[2] == two[2])


def add_batch(detector: GuardState, calls: tuple[CallState, ...]) -> GuardState:
    """The detector after the calls of a reply."""
    batch = _batch_signature(calls)
    return replace(
        detector,
        batch=batch,
        in_a_row=detector.in_a_row + 1 if detector.batch == batch else 1,
        batches=detector.batches.plus(batch),
    )


def add_results(detector: GuardState, calls: tuple[CallState, ...], repeats: tuple[str, ...]) -> GuardState:
    """The detector after the results of a reply. `repeats`: calls that do not count."""
    results = {call.id: data_hash(sorted_json(call.parts)) for call in calls}
    counted = [(*call.signature, results[call.id]) for call in calls if call.id not in repeats]
    (result_streaks, tail) = extend_streaks(detector.result_streaks, detector.tail, counted, "results")[-1]
    (call_streaks, _) = extend_streaks(detector.call_streaks, detector.tail, counted, "calls")[-1]
    batch = _batch_signature(calls)
    result_batch = f"{batch} {data_hash(sorted_json(sorted((call.signature[1], results[call.id]) for call in calls)))}"
    result_batches = detector.result_batches.plus(result_batch)
    is_most = result_batches.count(result_batch) > detector.most_equal.count(batch)
    return replace(
        detector,
        tail=tail,
        call_streaks=call_streaks,
        result_streaks=result_streaks,
        result_batch=result_batch,
        results_in_a_row=detector.results_in_a_row + 1 if detector.result_batch == result_batch else 1,
        result_batches=result_batches,
        most_equal=detector.most_equal.plus(batch) if is_most else detector.most_equal,
    )


def _batch_signature(calls: tuple[CallState, ...]) -> str:
    """The same for any order of the calls. The signature of a single call is also that of its batch."""
    signatures = sorted([call.signature[1] for call in calls])
    return signatures[0] if len(signatures) == 1 else data_hash(sorted_json(signatures))


def _batch_of(result_batch: str) -> str:
    return result_batch.partition(" ")[0]


def add_text(detector: GuardState, text: str) -> GuardState:
    """The detector after a text of the assistant that did not end the run."""
    trimmed = text.strip()
    return replace(detector, texts=detector.texts.plus(trimmed)) if trimmed else detector


def find_guard_fault(package: Package, state: State) -> Fault | None:
    call_compare, cycle_compare = package.guards.call_compare, package.guards.cycle_compare
    counted = _counted_calls(package, state, call_compare)
    in_cycles = counted if cycle_compare == call_compare else _counted_calls(package, state, cycle_compare)
    return (
        _parallel_tools(package, state)
        or _repeated_call(package, counted)
        or _cycle(package, in_cycles)
        or _repeated_batch(package, state)
        or stagnation_fault(package, state, state.replies.original_text, 0)
    )


def _parallel_tools(package: Package, state: State) -> Fault | None:
    limit, count = package.limits.parallel_tools, len(state.calls)
    if count <= limit or package.limits.on_oversize_batch != "fail":
        return None
    fields = {"count": count, "limit": limit, "turn": state.turns}
    hint = "raise limits.parallel_tools, or set limits.on_oversize_batch"
    return Fault("guard.parallel_tools", texts.parallel_calls(count, limit), fields, hint)


def _counted_calls(package: Package, state: State, compare: GuardComparison | UnsetType) -> list[CountedCall]:
    detector, repeats = state.detector, repeated_reads(package, state)
    calls = [call for call in state.calls if call.id not in repeats]
    pending: list[PastCall] = [(*call.signature, None) for call in calls]
    if compare == "results":
        seen = extend_streaks(detector.result_streaks, detector.tail, pending, "results")
    else:
        seen = extend_streaks(detector.call_streaks, detector.tail, pending, "calls")
    return [(call, *latest) for call, latest in zip(calls, seen, strict=True)]


def _repeated_call(package: Package, counted: list[CountedCall]) -> Fault | None:
    guards = package.guards
    for call, streaks, _ in counted:
        count = streaks[0] + 1
        limit = _reached_limit(package, guards.repeated_call, count, [call.tool])
        if limit is not None:
            fields = {"pattern": [call.tool], "count": count, "limit": limit, "call": call.id}
            hint = "raise guards.repeated_call, or mark the tool `observation: true`"
            return Fault("guard.repeated_call", texts.repeated_call(call.tool, count), fields, hint)
    return None


def _cycle(package: Package, counted: list[CountedCall]) -> Fault | None:
    guards = package.guards
    least = 0 if guards.cycle is None else min(guards.cycle, guards.observation)
    for call, streaks, recent in counted:
        for length in range(2, LONGEST_CYCLE + 1):
            count = streaks[length - 1] // length + 1
            if count < least:
                continue
            steps = recent[-length:]
            pattern = [tool for tool, _, _ in steps]
            limit = _reached_limit(package, guards.cycle, count, pattern)
            if limit is not None and len({hashed for _, hashed, _ in steps}) > 1:
                fields = {"pattern": pattern, "count": count, "limit": limit, "call": call.id}
                hint = "raise guards.cycle, or mark the tools `observation: true`"
                return Fault("guard.cycle", texts.repeated_cycle(pattern, count), fields, hint)
    return None


def _repeated_batch(package: Package, state: State) -> Fault | None:
    guards = package.guards
    batch, count = _count_batches(package, state)
    limit = _reached_limit(package, guards.repeated_batch, count - 1, [call.tool for call in state.calls])
    if limit is None:
        return None
    fields = {"signature": batch, "count": count, "limit": limit, "turn": state.turns}
    message = texts.repeated_batch(count, limit)
    return Fault("guard.repeated_batch", message, fields, "raise guards.repeated_batch")


def _count_batches(package: Package, state: State) -> tuple[str, int]:
    """The signature of the latest batch, and how many batches equal it, including itself."""
    detector, in_session = state.detector, package.guards.batch_scope == "session"
    if package.guards.batch_compare != "results":
        batch = detector.batch or ""
        return batch, detector.batches.count(batch) if in_session else detector.in_a_row
    batch = _batch_signature(state.calls)
    is_next = _batch_of(detector.result_batch or "") == batch
    in_a_row = detector.results_in_a_row if is_next else 0
    return batch, 1 + (detector.most_equal.count(batch) if in_session else in_a_row)


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


def _reached_limit(package: Package, limit: int | None, count: int, tools: Iterable[str]) -> int | None:
    """The smallest limit of the called tools, if a count reaches it. None: it does not, or the guard is off."""
    if limit is None or count < min(limit, package.guards.observation):
        return None
    found = [find_tool(package, name) for name in tools]
    least = min(package.guards.observation if tool is not None and tool.observation else limit for tool in found)
    return least if count >= least else None


# --- identical reads of one reply -------------------------------------------------------------------------------------
#
# Rule 1  Reads are identical if their tool and arguments are, as the model wrote them and as they are when they run.
# Rule 2  Each call is checked, ruled on and approved by itself. Only the work is shared.
# Rule 3  The first of them runs, and each call gets its result. The others wait for it, even while it is not allowed
#         yet, so that the order in which hooks and people answer does not matter. If it is denied, the next one runs.
# Rule 4  With `compare: calls` for `guards.repeated_call` every call runs.

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
    """The identical call whose result a call gets. None: it has to run itself."""
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
