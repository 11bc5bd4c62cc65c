"""Whether a failed request is sent again, and when. The same failure always gives the same decision.

Rule 1  Only temporary failures are retried: others would fail again.
Rule 2  The wait doubles from the first to the longest. A `Retry-After` of the provider is the minimum. There is no
        retry if the total wait would be longer than allowed.
Rule 3  Jitter is derived from the run, the request and the attempt. It shortens the wait by up to a quarter.
"""

from __future__ import annotations

import hashlib

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.effects import Commit, NextStep, Wait, route_name
from agentrun.core.facts import RetryPlanned, RouteSwitched
from agentrun.core.fault import Fault
from agentrun.core.model_request import request_reply
from agentrun.core.package import Package, RetrySettings
from agentrun.core.run_end import fail
from agentrun.core.state import State
from agentrun.errors import code_of

NO_FALLBACK = ("provider.inconsistent_history",)
"""Faults of the conversation itself. Another route would report the same."""


def retry_delay(retry: RetrySettings, fault: Fault, *, tries: int, waited: int, seed: str) -> int | None:
    """Milliseconds to wait before the next attempt. None: no further attempt."""
    if not fault.code.startswith("provider.") or code_of(fault.code).retry != "retryable" or tries >= retry.attempts:
        return None
    full = min(retry.first_delay * 2 ** (tries - 1), retry.max_delay)
    jitter = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % 251  # thousandths
    wait = full - full * jitter // 1000
    asked = fault.fields.get("retry_after")
    wait = max(wait, asked * 1000 if isinstance(asked, int) else 0)
    return wait if waited + wait <= retry.max_wait else None


def may_fall_back(fault: Fault) -> bool:
    return fault.code.startswith("provider.") and fault.code not in NO_FALLBACK


def retry_or_fail(package: Package, state: State) -> NextStep:
    assert state.requests.fault is not None
    fault = state.requests.fault
    if state.compaction.overflow and state.requests.purpose == "answer" and package.context.overflow == "compact":
        return request_reply(package, state)
    started = state.started
    seed = f"{started.run if started.seed is UNSET else started.seed}/{state.turns}/{state.attempt}"
    wait = retry_delay(package.retry, fault, tries=state.requests.tries, waited=state.requests.waited, seed=seed)
    if wait is not None:
        return Commit((RetryPlanned(state.turns, wait, state.now + wait),))
    routes = package.model.routes
    if state.requests.route + 1 < len(routes) and may_fall_back(fault):
        here, there = routes[state.requests.route], routes[state.requests.route + 1]
        return Commit((RouteSwitched(state.turns, route_name(here), route_name(there), fault),))
    fields = {**fault.fields, "turn": state.turns, "attempts": state.requests.tries}
    return fail(package, state, replace(fault, fields=fields))


def wait_for_retry(package: Package, state: State) -> NextStep:
    return request_reply(package, state) if state.now >= state.requests.until else Wait(deadline=state.requests.until)
