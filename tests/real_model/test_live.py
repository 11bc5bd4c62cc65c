"""Live runs against a real language model in three wire formats, streamed and not.

The model is small and repeats itself: it asks for the same call again and again, and the guard against that trips.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.core.facts import ModelReplied, ToolFinished
from agentrun.core.messages import Reply
from agentrun.testing import Stub, stub

from ..stories.live_runs import Live, live

FOLDER = Path(__file__).parent
VENV = FOLDER.parents[1] / ".venv-model"
PROVIDERS = ("openai", "openai-responses", "anthropic")
FORMATS = [(provider, stream) for provider in PROVIDERS for stream in (False, True)]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if not (VENV / "ready").exists():
        pytest.skip("there is no model: run `make model`")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(VENV / "bin" / "python"), str(FOLDER / "serve.py"), str(port)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as server:  # type: ignore[call-overload]  # it wants them one by one
        assert server.stdout.readline() == b"ready\n"
        yield f"http://127.0.0.1:{port}"
        server.stdin.close()  # that ends it
        server.wait(20)


def run(url: str, provider: str, stream: bool, weather: Stub, message: str | None = None) -> Live:
    settings = {"model.provider": provider, "model.stream": str(stream).lower(), "limits.truncations": "0"}
    return live(FOLDER / "agent.yaml", settings, {"MODEL_URL": url}, {"get_weather": weather}, message)


def replies(run: Live) -> list[ModelReplied]:
    return [record.fact for record in run.records if isinstance(record.fact, ModelReplied)]


@pytest.mark.parametrize(("provider", "stream"), FORMATS)
def test_a_tool_is_called_until_the_guard_trips(url: str, provider: str, stream: bool) -> None:
    weather = stub("It is sunny.")
    over = run(url, provider, stream, weather)
    assert over.outcome.fault is not None
    assert over.outcome.fault.code == "guard.repeated_call", over.outcome.fault
    assert [call.arguments for call in weather.calls] == [{"city": "Paris"}] * 2
    assert sum(isinstance(record.fact, ToolFinished) for record in over.records) == 2
    for replied in replies(over):
        assert replied.reply.finish == "tool_calls"
        assert replied.reply.usage is not None
        assert replied.reply.usage.input
        assert replied.reply.usage.output
        (call,) = replied.reply.message.calls
        assert call.wire_id
        assert call.route == f"{provider}/smollm2"


def test_every_format_gives_the_same_replies(url: str) -> None:
    """But for the tokens, which the server counts with its cache in mind, and the blanks in arguments."""
    runs = [run(url, provider, stream, stub("It is sunny.")) for provider, stream in FORMATS]
    assert len({tuple(finish_text_and_calls(fact.reply) for fact in replies(over)) for over in runs}) == 1


def finish_text_and_calls(reply: Reply) -> tuple[str, ...]:
    calls = (f"{call.id} {call.tool} {json.loads(call.arguments)}" for call in reply.message.calls)
    return (reply.finish, reply.message.text, *calls)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_text_answer_streamed_and_not(url: str, provider: str) -> None:
    """Two texts of a real model need not be equal, not even at temperature 0: its cache changes the last digits."""
    whole, streamed = [
        run(url, provider, stream, stub(""), "What is the weather in Paris?") for stream in (False, True)
    ]
    assert whole.outcome.answer
    assert streamed.outcome.answer == "".join(streamed.heard)
    assert len(streamed.heard) > 3
    assert whole.heard == ()
