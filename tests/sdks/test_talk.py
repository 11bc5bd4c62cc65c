"""The official provider clients complete a conversation with the scripted provider, streamed and not.

The clients validate what they are sent and put streams together themselves, so they are the judges of our formats.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentrun.testing.provider import ScriptedProvider

from .clients import in_venv

SCRIPT = Path(__file__).with_name("script.provider.yaml")
FINISH = {
    "openai": ["tool_calls", "stop"],
    "openai-responses": ["completed", "completed"],
    "anthropic": ["tool_use", "end_turn"],
    "gemini": ["STOP", "STOP"],
}


@pytest.mark.long
@pytest.mark.parametrize("how", ["whole", "stream"])
@pytest.mark.parametrize("provider", FINISH)
def test_official_client_completes_the_scripted_conversation(provider: str, how: str) -> None:
    with ScriptedProvider(SCRIPT) as server:
        said: dict[str, Any] = json.loads(in_venv("talk.py", provider, how, server.url))
    assert said == {
        "texts": ["I look them up.", "1042 is shipped, 1043 is lost."],
        "thoughts": ["Both have to be looked up.", None],
        "calls": [["lookup_order", {"id": "1042", "full": True}], ["lookup_order", {"id": "1043"}]],
        "usage": [[100, 30, 10, 12], [140, 12, 100, 2]],
        "finish": FINISH[provider],
    }
    assert [(seen.provider, seen.turn, seen.status) for seen in server.requests] == [
        (provider, 1, 200),
        (provider, 2, 200),
    ]
