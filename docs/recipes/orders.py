"""The tools of the agent in support.yaml."""

ORDERS = {"1042": "sent on Monday", "1043": "waiting for payment"}


def find_order(number: str) -> str:
    """Finds the state of an order."""
    return ORDERS.get(number, "there is no such order")


def refund(number: str, amount: float) -> str:
    """Pays money back."""
    return f"refunded {amount:.2f} for order {number}"
