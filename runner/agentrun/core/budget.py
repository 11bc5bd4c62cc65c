"""Budgets: what a run may spend, what a model call reserves before it is made, and what it is charged afterwards.

Rule 1  Tokens and cost are reserved before a call: the estimated input, and the longest reply if it has a limit. A call
        starts only if used + reserved ≤ limit.
Rule 2  After the call the reported usage counts. Usage that was not reported counts as reserved, never as 0, and never
        as less than the part that was reported. A reported 0 for something that is not empty counts as not reported.
Rule 3  A request that failed after the provider may have worked on it counts as reserved.
Rule 4  Estimates are rather too high, including for JSON, hashes and non-Latin scripts.
Rule 5  A sub-agent has the smaller of its own budget and its share of its parent's. Sub-agents that start together
        divide what is left, so that they cannot overspend together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, assert_never

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.core import model_texts as texts
from agentrun.core.effects import ModelRequest
from agentrun.core.fault import Fault
from agentrun.core.guards import find_source
from agentrun.core.messages import File, Image, Message, Reasoning, Refusal, Reply, Text, ToolCall, Usage
from agentrun.core.package import BUDGET_KINDS, Budgets, Package, Price
from agentrun.core.spend import BudgetShare
from agentrun.core.state import SpendMeter, State

FILE_BYTES_PER_TOKEN = 2
TOKENS_PER_MESSAGE = 4
TOKENS_PER_IMAGE = 2000
_LETTERS = b"abcdefghijklmnopqrstuvwxyz "
_WIDE = bytes(range(128, 256))
SHARE_HOLDING_STATUSES = ("started", "lost", "asleep", "ready")
COUNTED_BUDGETS = tuple(name for name in BUDGET_KINDS if name in BudgetShare.__struct_fields__ and name != "time")
"""The budgets that sub-agents divide among them. Time passes for all of them at once."""
UNCOUNTED_STATUSES = ("new", "asking", "deferred", "ready")
"""Statuses in which a call may still run for the first time. Such calls are not left for sub-agents."""


def estimate_tokens(message: Message) -> int:
    tokens = TOKENS_PER_MESSAGE
    for part in message.parts:
        match part:
            case Text() | Refusal():
                tokens += _estimate_text(part.text)
            case ToolCall():
                tokens += _estimate_text(part.tool + part.arguments)
            case Image():
                tokens += TOKENS_PER_IMAGE
            case File():
                tokens += -(-part.size // FILE_BYTES_PER_TOKEN)
            case Reasoning():
                tokens += _estimate_text(part.opaque)
            case _:
                assert_never(part)
    return tokens


def estimate_request(request: ModelRequest, messages: int) -> int:
    """The estimated tokens of a request. `messages`: the estimate of its messages."""
    tools = _estimate_bytes(sorted_json(request.tools)) if request.tools else 0
    schema = 0 if request.output is None else _estimate_bytes(sorted_json(request.output))
    return TOKENS_PER_MESSAGE + _estimate_instructions(request.instructions) + schema + tools + messages


def reserved_cost(price: Price | None, tokens: int, longest_reply: int) -> int:
    return 0 if price is None else _round_up(tokens * price.input + longest_reply * price.output)


def reported_usage(reply: Reply) -> Usage | None:
    """The usage of a reply. A count that cannot be true becomes null."""
    usage = reply.usage
    if usage is None:
        return None
    output = None if usage.output == 0 and _has_output(reply) else usage.output
    return replace(usage, input=usage.input or None, output=output)


def _has_output(reply: Reply) -> bool:
    """Whether the model wrote anything. A provider's notice about a withheld reply does not count."""
    is_withheld = reply.finish == "content_filter" and all(isinstance(part, Refusal) for part in reply.message.parts)
    return not is_withheld and estimate_tokens(reply.message) > TOKENS_PER_MESSAGE


def charged_tokens(usage: Usage | None, reserved: int) -> int:
    usage = usage or Usage()
    reported = (usage.input or 0) + (usage.output or 0)
    return max(reported, reserved) if usage.input is None or usage.output is None else reported


def charged_cost(price: Price | None, usage: Usage | None, reserved: int) -> int:
    if price is None:
        return 0
    usage = usage or Usage()
    read, written = usage.input or 0, usage.output or 0
    cached = min(usage.cached or 0, read)
    reported = _round_up((read - cached) * price.input + cached * price.cached_input + written * price.output)
    return max(reported, reserved) if usage.input is None or usage.output is None else reported


def allowance(package: Package, state: State) -> Budgets | BudgetShare:
    own, parent = package.budgets, state.start.parent if state.start else None
    if parent is None:
        return own
    names = (*COUNTED_BUDGETS, "time")
    return _make_share({name: _smaller_limit(getattr(own, name), getattr(parent.share, name)) for name in names})


def _make_share(limits: dict[str, int | None]) -> BudgetShare:
    """A share without a limit that is null, so that a budget of a later release is absent in journals without it."""
    given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    return BudgetShare(**given)


