"""Whether a failed request is sent again, and when. A pure decision: the same failure gives the same answer.

Rule 1  Only what may pass by itself is tried again. A refused key, a reply that is not the protocol or a wrong history
        stays what it is.
Rule 2  The wait doubles from the first to the longest; a provider's own wish is a floor. What would make the waiting
        longer than allowed ends the tries.
Rule 3  Jitter comes from the run, the request and the attempt, never from chance. It only shortens, by up to a quarter.
"""

from __future__ import annotations

import hashlib

from agentrun.core.facts_base import Fault
from agentrun.core.package import Retry
from agentrun.errors import code_of

NO_FALLBACK = ("provider.inconsistent_history",)
"""Faults of the conversation itself: another route would say the same."""


def delay(retry: Retry, fault: Fault, *, tries: int, waited: int, seed: str) -> int | None:
    """Milliseconds to wait before the next try. None: no further try."""
    if not fault.code.startswith("provider.") or code_of(fault.code).retry != "retryable" or tries >= retry.attempts:
        return None
    full = min(retry.first_delay * 2 ** (tries - 1), retry.max_delay)
    wait = full - full * _share(seed) // 1000
    asked = fault.fields.get("retry_after")
    wait = max(wait, asked * 1000 if isinstance(asked, int) else 0)
    return wait if waited + wait <= retry.max_wait else None


def _share(seed: str) -> int:
    """0 to 250 thousandths."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % 251


def may_fall_back(fault: Fault) -> bool:
    """Whether another route could do better."""
    return fault.code.startswith("provider.") and fault.code not in NO_FALLBACK
