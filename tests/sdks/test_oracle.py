"""The types of the official provider clients accept every request that we build.

Requests of every shape come from the codecs' tests: their golden files, and conversations at random.
"""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from agentrun.core.messages import Message
from agentrun.providers.codec import CODECS, codec_for

from ..packages import TRIAGE
from ..providers.conversations import conversations
from ..providers.exchange import GOLDEN, NOW, SEARCH, encode, request
from .clients import in_venv

MODELS = {
    "openai": ["gpt-4.1-mini", "gpt-5-mini"],
    "openai-responses": ["gpt-5-mini"],
    "anthropic": ["claude-sonnet-4-5", "claude-opus-4-7", "claude-haiku-6", "someone-else-1"],
    "gemini": ["gemini-2.5-flash", "gemini-3-pro"],
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"stream": True, "max_output_tokens": 20_000, "reasoning": "low"},
    {"temperature": 1.0, "stop": ("END",)},
    {"tool_choice": "required"},
    {"tool_choice": "docs.search", "stream": True},
    {"tool_choice": "none", "reasoning": "high", "max_output_tokens": 30_000},
]
Built = tuple[str, dict[str, Any]]


def random_requests(provider: str) -> list[Built]:
    """What the codec makes of conversations at random, with every setting that it takes."""
    found: list[Built] = []
    shapes = cycle([(model, chosen) for model in MODELS[provider] for chosen in SETTINGS])

    @settings(
        max_examples=120,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(conversations())
    def build(messages: list[Message]) -> None:
        model, chosen = next(shapes)
        output = TRIAGE if len(found) % 3 == 0 else None
        asked = request(provider, model, *messages, tools=(SEARCH, NOW), output=output, **chosen)
        if not codec_for(provider).problems(asked.settings, asked.route, {}, output=output is not None):
            found.append((provider, json.loads(encode(codec_for(provider), asked).body)))

    build()
    return found


def golden_requests(provider: str) -> list[Built]:
    return [(provider, body(path)) for path in sorted((GOLDEN / provider).rglob("*.request.json"))]


def body(path: Path) -> dict[str, Any]:
    held: dict[str, Any] = json.loads(path.read_bytes())
    found: dict[str, Any] = held["body"]
    return found


def refused_requests(requests: list[Built]) -> list[str]:
    """What the types refuse, each with the request that it is in."""
    said = json.loads(in_venv("oracle.py", stdin=json.dumps(requests)))
    return [f"{text}\n{json.dumps(built[1])}" for text, built in zip(said, requests, strict=True) if text is not None]


@pytest.mark.long
@pytest.mark.parametrize("provider", CODECS)
def test_client_types_accept_our_requests(provider: str) -> None:
    requests = [*golden_requests(provider), *random_requests(provider)]
    assert len(requests) > 50
    refused = refused_requests(requests)
    assert not refused, f"{len(refused)} of {len(requests)}, the first:\n{refused[0]}"


PLANTED_REQUESTS: list[Built] = [
    ("openai", {"model": "m", "messages": [{"role": "user", "text": "Hi"}]}),
    ("openai", {"model": "m", "messages": [], "stream": True, "unheard_of": 1}),
    ("openai-responses", {"model": "m", "input": [{"type": "function_call_output", "call_id": "x"}]}),
    ("anthropic", {"model": "m", "messages": []}),
    ("anthropic", {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "txt"}]}]}),
    ("gemini", {"contents": [{"parts": [{"txt": "Hi"}]}]}),
    ("gemini", {"contents": [], "generationconfig": {}}),
]


@pytest.mark.long
def test_planted_wrong_requests_are_detected() -> None:
    assert len(refused_requests(PLANTED_REQUESTS)) == len(PLANTED_REQUESTS)
