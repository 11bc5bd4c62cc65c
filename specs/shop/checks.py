"""Assertions of the support agent's cases that need Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrun.testing import Evidence


def looks_before_it_pays(run: Evidence) -> str | None:
    """No refund of an order that was not looked up before."""
    seen: set[str] = set()
    for call in run.calls:
        args = call.args or {}
        if call.tool == "lookup_order":
            seen.add(str(args.get("id")))
        elif call.tool == "refund" and str(args.get("order_id")) not in seen:
            return f"it refunds order {args.get('order_id')} before looking it up"
    return None
