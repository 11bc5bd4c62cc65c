"""A scripted OpenAI service for tests, and a cassette of what it was asked."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentrun.canonical_json import text_hash
from agentrun.cassette.interactions import Interaction
from agentrun.cassette.writer import dump_cassette
from agentrun.core.package import Package
from agentrun.engine.begin import begin, check_start
from agentrun.engine.clock import StepClock
from agentrun.engine.crew_registry import CrewRegistry
from agentrun.engine.driver import drive
from agentrun.engine.memory import MemoryBlobs, MemoryJournals
from agentrun.engine.models import HttpProvider
from agentrun.engine.perform import make_crew
from agentrun.engine.request import Request
from agentrun.engine.world import World
from agentrun.providers.codec import codec_for
from agentrun.wire import HttpCall, HttpReply

USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 5,
    "total_tokens": 25,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
JSON_HEADERS = (("content-type", "application/json"),)
GOOD = '{"queue": "hardware", "urgent": true}'
BAD = '{"queue": "kitchen"}'


def completion(content: str | None, finish: str | None = "stop", **changes: Any) -> HttpReply:
    """What OpenAI answers. `changes` go to the message, but for `usage`."""
    usage = changes.pop("usage", USAGE)
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4.1-mini-2025-04-14",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, "refusal": None, **changes},
            }
        ],
        "usage": usage,
    }
    return HttpReply(200, JSON_HEADERS, json.dumps(body, indent=2).encode())


def failure(status: int, message: str = "no", code: str | None = None, **headers: str) -> HttpReply:
    """An error in OpenAI's form."""
    body = json.dumps({"error": {"message": message, "type": "x", "code": code}}).encode()
    given = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return HttpReply(status, (*JSON_HEADERS, *given), body)


class ScriptedSender:
    """A Sender that answers from a list and remembers."""

    def __init__(self, replies: Sequence[HttpReply | Exception]) -> None:
        self._replies = list(replies)
        self.calls: list[HttpCall] = []
        self.interactions: list[Interaction] = []

    async def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> HttpReply:
        self.calls.append(call)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        began = 1000 * len(self.interactions)
        self.interactions.append(Interaction(call, reply, start=began, end=began + 700))
        if heard is not None and reply.status == 200:
            heard(reply.body)
        return reply


def live(agent: Package, sender: ScriptedSender, message: str | None = None, **params: Any) -> MemoryJournals:
    """The journal of a run against a scripted service."""
    journals, clock = MemoryJournals(), StepClock()
    world = World(
        clock=clock,
        blobs=MemoryBlobs(),
        journals=journals,
        crews=CrewRegistry(clock, width=1),
        crew=make_crew,
        providers={route.provider: HttpProvider(codec_for(route.provider), sender) for route in agent.model.routes},
        run="live-1",
    )
    request = Request(agent=agent.name, package=text_hash("a package"), message=message, params=params)
    log = begin(world, check_start(world, agent, request))
    clock.run(drive(agent, log, make_crew(world, agent)))
    return journals


def record(path: Path, agent: Package, *replies: HttpReply, message: str | None = None, **params: Any) -> Path:
    """A cassette of a run that got these replies."""
    sender = ScriptedSender(replies)
    live(agent, sender, message, **params)
    path.write_text(dump_cassette(sender.interactions, {"recorded_at": "2026-01-31T12:00:00Z"}), encoding="utf-8")
    return path
