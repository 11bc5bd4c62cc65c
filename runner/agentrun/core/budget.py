"""What a run may spend, what a model call may cost before it is made, and what it did cost after.

Rule 1  Tokens and money are reserved before a call: the estimated input, and the longest reply if there is a limit to
        it. A call starts only if used + reserved ≤ limit.
Rule 2  After the call the reported usage counts. What was not reported counts as reserved, never as 0, and never as
        less than what was reported of it. A reply that overshoots is kept.
Rule 3  A count of 0 for something that is not empty was not reported: a request never is, and neither is a reply in
        which the model wrote anything.
Rule 4  A request that failed after the provider may have worked on it counts as reserved: nobody knows what it took.
Rule 5  The estimate errs on the high side, also for JSON, hashes and other scripts than ours. It is made once for each
        message, without any provider's vocabulary.
Rule 6  A child has the smaller of its own budget and its share of its parent's. Children that are started together
        share what is left, so that they cannot overshoot together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import assert_never

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import ModelRequest
from agentrun.core.facts import BudgetShare, runs_or_zero
from agentrun.core.fault import Fault
from agentrun.core.messages import File, Image, Message, Reasoning, Refusal, Reply, Text, ToolCall, Usage
from agentrun.core.package import Budgets, Package, Price
from agentrun.core.state import State

FILE_BYTES_PER_TOKEN = 2
TOKENS_PER_MESSAGE = 4
TOKENS_PER_IMAGE = 2000
_MILLION = 1_000_000
_LETTERS = b"abcdefghijklmnopqrstuvwxyz "
_WIDE = bytes(range(128, 256))
SHARE_HOLDING_STATUSES = ("started", "lost", "asleep", "ready")
"""Statuses in which a child holds its share."""
UNCOUNTED_STATUSES = ("new", "asking", "deferred", "ready")
"""Statuses in which a call may still run for the first time: it is a call that children cannot have."""


def estimate_tokens(message: Message) -> int:
    """Tokens of a message, as a model would read it."""
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
    """Tokens of a request whose messages are estimated already."""
    offered = sorted_json(request.tools) if request.tools else b""
    schema = b"" if request.output is None else sorted_json(request.output)
    return (
        TOKENS_PER_MESSAGE
        + _estimate_instructions(request.instructions)
        + _estimate_bytes(schema)
        + _estimate_bytes(offered)
        + messages
    )


def reserved_cost(price: Price | None, tokens: int, longest_reply: int) -> int:
    """Micro-dollars that a call may cost."""
    return 0 if price is None else _round_up(tokens * price.input + longest_reply * price.output)


def reported_usage(reply: Reply) -> Usage | None:
    """The usage of a reply, with null for each count that cannot be true."""
    usage = reply.usage
    if usage is None:
        return None
    output = None if usage.output == 0 and _has_output(reply) else usage.output
    return replace(usage, input=usage.input or None, output=output)


def _has_output(reply: Reply) -> bool:
    """Whether the model wrote anything. What a provider says instead of a reply that it withholds took no tokens."""
    is_withheld = reply.finish == "content_filter" and all(isinstance(part, Refusal) for part in reply.message.parts)
    return not is_withheld and estimate_tokens(reply.message) > TOKENS_PER_MESSAGE


def charged_tokens(usage: Usage | None, reserved: int) -> int:
    """Tokens that a call counts for."""
    usage = usage or Usage()
    reported = (usage.input or 0) + (usage.output or 0)
    return max(reported, reserved) if usage.input is None or usage.output is None else reported


def charged_cost(price: Price | None, usage: Usage | None, reserved: int) -> int:
    """Micro-dollars that a call counts for."""
    if price is None:
        return 0
    usage = usage or Usage()
    read, written = usage.input or 0, usage.output or 0
    cached = min(usage.cached or 0, read)
    reported = _round_up((read - cached) * price.input + cached * price.cached_input + written * price.output)
    return max(reported, reserved) if usage.input is None or usage.output is None else reported


def allowance(package: Package, state: State) -> Budgets | BudgetShare:
    """What the run may spend: its own budgets, and not more than its share of its parent's."""
    own, parent = package.budgets, state.start.parent if state.start else None
    if parent is None:
        return own
    return BudgetShare(
        tokens=_smaller_limit(own.tokens, parent.share.tokens),
        cost=_smaller_limit(own.cost, parent.share.cost),
        time=_smaller_limit(own.time, parent.share.time),
        tool_calls=_smaller_limit(own.tool_calls, parent.share.tool_calls),
    )


