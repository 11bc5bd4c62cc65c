"""Test the agent with a scripted model: the tools, the policy and the prompts are real, and nothing is sent."""

from pathlib import Path

import pytest

import agentrun
from agentrun.testing import calls, scripted, text

SPEC = Path(__file__).with_name("support.yaml")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_state_of_an_order() -> None:
    model = scripted(calls("find_order", number="1042"), text("It was sent on Monday."))
    outcome = agentrun.run(SPEC, "Where is order 1042?", model=model)
    assert outcome.text == "It was sent on Monday."
    assert [(call.tool, call.result) for call in outcome.calls] == [("find_order", "sent on Monday")]
    assert "Where is order 1042?" in str(model.requests[0].messages)


def test_refund_waits() -> None:
    model = scripted(calls("refund", number="1042", amount=20.0))
    outcome = agentrun.run(SPEC, "I want my money back.", model=model)
    assert outcome.status == "suspended"
    assert outcome.until is not None


@pytest.mark.anyio
async def test_in_an_event_loop() -> None:
    outcome = await agentrun.arun(SPEC, "Hello!", model=scripted("Hello."))
    assert outcome.raise_for_status().text == "Hello."
