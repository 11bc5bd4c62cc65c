"""The conversation of the benchmarks: the model asks for one page in every step, until it has seen all of them."""

import json
from typing import Any

TEXT = "A page has some words on it, about as many as fit into two lines of this file, and then it ends. "


def page(number: str) -> str:
    return f"Page {number}. {TEXT}"


def reply_to(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What the model answers: the next page, until all were asked for."""
    steps = next(int(each["content"]) for each in messages if each["role"] == "user")
    step = 1 + sum(each["role"] == "assistant" for each in messages)
    message: dict[str, Any] = {"role": "assistant", "content": "All seen.", "refusal": None}
    if step < steps:
        function = {"name": "page", "arguments": json.dumps({"number": str(step)})}
        calls = [{"id": f"call_{step}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": f"Now page {step}.", "refusal": None, "tool_calls": calls}
    finish = "stop" if step == steps else "tool_calls"
    return {
        "id": f"chatcmpl-{step}",
        "object": "chat.completion",
        "created": 1769860800,
        "model": "gpt-4.1-mini-2025-04-14",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 40 * step,
            "completion_tokens": 12,
            "total_tokens": 40 * step + 12,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