def child_share(package: Package, state: State, about_to_start: list[BudgetShare], among: int) -> BudgetShare:
    """What one of several children may spend: its part of what is left, without what other children hold."""
    limit, meter = allowance(package, state), state.meter
    held = [
        call.share for call in state.calls if call.share is not None and call.status in SHARE_HOLDING_STATUSES
    ] + about_to_start
    calls = meter.tool_calls + sum(call.status in UNCOUNTED_STATUSES and not call.counted for call in state.calls)
    return BudgetShare(
        tokens=_split_rest(limit.tokens, meter.tokens + sum(share.tokens or 0 for share in held), among),
        cost=_split_rest(limit.cost, meter.cost + sum(share.cost or 0 for share in held), among),
        time=None if limit.time is None else max(limit.time - state.elapsed, 0),
        tool_calls=_split_rest(limit.tool_calls, calls + sum(share.tool_calls or 0 for share in held), among),
        runs=_child_run_limit(package, state, about_to_start, among),
    )


def run_limit(package: Package, state: State) -> int:
    """How many runs may be started below this one, of all depths."""
    parent = state.start.parent if state.start else None
    own = package.limits.runs
    return own if parent is None or parent.share.runs is UNSET else min(own, parent.share.runs)


def _child_run_limit(package: Package, state: State, about_to_start: list[BudgetShare], among: int) -> int:
    """Runs below one of several children. Each child that has still to begin has its own run kept for it."""
    held = sum(
        runs_or_zero(call.share.runs)
        for call in state.calls
        if call.share is not None and call.status in SHARE_HOLDING_STATUSES
    )
    begun = sum(runs_or_zero(share.runs) + 1 for share in about_to_start)
    to_begin = sum(
        call.share is None and call.status in UNCOUNTED_STATUSES and call.call.tool in package.agents
        for call in state.calls
    )
    left = run_limit(package, state) - state.meter.runs - held - begun - (to_begin - len(about_to_start))
    return max(left, 0) // among


def limit_share_time(share: BudgetShare, timeout: int) -> BudgetShare:
    """The same for a child that has its own limit of time, in milliseconds."""
    return replace(share, time=_smaller_limit(timeout, share.time))


def spending_fault(package: Package, state: State, tokens: int, cost: int) -> Fault | None:
    """Why a call that may take so much cannot be made."""
    limit = allowance(package, state)
    if limit.tokens is not None and state.meter.tokens + tokens > limit.tokens:
        left = max(limit.tokens - state.meter.tokens, 0)
        message = f"the next call may take {tokens} tokens, and {left} of {limit.tokens} are left"
        fields = {"used": state.meter.tokens, "reserved": tokens, "limit": limit.tokens}
        return Fault("budget.tokens", message, fields, "raise budgets.tokens, or lower model.max_output_tokens")
    if limit.cost is not None and state.meter.cost + cost > limit.cost:
        left = max(limit.cost - state.meter.cost, 0)
        message = f"the next call may cost {cost} micro-dollars, and {left} of {limit.cost} are left"
        fields = {"used": state.meter.cost, "reserved": cost, "limit": limit.cost}
        return Fault("budget.cost", message, fields, "raise budgets.cost, or lower model.max_output_tokens")
    return None


def time_fault(package: Package, state: State) -> Fault:
    """That the run has taken too long. How much too long is told by the record's time: it differs in every run."""
    limit = allowance(package, state).time
    fields = {"used": limit, "reserved": 0, "limit": limit}
    return Fault("budget.time", f"the run has taken all of its {limit} ms", fields, "raise budgets.time")


def run_deadline(package: Package, state: State) -> int | None:
    """The first moment at which the run has taken too long."""
    limit = allowance(package, state).time
    return None if limit is None else state.began + state.paused + limit + 1


def tool_calls_fault(package: Package, state: State) -> Fault | None:
    """Why the calls of a batch cannot be run. A batch that does not fit whole is not begun, whatever is ready first."""
    limit, used = allowance(package, state).tool_calls, state.meter.tool_calls
    wanted = sum(call.status in UNCOUNTED_STATUSES and not call.counted for call in state.calls)
    if limit is None or used + wanted <= limit:
        return None
    message = f"{wanted} calls want to run, and {max(limit - used, 0)} of {limit} are left"
    return Fault(
        "budget.tool_calls", message, {"used": used, "reserved": wanted, "limit": limit}, "raise budgets.tool_calls"
    )


def _smaller_limit(one: int | None, two: int | None) -> int | None:
    return one if two is None else two if one is None else min(one, two)


def _split_rest(limit: int | None, used: int, among: int) -> int | None:
    return None if limit is None else max(limit - used, 0) // among


def _round_up(millionths: int) -> int:
    return -(-millionths // _MILLION)


@lru_cache(maxsize=64)
def _estimate_instructions(text: str) -> int:
    """The same in every turn, and long."""
    return _estimate_text(text)


def _estimate_text(text: str) -> int:
    return _estimate_bytes(text.encode("utf-8", "replace"))


def _estimate_bytes(data: bytes) -> int:
    """In thirds of a token: small letters and spaces 1, bytes of other scripts 2, every other sign 3."""
    other = data.translate(None, _LETTERS)
    signs = len(other.translate(None, _WIDE))
    thirds = len(data) - len(other) + 2 * (len(other) - signs) + 3 * signs
    return -(-thirds // 3)
