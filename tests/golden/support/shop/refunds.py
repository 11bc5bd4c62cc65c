def refund(order_id: str, amount: float) -> str:
    """Pays an amount back."""
    return f"{order_id}: {amount}"
