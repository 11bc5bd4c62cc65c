"""The tool of the agent."""


def write(to: str, cc: str = "", tags: list[str] = [], copies: int = 1) -> str:  # noqa: B006  # as many functions have it
    """Writes a letter."""
    return f"written to {to}"
