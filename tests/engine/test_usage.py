"""Usage counts of 0 are treated as missing, in every wire format over a real socket."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

import agentrun
from agentrun.core.facts import ModelAsked, ModelReplied
from agentrun.core.messages import Usage
from agentrun.engine.memory import MemoryJournals
from agentrun.testing import stub
from agentrun.testing.provider import ScriptedProvider
from agentrun.wire import HttpReply

from ..core.script import tool
from ..packages import ROUTE, package
from ..servers import Server
from ..testing.provider_requests import PROVIDERS

PRICE = {"input": 2_000_000, "output": 3_000_000, "cached_input": 1_000_000}
TEXT = {"text": "Water."}
CALLS = {"calls": [{"tool": "search", "args": {}}]}
REFUSAL = {"refusal": "I will not."}


class CountedUsage(NamedTuple):
    """What the first model call of a run counted for."""

    usage: Usage | None
    cost: int
    reserved: int
    """Tokens that were reserved."""
    reserved_cost: int
    tokens: int
    """Of the whole run, if it had one call."""


def run_with_usage(provider: str, stream: bool, turn: dict[str, Any], **usage: int) -> CountedUsage:
    turns = [{**turn, "usage": usage}, *([TEXT] if "calls" in turn else [])]
    with ScriptedProvider(json.dumps({"agentrun": "1", "turns": turns})) as server:
        return run(server.url, provider, stream)


def run(url: str, provider: str, stream: bool = False) -> CountedUsage:
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
    assert outcome.is_finished
    facts = [record.fact for record in journals.records(outcome.run)]
    asked = next(fact for fact in facts if isinstance(fact, ModelAsked))
    replied = next(fact for fact in facts if isinstance(fact, ModelReplied))
    return CountedUsage(replied.reply.usage, replied.cost, asked.reserved, asked.cost, outcome.tokens)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_zero_usage_is_missing_and_the_reservation_counts(provider: str, stream: bool) -> None:
    nothing = run_with_usage(provider, stream, TEXT, input=0, output=0)
    assert nothing.usage is not None
    assert (nothing.usage.input, nothing.usage.output) == (None, None)
    assert nothing.reserved > 100, "the longest reply is part of it"
    assert (nothing.tokens, nothing.cost) == (nothing.reserved, nothing.reserved_cost)
    no_input = run_with_usage(provider, stream, TEXT, input=0, output=5)
    assert (no_input.usage and no_input.usage.output, no_input.tokens) == (5, no_input.reserved)
    no_output = run_with_usage(provider, stream, CALLS, input=10, output=0)
    assert (no_output.usage and no_output.usage.input, no_output.cost) == (10, no_output.reserved_cost)
    one = run_with_usage(provider, stream, TEXT, input=1, output=1)
    assert (one.usage and (one.usage.input, one.usage.output), one.tokens, one.cost) == ((1, 1), 2, 5)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_cached_input_counts_as_input(provider: str) -> None:
    """Anthropic counts it apart: there its `input_tokens` are 0."""
    found = run_with_usage(provider, False, TEXT, input=10, cached=10, output=5)
    assert (found.usage and found.usage.input, found.tokens, found.cost) == (10, 15, 10 + 15)


@pytest.mark.parametrize(
    ("provider", "is_withheld"), [("openai", False), ("openai-responses", False), ("anthropic", True)]
)
def test_usage_of_a_refusal(provider: str, is_withheld: bool) -> None:
    """OpenAI's are written by the model, Anthropic's are made in its place."""
    found = run_with_usage(provider, False, REFUSAL, input=10, output=0)
    assert found.usage is not None
    assert (found.usage.output, found.tokens) == ((0, 10) if is_withheld else (None, found.reserved))


def test_usage_of_a_request_that_gemini_blocked() -> None:
    """Gemini answers it with a reason and no reply. The request was read all the same."""
    for tokens, wanted in (({"promptTokenCount": 10, "totalTokenCount": 10}, 10), ({"totalTokenCount": 0}, None)):
        body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": tokens}
        with Server(HttpReply(200, (("Content-Type", "application/json"),), json.dumps(body).encode())) as server:
            found = run(server.url, "gemini")
        assert found.tokens == (wanted or found.reserved)
