"""Refunds of the example shop. No money moves: a refund is a line in a ledger.

The ledger is a file, so that what a run really did can be looked at: the one that SHOP_LEDGER names, else
shop-ledger.jsonl in the working directory, which git ignores.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


def refund(order_id: str, amount: float, reason: str = "") -> dict[str, object]:
    """Pays an amount of an order back to the customer. Cannot be undone."""
    if amount <= 0:
        raise ValueError("the amount must be more than 0")
    entry = {"order_id": order_id, "amount": amount, "reason": reason}
    ledger = Path(os.environ.get("SHOP_LEDGER", "shop-ledger.jsonl"))
    with ledger.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, sort_keys=True) + "\n")
    return {"refunded": amount, "order_id": order_id}
