"""Live runs as a host makes them: real connections, the system clock, a journal in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec import Struct

from agentrun.compiler.compile import compile_or_raise
from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import Record
from agentrun.core.outcome import Outcome
from agentrun.engine.event_bus import Subscription
from agentrun.engine.live_providers import live_providers, live_sender
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import Executor, ReplyDelta
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.engine.settings import Settings
from agentrun.journal.canonical import canonical
from agentrun.net.client import make_client

from ..intents import assert_each_intent_has_its_effect

RUN = "run-1"


class Live(Struct, frozen=True):
    """A run that is over."""

    outcome: Outcome
    records: tuple[Record, ...]
    heard: tuple[str, ...]
    """The pieces of text that passed."""

    def story(self, route: str) -> str:
        """The canonical journal, with another name for the route."""
        return canonical(self.records).replace(route, "the route")


def live(
    spec: Path,
    settings: Mapping[str, Any],
    environment: Mapping[str, str],
    tools: Mapping[str, Executor],
    message: str | None = None,
) -> Live:
    """Run a spec, with some of its keys set to something else, and with these variables in the environment."""
    texts = tuple(f"{key}={value}" for key, value in settings.items())
    _, file = compile_or_raise(spec, None, texts)
    with patch.dict(os.environ, environment):
        return asyncio.run(_live(file, tools, message))


async def _live(file: PackageFile, tools: Mapping[str, Executor], message: str | None) -> Live:
    settings, client = Settings(), make_client()
    journals = MemoryJournals()
    runtime = Runtime.in_memory(
        journals=journals,
        providers=live_providers(file.agent, settings, live_sender(settings, client)),
        executors=tools,
        packages=[file],
    )
    heard: list[str] = []
    try:
        handle = runtime.start(Request(agent=file.agent.name, package=file, run=RUN, message=message))
        listening = asyncio.create_task(_listen(handle.events(), heard.append))
        outcome = await handle.wait()
        await listening
    finally:
        await client.aclose()
    records = tuple(journals.records(RUN))
    assert_each_intent_has_its_effect(file.agent, records)
    return Live(outcome, records, tuple(heard))


async def _listen(events: Subscription, hear: Callable[[str], None]) -> None:
    async for event in events:
        if isinstance(event.what, ReplyDelta) and event.what.text:
            hear(event.what.text)
