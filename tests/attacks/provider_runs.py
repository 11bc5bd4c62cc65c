"""Whole runs against a server on a real socket that follows a plan."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import agentrun
from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import Fact, ModelAsked, ModelFailed, Record
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.engine.live_providers import live_providers, live_sender
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import ReplyDelta
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.engine.settings import Settings
from agentrun.net.client import make_client
from agentrun.testing import Stub, stub
from agentrun.wire import HttpReply

from ..core.script import tool
from ..packages import ROUTE, package
from ..scripted_service import completion
from ..servers import Plan, Server, streamed
from ..servers import Request as Received

T = TypeVar("T")
QUICK = {"attempts": 4, "first_delay": 1, "max_delay": 4, "max_wait": 60_000}
GOOD = completion("Water.")
STRICT = {"type": "object", "additionalProperties": False, "properties": {"q": {"type": "string"}}, "required": ["q"]}


class Live(NamedTuple):
    """A run that is over."""

    outcome: Outcome
    records: tuple[Record, ...]
    requests: list[Received]

    def of(self, kind: type[T]) -> list[T]:
        return [record.fact for record in self.records if isinstance(record.fact, kind)]

    @property
    def code(self) -> str | None:
        return self.outcome.fault.code if self.outcome.fault else None

    @property
    def failures(self) -> list[str]:
        """The codes of all attempts that failed."""
        return [fact.fault.code for fact in self.of(ModelFailed)]

    @property
    def attempts(self) -> list[int]:
        return [fact.attempt for fact in self.of(ModelAsked)]


def agent(url: str, *, stream: bool = False, fallback: Iterable[str] = (), **changes: Any) -> Package:
    """An agent whose model is there. It may search."""
    routes = [ROUTE | {"base_url": each} for each in (url, *fallback)]
    base = {"retry": QUICK, "tools": {"search": tool(args=STRICT)}, "policy": {"default": "allow"}}
    return package(**{**base, **changes, "model": {"routes": routes, "stream": stream, **changes.get("model", {})}})


def run(what: Package, search: Stub | None = None) -> tuple[Outcome, tuple[Record, ...]]:
    journals = MemoryJournals()
    outcome = agentrun.run(what, "Fire!", journals=journals, tools={"search": search or stub("found")})
    assert outcome.is_finished
    return outcome, journals.records(outcome.run)


def live(*plans: Plan | HttpReply, search: Stub | None = None, **changes: Any) -> Live:
    """A run against a server with these plans. It ends once, and leaves no connection."""
    with Server(*plans) as server:
        outcome, records = run(agent(server.url, **changes), search)
        assert server.is_quiet()
    facts: list[Fact] = [record.fact for record in records]
    assert [type(fact).__name__ for fact in facts].count("RunStopped") == 1
    return Live(outcome, records, server.requests)


def run_with_deltas(what: Package) -> tuple[Outcome, list[str | None]]:
    """A run, and the pieces of text that passed meanwhile."""

    async def whole() -> tuple[Outcome, list[str | None]]:
        settings = Settings()
        client = make_client()
        models = live_providers(what, settings, live_sender(settings, client))
        runtime = Runtime.in_memory(providers=models, executors={"search": stub("found")})
        subscription = runtime.subscribe()
        outcome = await runtime.start(Request(agent=what.name, package=seal_package(what), message="Fire!")).wait()
        await client.aclose()
        assert outcome.is_finished
        return outcome, [event.what.text for event in subscription if isinstance(event.what, ReplyDelta)]

    return asyncio.run(whole())


def events(*pieces: Any) -> bytes:
    """OpenAI's stream of these objects; `[DONE]` comes last."""
    return b"".join(
        b"data: %b\n\n" % (each if isinstance(each, bytes) else json.dumps(each).encode()) for each in pieces
    )


def delta(content: str | None = None, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {} if content is None else {"content": content}, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "model": "gpt-4.1-mini", "choices": [choice]}


USAGE = {"id": "x", "choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}}
STREAM = (delta("Wa"), delta("ter."), delta(finish="stop"), USAGE, b"[DONE]")
GOOD_STREAM = streamed(events(*STREAM))
