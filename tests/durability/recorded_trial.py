"""A recording that crashes in this process and is continued: its run ends as if nothing had happened, and so does its
cassette."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentrun.cassette.file import load_cassette
from agentrun.cassette.interactions import Cassette
from agentrun.cassette.player import Player
from agentrun.engine import world as engine_world
from agentrun.engine.approvals import PresetApprover
from agentrun.engine.crew_registry import CrewRegistry
from agentrun.engine.models import HttpProvider
from agentrun.engine.recording import CassetteRecording, RecordingResult, load_recording, record_runs, resume_recording
from agentrun.engine.request import Request
from agentrun.engine.run import replay_run
from agentrun.engine.worlds import hosted_world
from agentrun.providers.codec import codec_for
from agentrun.spec.v1.cases import Case
from agentrun.store.files import FileStore
from agentrun.store.run_recording import RECORDING_NAME
from agentrun.wire import HttpCall, HttpReply

from ..scripted_service import completion
from .crash_trial import MAX_COMMANDS, RUN, CrashTrial
from .shapes import BATCH, Shape

APPROVER = PresetApprover({"*": "approved"}, "a person")


class Service:
    """The model of the shape `batch` over HTTP."""

    async def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> HttpReply:
        if any(each["role"] == "assistant" for each in json.loads(call.body)["messages"]):
            return completion("Done.")
        calls = [
            {"id": f"call_{n}", "type": "function", "function": {"name": each.tool, "arguments": each.arguments}}
            for n, each in enumerate(BATCH)
        ]
        return completion(None, "tool_calls", tool_calls=calls)


class RecordedTrial(CrashTrial):
    def __init__(self, shape: Shape, folder: Path) -> None:
        super().__init__(shape, folder)
        self.cassette = self.project.cassette_directory / "a" / "default.yaml"
        self._watched.append(self.project.cassette_directory)

    def _life(self) -> None:
        for _ in range(MAX_COMMANDS):
            with FileStore(self.project) as store:
                if self._decide(store):
                    continue
            with FileStore(self.project) as store:
                recorded = self._clock.run(self._record(store))
            assert recorded is None or recorded.run.save_error is None
            if recorded is None or recorded.run.ending.is_finished:
                return
        raise AssertionError(f"the run has not ended after {MAX_COMMANDS} commands")

    async def _record(self, store: FileStore) -> RecordingResult | None:
        """None: there is nothing left to do."""
        package = self._shape.package

        @asynccontextmanager
        async def open_world(run: str) -> AsyncIterator[engine_world.World]:
            yield hosted_world(
                (),
                run=run,
                clock=self._clock,
                journals=store,
                blobs=store.blobs(run),
                crews=CrewRegistry(self._clock),
                providers={"openai": HttpProvider(codec_for("openai"), Service())},
                executors=dict.fromkeys(package.agent.tools, self.world),
                approver=APPROVER,
            )

        begun = [run for run in store.root_runs() if run in store]
        if not begun:
            spec, case = self.project.root / "a.yaml", Case(name="default")
            recording = CassetteRecording(self.project, self.cassette, spec, case)
            request = Request(agent=package.agent.name, package=package, message="Hi.", run=RUN)
            return await record_runs(recording, open_world, package, [request], APPROVER, store=store)
        found = load_recording(store, begun[0], package)
        if found is None:
            return None
        async with open_world(begun[0]) as world:
            return await resume_recording(found, world, package, APPROVER, store=store)

    def _questions(self, store: FileStore, run: str) -> tuple[()]:
        return ()  # the approver answers them again

    def check(self, undisturbed: CrashTrial) -> None:
        super().check(undisturbed)
        assert isinstance(undisturbed, RecordedTrial)
        recorded, whole = contents(load_cassette(self.cassette)), contents(load_cassette(undisturbed.cassette))
        assert recorded == whole, f"only recorded: {recorded - whole}, only in the whole: {whole - recorded}"
        assert [path.name for path in self.cassette.parent.iterdir()] == [self.cassette.name]
        assert [*self.project.store_directory.rglob(RECORDING_NAME)] == []
        replayed = replay_run(
            Request(agent=self._shape.package.agent.name, package=self._shape.package, message="Hi."),
            Player(load_cassette(self.cassette)),
        )
        assert (replayed.exit_code, replayed.unused_error) == (0, None)


def contents(cassette: Cassette) -> Counter[tuple[Any, ...]]:
    """What is on a cassette, without times and order: parallel calls may end in another order after a crash."""
    return Counter(
        (each.path, each.request.method, each.request.url, each.compact_body(), each.reply.body, each.failure is None)
        for each in cassette.interactions
    )
