"""A schema as words, for a request in which the provider cannot promise to keep it. Our own validation decides."""

from __future__ import annotations

from agentrun.canon import compact
from agentrun.core.effects import ModelRequest

GUIDANCE = (
    "Your final answer is one JSON value and nothing else, no text or code fence around it. It keeps this schema:\n"
)


def guided(request: ModelRequest) -> str:
    """The instructions, with the schema of the answer below them."""
    if request.output is None:
        return request.instructions
    words = GUIDANCE + compact(request.output).decode()
    return f"{request.instructions}\n\n{words}" if request.instructions else words
