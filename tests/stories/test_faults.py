"""Provider faults over a real connection in every format, streamed and not: codes and retries.

Nothing partial is kept, every attempt is in the journal, and the attempt after the fault goes on as if nothing was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from agentrun.core.facts import ModelAsked, ModelFailed, ModelReplied
from agentrun.testing import stub
from agentrun.testing.provider import ScriptedProvider

from .live_runs import Live, live

SPEC = Path(__file__).with_name("orders.yaml")
ANSWER = '{"shipped":[],"lost":[]}'
PROVIDERS = ("openai", "openai-responses", "anthropic", "gemini")
SHORT = {"limits.call_time": "1500ms", "limits.stream_gap": "800ms"}
TIMED = {"delay", "drip", "endless"}
"""Faults that a limit ends."""

FAULTS: list[tuple[dict[str, Any], str, str | None]] = [
    ({"status": 500}, "provider.transient", "provider.transient"),
    ({"status": 503}, "provider.overloaded", "provider.overloaded"),
    ({"status": 529}, "provider.overloaded", "provider.overloaded"),
    ({"status": 429, "headers": {"retry-after": "0"}}, "provider.rate_limited", "provider.rate_limited"),
    ({"cut": 0}, "provider.zero_output", "provider.zero_output"),
    ({"cut": 150}, "provider.zero_output", "provider.zero_output"),
    ({"cut": 150, "framing": "close"}, "provider.zero_output", "provider.empty"),
    ({"delay": "60s"}, "provider.timeout", "provider.timeout"),
    ({"drip": 1, "gap": "50ms"}, "provider.timeout", "provider.timeout"),
    ({"endless": True}, "provider.timeout", "provider.timeout"),
]
"""A fault that is tried again, and its codes: of a reply in one piece, and of a stream."""
FATAL: list[tuple[dict[str, Any], str, str | None]] = [
    ({"status": 401}, "provider.fatal", "provider.fatal"),
    ({"status": 400}, "provider.fatal", "provider.fatal"),
    ({"status": 302, "headers": {"location": "http://127.0.0.1:1/"}}, "provider.fatal", "provider.fatal"),
    ({"body": "<html>", "content_type": "text/html"}, "provider.decode", "provider.decode"),
    ({"damage": 1}, "provider.decode", None),  # in a stream one byte may be part of what nobody reads
]
"""A fault that is not tried again."""


def run(server: ScriptedProvider, provider: str, stream: bool, limits: dict[str, str]) -> Live:
    settings = {"model.provider": provider, "model.stream": str(stream).lower(), "retry.attempts": "2", **limits}
    environment = {"STORY_URL": server.url, "STORY_KEY": "k"}
    return live(SPEC, settings, environment, {"lookup_order": stub("")})


def script(fault: dict[str, Any]) -> str:
    return json.dumps({"agentrun": "1", "turns": [{"text": ANSWER, "chunk": 3, "faults": [fault]}]})


def cases(faults: Sequence[tuple[dict[str, Any], str, str | None]]) -> Iterator[ParameterSet]:
    """Every fault in every format. What takes real time is tried with one provider, and with all in the long tests."""
    for fault, *codes in faults:
        timed = bool(TIMED & fault.keys())
        for provider in PROVIDERS:
            for stream, code in zip((False, True), codes, strict=True):
                if code is not None:
                    marks = [pytest.mark.long] if timed and provider != PROVIDERS[0] else []
                    label = f"{provider}-{'stream' if stream else 'whole'}-{'-'.join(fault)}-{code}"
                    yield pytest.param(provider, stream, fault, code, marks=marks, id=label)


@pytest.mark.parametrize(("provider", "stream", "fault", "code"), [*cases(FAULTS)])
def test_retryable_fault_is_retried_and_the_run_completes(
    provider: str, stream: bool, fault: dict[str, Any], code: str
) -> None:
    with ScriptedProvider(script(fault)) as server:
        over = run(server, provider, stream, SHORT if TIMED & fault.keys() else {})
    facts = [record.fact for record in over.records]
    assert [fact.fault.code for fact in facts if isinstance(fact, ModelFailed)] == [code]
    assert [fact.attempt for fact in facts if isinstance(fact, ModelAsked)] == [1, 2]
    (reply,) = [fact.reply for fact in facts if isinstance(fact, ModelReplied)]
    assert over.outcome.answer == reply.message.text == ANSWER
    assert over.outcome.usage == reply.usage  # nothing is counted for what came of the first attempt
    assert len(server.requests) == 2


@pytest.mark.parametrize(("provider", "stream", "fault", "code"), [*cases(FATAL)])
def test_fatal_fault_is_not_retried(provider: str, stream: bool, fault: dict[str, Any], code: str) -> None:
    with ScriptedProvider(script(fault)) as server:
        over = run(server, provider, stream, {})
    assert over.outcome.fault is not None
    assert over.outcome.fault.code == code
    assert len(server.requests) == 1
