"""Record a run in memory and replay it, with a scripted model service and any tools, approvers, hooks and sinks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from agentrun.cassette.file import load_cassette
from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import Recorder
from agentrun.cassette.writer import dump_cassette
from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import Record
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.package_tools import TOOL_KINDS
from agentrun.engine.cassette_ports import (
    CassetteExchanger,
    ReplayExchanger,
    models_wrapper,
    other_ports_wrapper,
)
from agentrun.engine.clock import StepClock
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.models import HttpProvider
from agentrun.engine.ports import Approver
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.engine.worlds.record import RecordingExchanger
from agentrun.engine.worlds.replay import (
    UNREACHABLE,
    unreachable_parts,
    unreachable_providers,
)
from agentrun.errors import AgentrunError
from agentrun.journal.canonical import canonical
from agentrun.providers.codec import codec_for
from agentrun.wire import HttpCall, HttpReply

from ..scripted_service import completion

ROOT = "run-1"
BEGAN = 1_769_860_800_000


def reply_with_calls(*calls: tuple[str, Mapping[str, Any]], text: str | None = None) -> HttpReply:
    """A model's reply that asks for calls."""
    wanted = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments) in enumerate(calls)
    ]
    return completion(text, "tool_calls", tool_calls=wanted)


class Service:
    """A model's service: replies, errors, or a wait (milliseconds) before the next. It can be asked by many."""

    def __init__(self, clock: StepClock, *replies: HttpReply | AgentrunError | int) -> None:
        self._clock = clock
        self._replies = list(replies)
        self.calls: list[HttpCall] = []

    async def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> HttpReply:
        self.calls.append(call)
        while isinstance(reply := self._replies.pop(0), int):
            await self._clock.sleep_until(self._clock.now() + reply)
        if isinstance(reply, AgentrunError):
            if heard is not None and reply.fields.get("received"):
                heard(b"data: {}\n\n")
            raise reply
        if heard is not None and reply.status == 200:
            for start in range(0, len(reply.body), 100):
                heard(reply.body[start : start + 100])
        return reply


class EndedRun(Struct, frozen=True):
    """A run that is over."""

    outcome: Outcome
    records: tuple[Record, ...]
    canonical: str
    interactions: tuple[Interaction, ...]


def _run(
    agent: Package, clock: StepClock, exchanger: CassetteExchanger, instead: Approver | None, **parts: Any
) -> tuple[Outcome, MemoryJournals]:
    journals = MemoryJournals()
    runtime = Runtime.in_memory(
        journals=journals,
        clock=clock,
        width=parts.pop("width", 1),
        wrappers=(models_wrapper(exchanger), other_ports_wrapper(exchanger, instead)),
        **parts,
    )
    handle = runtime.start(Request(agent=agent.name, package=seal_package(agent), run=ROOT))
    ended = clock.run(handle.wait())
    assert ended.is_finished
    return ended, journals


def _finished_run(ended: Outcome, journals: MemoryJournals, interactions: tuple[Interaction, ...]) -> EndedRun:
    children = {run: journals.records(run) for run in journals.runs if run != ROOT}
    records = journals.records(ROOT)
    return EndedRun(ended, records, canonical(records, children), interactions)


def record_in_memory(
    agent: Package, world: Callable[[StepClock], dict[str, Any]], *replies: Any, **given: Any
) -> EndedRun:
    """A run in a world, and what it saw of it. `kept` and `until`: what is kept of an earlier recording."""
    clock = StepClock(BEGAN)
    recorder = Recorder(clock.now)
    service = given.pop("service", None) or Service(clock, *replies)
    exchanger = RecordingExchanger(recorder, given.pop("kept", None), given.pop("until", None))
    providers = {name: HttpProvider(codec_for(name), service) for name in ("openai", "anthropic")}
    ended, journals = _run(agent, clock, exchanger, None, providers=providers, **world(clock), **given)
    return _finished_run(ended, journals, recorder.interactions())


def cassette(folder: Path, interactions: tuple[Interaction, ...]) -> Cassette:
    """What comes of a recording after it was a file."""
    path = folder / "cassette.yaml"
    path.write_text(dump_cassette(interactions, {"recorded_at": "2026-01-31T12:00:00Z"}), encoding="utf-8")
    return load_cassette(path)


def replay_cassette(
    agent: Package, recorded_cassette: Cassette, instead: Approver | None = None, **given: Any
) -> EndedRun:
    """The same run with nothing but the cassette."""
    clock, player = StepClock(recorded_cassette.recorded_at), Player(recorded_cassette)
    ended, journals = _run(
        agent,
        clock,
        ReplayExchanger(player, clock),
        instead,
        providers=unreachable_providers(agent),
        **unreachable_parts(agent) | {"executors": dict.fromkeys(TOOL_KINDS, UNREACHABLE)} | given,
    )
    done = _finished_run(ended, journals, ())
    if ended.code is None:
        assert player.unused() == (), "all of the cassette was played"
    return done
