"""The tool and the hook of the agent."""

from agentrun import HookQuestion, Modify


def print_label(order: str, copies: int = 1) -> str:
    """Prints the label of an order."""
    return f"{copies} printed for {order}"


def look(question: HookQuestion) -> Modify | None:
    """Changes one argument and keeps the others."""
    return Modify({**question.value, "order": "07"}) if question.target == "print_label" else None
