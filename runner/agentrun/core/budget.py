"""What a model call may cost before it is made, and what it did cost after.

Rule 1  Tokens are reserved before a call: the estimated input, and the longest reply if there is a limit to it.
        A call starts only if used + reserved ≤ limit.
Rule 2  After the call the reported usage counts. What was not reported counts as reserved, never as 0. A reply
        that overshoots is kept.
Rule 3  The estimate errs on the high side: three bytes a token. It is made once for each message.
"""

from __future__ import annotations

from agentrun.canon import compact
from agentrun.core.messages import Message, ToolCall, Usage
from agentrun.core.package import Package
from agentrun.core.state import State

BYTES_PER_TOKEN = 3
TOKENS_PER_MESSAGE = 4


def estimated(message: Message) -> int:
    """Tokens of a message, as a model would read it."""
    texts = (part.tool + part.arguments if isinstance(part, ToolCall) else part.text for part in message.parts)
    return TOKENS_PER_MESSAGE + sum(_tokens(text.encode("utf-8", "replace")) for text in texts)


def reservation(package: Package, state: State) -> int:
    """Tokens to reserve for the next call."""
    assert state.started is not None
    schema = b"" if package.output.schema is None else compact(package.output.schema)
    around = TOKENS_PER_MESSAGE + _tokens(state.started.instructions.encode("utf-8", "replace")) + _tokens(schema)
    return around + state.estimate + (package.model.max_output_tokens or 0)


def settled(usage: Usage | None, reserved: int) -> int:
    """Tokens that a call counts for."""
    if usage is None or usage.input is None or usage.output is None:
        return reserved
    return usage.input + usage.output


def _tokens(text: bytes) -> int:
    return -(-len(text) // BYTES_PER_TOKEN)
