"""Runs in real time: live, recorded, or with the model or the tools from a cassette.

Rule 1  What a run needs of the environment is looked for before it starts. What comes from a tape needs nothing.
Rule 2  What was started for a run ends with it.

Importing this takes a second: only what goes live does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

from msgspec import Struct

from agentrun.cassette.redaction import Redaction
from agentrun.compiler.fingerprint import PackageFile
from agentrun.core.facts import Record, RunStarted
from agentrun.core.messages import words
from agentrun.core.outcome import Outcome, Suspended
from agentrun.engine.approvals import Nobody
from agentrun.engine.assemble import FinishedRun
from agentrun.engine.bus import EVERYTHING, Event, Subscription
from agentrun.engine.handle import RunHandle
from agentrun.engine.in_person import waited
from agentrun.engine.kept import KeptJournals
from agentrun.engine.live_ports import LivePorts
from agentrun.engine.memory import MemoryBlobs, MemoryJournals
from agentrun.engine.ports import Approver
from agentrun.engine.request import Attachment, Request, contents
from agentrun.engine.runtime import Runtime
from agentrun.engine.sealed import SEALED, SINK_KINDS, sealed_executors, sealed_hooks, sealed_providers
from agentrun.engine.surroundings import Surroundings
from agentrun.engine.taped import Playing, Tape, compare_answers, tape_models, tape_others
from agentrun.engine.world import Wrapper
from agentrun.spec.project import Project
from agentrun.store.sessions import StoredSession


class Job(Struct, frozen=True, kw_only=True):
    """One run in real time."""

    file: PackageFile
    project: Project
    """Where the run takes place: its root holds all files of tools and sinks."""
    message: str | None = None
    params: Mapping[str, Any] = {}
    attachments: tuple[Attachment, ...] = ()
    approver: Approver = Nobody()
    """Who is asked for approvals."""
    journal: Path | None = None
    """The file that the run's journal is written to as it goes."""
    seed: str | None = None
    """What jitter is made of. Null: the run's id."""
    session: StoredSession | None = None
    """The session that the run belongs to. Its journal is then written there."""
    printed: Callable[[str, str], None] = lambda tool, text: None
    """Told what a Python tool printed."""
    write: Callable[[str], None] = print
    """Writes a line to standard output, for a sink."""
    hold: Callable[[RunHandle], None] = lambda handle: None
    """Given the run as soon as there is one: whoever may want to cancel it."""
    watch: Callable[[Event], None] = lambda event: None
    """Told what happens in the run and its children."""
    wrappers: tuple[Wrapper, ...] = ()
    """What is before the cassette: stubs and faults."""
    after: tuple[FinishedRun, ...] = ()
    """The runs of the same conversation before it."""


class Tapes(Struct, frozen=True):
    """What stands before the ports. None: what is asked for happens, and leaves no trace on a tape."""

    models: Tape | None = None
    others: Tape | None = None
    """Before tools, hooks, sinks and people."""


async def live_run(job: Job, tapes: Tapes = Tapes()) -> FinishedRun:  # noqa: B008  # frozen
    """Run in real time. Raises before the run exists what `Runtime.start` raises, and `host.missing`."""
    package, run = job.file.agent, f"run-{token_hex(8)}"
    around, blobs = Surroundings(package), MemoryBlobs()
    path = job.journal if job.session is None else job.session.next
    tree = None if job.session is None else job.project.data_tree
    journals = MemoryJournals() if path is None else KeptJournals(run, path, tree)
    others_play = isinstance(tapes.others, Playing)
    ports = LivePorts()
    try:
        if not others_play:
            ports = around.ports(package, job.project, job.printed, job.write)
        runtime = Runtime.in_memory(
            journals=journals,
            content=blobs,
            providers=sealed_providers(package) if isinstance(tapes.models, Playing) else around.providers(package),
            executors=sealed_executors() if others_play else ports.executors,
            hooks=sealed_hooks(package) if others_play else ports.hooks,
            sinks=dict.fromkeys(SINK_KINDS, SEALED) if others_play else ports.sinks,
            programs=ports.programs,
            approver=SEALED if others_play else job.approver,
            wrappers=(*_on_tapes(tapes, job.approver if others_play else None), *job.wrappers),
            redactor=around.redactor,
        )
        request = Request(
            agent=package.name,
            package=job.file,
            message=job.message,
            params=dict(job.params),
            attachments=contents(blobs, job.attachments),
            run=run,
            seed=job.seed,
            session=_session(runtime, journals, job),
        )
        ended = await _ended(runtime, request, job)
    finally:
        await around.close()
        if isinstance(journals, KeptJournals):
            journals.close()
    return FinishedRun(
        ended=ended,
        journal=journals.records(run),
        children={each: journals.records(each) for each in journals.runs if each.startswith(f"{run}.")},
        redaction=Redaction(package.replay.redact, around.known),
    )


def _on_tapes(tapes: Tapes, approver: Approver | None) -> Iterator[Wrapper]:
    if tapes.models is not None:
        yield tape_models(tapes.models)
    if tapes.others is not None:
        yield tape_others(tapes.others, approver)
    elif isinstance(tapes.models, Playing):
        yield compare_answers(tapes.models)


def _session(runtime: Runtime, journals: MemoryJournals, job: Job) -> str | None:
    if job.session is not None:
        return _restored(runtime, journals, job.session.name, job.session.runs)
    if job.after:
        return _restored(runtime, journals, "conversation", [each.journal for each in job.after])
    return None


def _restored(runtime: Runtime, journals: MemoryJournals, name: str, runs: Iterable[Sequence[Record]]) -> str:
    """Give a runtime a session with runs that it had before, maybe in other processes."""
    session = runtime.sessions.create(name)
    for records in runs:
        started = records[0].fact
        assert isinstance(started, RunStarted), "a journal begins with it"
        journals.restore(started.run, tuple(records))
        session.runs.append(started.run)
        if started.input is not None:
            session.saw(words(started.input.parts))
    return name


async def _ended(runtime: Runtime, request: Request, job: Job) -> Outcome | Suspended:
    events = runtime.subscribe(EVERYTHING)
    watching = asyncio.create_task(_watch(events, job.watch))
    try:
        handle = runtime.start(request)
        job.hold(handle)
        return await waited(handle)
    finally:
        events.close()
        await watching


async def _watch(events: Subscription, watch: Callable[[Event], None]) -> None:
    async for event in events:
        watch(event)
