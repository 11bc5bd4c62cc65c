"""What runs spend, and what a sub-agent may spend of the budget of its parent."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.messages import VOLATILE


class Spend(Struct, frozen=True, forbid_unknown_fields=True):
    """What was used of the budgets that sub-agents share, `BudgetShare`."""

    tokens: int = 0
    cost: int = 0
    tool_calls: int = 0
    """Calls that ran, including those of sub-agents."""


class ChildSpend(Spend, frozen=True):
    """What a sub-agent used of its share."""

    runs: int | UnsetType = UNSET
    """Runs that it started, at any depth. Absent: none."""


class BudgetShare(Struct, frozen=True, forbid_unknown_fields=True):
    """What a sub-agent may spend of its parent's budget. Null: no limit."""

    tokens: int | None = None
    cost: int | None = None
    """Micro-dollars."""
    time: Annotated[int | None, VOLATILE] = None
    """Milliseconds. The rest depends on the clock."""
    tool_calls: int | None = None
    runs: int | UnsetType = UNSET
    """Runs that it may start, at any depth. Absent: none, or as many as its own limit allows."""
