"""A provider script that uses every key."""

from typing import Any

SCRIPT: dict[str, Any] = {
    "agentrun": "1",
    "order": "conversation",
    "turns": [
        {
            "expect": {
                "model": "m-1",
                "instructions": "brief",
                "contains": ["Hi"],
                "results": ["ok"],
                "tools": ["search"],
                "reasoning": True,
            },
            "reasoning": "Hm.",
            "text": "Hello.",
            "refusal": "No.",
            "calls": [{"tool": "docs.search", "args": {"q": "x"}}, {"tool": "now", "raw": "{"}],
            "finish": "stop",
            "usage": {"input": 20, "output": 10, "cached": 4, "reasoning": 2},
            "chunk": 4,
            "times": 2,
            "faults": [
                {
                    "times": 2,
                    "status": 429,
                    "headers": {"retry-after": "1"},
                    "body": "busy",
                    "content_type": "text/plain",
                    "framing": "close",
                    "delay": "10ms",
                    "gap": "20ms",
                    "drip": 3,
                    "damage": 5,
                    "cut": 7,
                    "endless": True,
                }
            ],
        },
        {"text": "Bye.", "usage": "off"},
    ],
}
