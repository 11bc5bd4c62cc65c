"""Usage that a provider cannot mean, in every wire format, over a real socket: a count of 0 is no count."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

import agentrun
from agentrun.core.facts import ModelAsked, ModelReplied
from agentrun.core.messages import Usage
from agentrun.core.outcome import Outcome
from agentrun.engine.memory import MemoryJournals
from agentrun.testing import stub
from agentrun.testing.provider import ScriptedProvider
from agentrun.wire import HttpReply

from ..core.script import tool
from ..packages import ROUTE, package
from ..servers import Server
from ..testing.providers import PROVIDERS

PRICE = {"input": 2_000_000, "output": 3_000_000, "cached_input": 1_000_000}
TEXT = {"text": "Water."}
CALLS = {"calls": [{"tool": "search", "args": {}}]}
REFUSAL = {"refusal": "I will not."}


class Counted(NamedTuple):
    """What the first model call of a run counted for."""

    usage: Usage | None
    cost: int
    reserved: int
    """Tokens that were reserved."""
    reserved_cost: int
    tokens: int
    """Of the whole run, if it had one call."""


def counted(provider: str, stream: bool, turn: dict[str, Any], **usage: int) -> Counted:
    turns = [{**turn, "usage": usage}, *([TEXT] if "calls" in turn else [])]
    with ScriptedProvider(json.dumps({"agentrun": "1", "turns": turns})) as server:
        return run(server.url, provider, stream)


def run(url: str, provider: str, stream: bool = False) -> Counted:
    base = url + ("/v1beta" if provider == "gemini" else "" if provider == "anthropic" else "/v1")
    route = ROUTE | {"provider": provider, "name": "m-1", "base_url": base, "price": PRICE}
    made = package(
        model={"routes": [route], "stream": stream, "temperature": None, "max_output_tokens": 100},
        tools={"search": tool()},
        policy={"default": "allow"},
        budgets={"tokens": 1_000_000},
    )
    journals = MemoryJournals()
    outcome = agentrun.run(made, "Fire!", journals=journals, tools={"search": stub("found")})
    assert isinstance(outcome, Outcome)
    facts = [record.fact for record in journals.records(outcome.run)]
    asked = next(fact for fact in facts if isinstance(fact, ModelAsked))
    replied = next(fact for fact in facts if isinstance(fact, ModelReplied))
    return Counted(replied.reply.usage, replied.cost, asked.reserved, asked.cost, outcome.tokens)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_zero_is_missing(provider: str, stream: bool) -> None:
    nothing = counted(provider, stream, TEXT, input=0, output=0)
    assert nothing.usage is not None
    assert (nothing.usage.input, nothing.usage.output) == (None, None)
    assert nothing.reserved > 100, "the longest reply is part of it"
    assert (nothing.tokens, nothing.cost) == (nothing.reserved, nothing.reserved_cost)
    no_input = counted(provider, stream, TEXT, input=0, output=5)
    assert (no_input.usage and no_input.usage.output, no_input.tokens) == (5, no_input.reserved)
    no_output = counted(provider, stream, CALLS, input=10, output=0)
    assert (no_output.usage and no_output.usage.input, no_output.cost) == (10, no_output.reserved_cost)
    one = counted(provider, stream, TEXT, input=1, output=1)
    assert (one.usage and (one.usage.input, one.usage.output), one.tokens, one.cost) == ((1, 1), 2, 5)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_input_that_was_cached_is_input(provider: str) -> None:
    """Anthropic counts it apart: there its `input_tokens` are 0."""
    found = counted(provider, False, TEXT, input=10, cached=10, output=5)
    assert (found.usage and found.usage.input, found.tokens, found.cost) == (10, 15, 10 + 15)


@pytest.mark.parametrize(
    ("provider", "is_withheld"), [("openai", False), ("openai-responses", False), ("anthropic", True)]
)
def test_a_refusal(provider: str, is_withheld: bool) -> None:
    """OpenAI's are written by the model, Anthropic's are made in its place."""
    found = counted(provider, False, REFUSAL, input=10, output=0)
    assert found.usage is not None
    assert (found.usage.output, found.tokens) == ((0, 10) if is_withheld else (None, found.reserved))


def test_a_request_that_is_blocked() -> None:
    """Gemini answers it with a reason and no reply. The request was read all the same."""
    for tokens, wanted in (({"promptTokenCount": 10, "totalTokenCount": 10}, 10), ({"totalTokenCount": 0}, None)):
        body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": tokens}
        with Server(HttpReply(200, (("Content-Type", "application/json"),), json.dumps(body).encode())) as server:
            found = run(server.url, "gemini")
        assert found.tokens == (wanted or found.reserved)
