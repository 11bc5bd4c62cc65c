"""Whether a record may follow. Anything that may not is refused before anything changes.

A journal with such a record was not written by this runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from agentrun.core.facts import (
    DeliveryFinished,
    Fact,
    MessageQueued,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    Record,
    WorkLost,
    kind_of,
)
from agentrun.core.facts_calls import OneCall, ResultsGiven
from agentrun.core.facts_gates import GateFact
from agentrun.core.state import State
from agentrun.core.transition_checks import (
    check_call,
    check_delivery,
    check_gate,
    check_lost_work,
    check_message,
    check_reply,
    check_request,
    check_results,
)
from agentrun.core.transitions import LEGAL

CHECKS: Mapping[type[Fact], Callable[[State, Any], str | None]] = {
    **dict.fromkeys(get_args(OneCall), check_call),
    **dict.fromkeys(get_args(GateFact), check_gate),
    ResultsGiven: check_results,
    ModelAsked: check_request,
    ModelReplied: check_reply,
    ModelFailed: check_reply,
    DeliveryFinished: check_delivery,
    WorkLost: check_lost_work,
    MessageQueued: check_message,
}
"""What else must be so for a fact to follow. Looked up by type: this is asked for every record."""


def refusal(state: State, record: Record) -> str | None:
    """Why a record cannot follow."""
    fact = record.fact
    if record.seq != state.seq + 1:
        return f"record {state.seq + 1} is missing"
    if type(fact) not in LEGAL[state.phase]:
        return f"{kind_of(fact)} cannot follow while the run is {state.phase}"
    check = CHECKS.get(type(fact))
    return check(state, fact) if check else None
