"""Orders of the example shop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ORDERS = Path(__file__).with_name("orders.json")


def lookup_order(id: str) -> dict[str, Any]:
    """Finds an order by its number; gives its state, dates, items and total."""
    orders: dict[str, dict[str, Any]] = json.loads(ORDERS.read_text(encoding="utf-8"))
    if id not in orders:
        raise LookupError(f"there is no order {id}: ask the customer for the number on the invoice")
    return {"id": id, **orders[id]}