def used_budgets(state: State, meter: SpendMeter) -> dict[str, int]:
    """What was used of each budget. `meter`: that of now, or of the beginning of the batch."""
    other = {"turns": state.turns, "time": state.elapsed}
    return {name: other[name] if name in other else getattr(meter, name) for name in BUDGET_KINDS}


def child_share(package: Package, state: State, about_to_start: list[BudgetShare], among: int) -> BudgetShare:
    limit = allowance(package, state)
    held = [*_held_shares(state), *about_to_start]
    calls = uncounted_calls(package, state)

    def rest(name: str, pending: int = 0) -> int | None:
        used = getattr(state.meter, name) + pending + sum(getattr(share, name) or 0 for share in held)
        most = getattr(limit, name)
        return max(most - used, 0) // among if isinstance(most, int) else None

    amounts = {name: rest(name, calls if name == "tool_calls" else 0) for name in COUNTED_BUDGETS}
    time = None if limit.time is None else max(limit.time - state.elapsed, 0)
    return _make_share({**amounts, "time": time, "runs": _child_run_limit(package, state, about_to_start, among)})


def _held_shares(state: State) -> list[BudgetShare]:
    return [call.share for call in state.calls if call.share is not None and call.status in SHARE_HOLDING_STATUSES]


def run_limit(package: Package, state: State) -> int:
    parent = state.start.parent if state.start else None
    own = package.limits.runs
    return own if parent is None or parent.share.runs is UNSET else min(own, parent.share.runs)


def _child_run_limit(package: Package, state: State, about_to_start: list[BudgetShare], among: int) -> int:
    """Runs below one of several sub-agents. One run is set aside for each sub-agent that has not started yet."""
    held = sum(_runs_or_zero(share.runs) for share in _held_shares(state))
    begun = sum(_runs_or_zero(share.runs) + 1 for share in about_to_start)
    to_begin = sum(
        call.share is None and call.status in UNCOUNTED_STATUSES and call.tool in package.agents for call in state.calls
    )
    left = run_limit(package, state) - state.meter.runs - held - begun - (to_begin - len(about_to_start))
    return max(left, 0) // among


def limit_share_time(share: BudgetShare, timeout: int) -> BudgetShare:
    return replace(share, time=_smaller_limit(timeout, share.time))


def budget_fault(name: str, used: int, reserved: int, limit: int) -> Fault:
    kind = BUDGET_KINDS[name]
    message = texts.budget_used_up(kind.unit, reserved, limit - used, limit)
    return Fault(f"budget.{name}", message, {"used": used, "reserved": reserved, "limit": limit}, kind.hint)


def spending_fault(package: Package, state: State, tokens: int, cost: int) -> Fault | None:
    limits = allowance(package, state)
    for name, reserved in (("tokens", tokens), ("cost", cost)):
        used, limit = getattr(state.meter, name), getattr(limits, name)
        if isinstance(limit, int) and used + reserved > limit:
            return budget_fault(name, used, reserved, limit)
    return None


def time_fault(package: Package, state: State) -> Fault:
    """That the run took too long. The limit counts as used, because the exact time differs in every run."""
    limit = allowance(package, state).time or 0
    return budget_fault("time", limit, 0, limit)


def run_deadline(package: Package, state: State) -> int | None:
    limit = allowance(package, state).time
    return None if limit is None else state.began + state.paused + limit + 1


def uncounted_calls(package: Package, state: State) -> int:
    """The calls that may still run for the first time. Calls that get the result of another one do not run."""
    calls = [call for call in state.calls if call.status in UNCOUNTED_STATUSES and not call.counted]
    return sum(find_source(package, state, call) is None for call in calls)


def tool_calls_fault(package: Package, state: State) -> Fault | None:
    """Why the calls of a batch cannot run. A batch that does not fit as a whole is not started."""
    limit, used = allowance(package, state).tool_calls, state.meter.tool_calls
    wanted = uncounted_calls(package, state)
    return None if limit is None or used + wanted <= limit else budget_fault("tool_calls", used, wanted, limit)


def _smaller_limit(*limits: int | UnsetType | None) -> int | None:
    return min((limit for limit in limits if isinstance(limit, int)), default=None)


def _round_up(millionths: int) -> int:
    return -(-millionths // 1_000_000)


@lru_cache(maxsize=64)
def _estimate_instructions(text: str) -> int:
    """Cached, because instructions are long and the same in every turn."""
    return _estimate_text(text)


def _estimate_text(text: str) -> int:
    return _estimate_bytes(text.encode("utf-8", "replace"))


def _estimate_bytes(data: bytes) -> int:
    """In thirds of a token: lower-case letters and spaces 1, bytes of non-Latin scripts 2, all others 3."""
    other = data.translate(None, _LETTERS)
    signs = len(other.translate(None, _WIDE))
    thirds = len(data) - len(other) + 2 * (len(other) - signs) + 3 * signs
    return -(-thirds // 3)


def _runs_or_zero(runs: int | UnsetType) -> int:
    return 0 if runs is UNSET else runs
