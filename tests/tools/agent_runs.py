"""Whole runs of an agent on disk, live against a scripted provider, recorded and replayed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar
from unittest.mock import patch

from agentrun.compiler.compile import compile_spec
from agentrun.compiler.package_file import PackageFile, seal_package
from agentrun.core.facts import Record
from agentrun.core.package import Package
from agentrun.engine.approvals import NoApprover
from agentrun.engine.ports import Approver, TransientEvent
from agentrun.engine.recording import CassetteRecording, RecordingResult, record_runs
from agentrun.engine.request import Request, new_run_id
from agentrun.engine.run import FinishedRun, run_in_world
from agentrun.engine.world import World
from agentrun.engine.worlds.live import live_world
from agentrun.spec.project import Project
from agentrun.spec.v1.cases import Case
from agentrun.testing.provider import ScriptedProvider

from ..replays import replay_package

T = TypeVar("T")

HEAD = """\
agentrun: "1"
name: desk
model: {provider: openai, name: gpt-4.1-mini, temperature: 0}
instructions: Be brief.
input: Where is it?
tools: {look: {kind: python, call: "desk:look", effect: read}}
policy: {default: allow}
budgets: {turns: 5, tokens: 20k}
"""
DESK = '''\
"""What an agent does."""
from pathlib import Path

HERE = Path(__file__).parent

def trace(text: str) -> None:
    with (HERE / "trace.txt").open("a") as file:
        file.write(text + "\\n")

def look(order: str) -> str:
    """Finds an order."""
    trace(f"look {order}")
    return f"order {order} is late"
'''
STORY = 'agentrun: "1"\nturns:\n  - calls: [{tool: look, args: {order: "7"}}]\n  - text: It is late.\n'


class Runs:
    """One agent. What its functions leave behind is in `traces`."""

    def __init__(self, root: Path, spec: str = "", desk: str = "", head: str = HEAD) -> None:
        self.root = root
        self.spec = root / "desk.yaml"
        self.spec.write_text(head + dedent(spec), encoding="utf-8")
        (root / "pyproject.toml").write_text("[tool.agentrun]\n", encoding="utf-8")
        (root / "desk.py").write_text(DESK + dedent(desk), encoding="utf-8")
        self.cassette = root / "cassette.yaml"
        self.printed: list[tuple[str, str]] = []
        self.written: list[str] = []
        self.news: list[Record | TransientEvent] = []

    @property
    def traces(self) -> list[str]:
        path = self.root / "trace.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def compiled(self) -> tuple[PackageFile, Project]:
        compiled = compile_spec(self.spec)
        assert compiled.package is not None, [problem.message for problem in compiled.errors]
        assert compiled.spec is not None
        return seal_package(compiled.package), compiled.spec.project

    @property
    def package(self) -> Package:
        return self.compiled()[0].agent

    def world(
        self, run: str, compiled: tuple[PackageFile, Project], approver: Approver | None = None
    ) -> AbstractAsyncContextManager[World]:
        file, project = compiled
        return live_world(
            file.agent,
            project,
            run,
            approver=approver or NoApprover(),
            printed=lambda name, text: self.printed.append((name, text)),
            write=self.written.append,
            listen=lambda run, news: self.news.append(news),
        )

    async def go_live(
        self, compiled: tuple[PackageFile, Project] | None = None, approver: Approver | None = None, **request: Any
    ) -> FinishedRun:
        """A run for real, by whatever provider the environment names."""
        compiled, run = compiled or self.compiled(), new_run_id()
        async with self.world(run, compiled, approver) as world:
            return await run_in_world(world, request_of(compiled[0], run=run, **request))

    def live(self, story: str = STORY, **changes: Any) -> FinishedRun:
        return self._asked(story, lambda: asyncio.run(self.go_live(**changes)))

    def record(
        self,
        story: str = STORY,
        *,
        compiled: tuple[PackageFile, Project] | None = None,
        approver: Approver | None = None,
        **request: Any,
    ) -> FinishedRun:
        found = compiled or self.compiled()
        recording = CassetteRecording(found[1], self.cassette, found[1].root / "desk.yaml", Case(name="default"))
        requests = [request_of(found[0], **request)]

        def work() -> RecordingResult:
            by = approver or NoApprover()
            return asyncio.run(
                record_runs(recording, lambda run: self.world(run, found, approver), found[0], requests, by)
            )

        recorded = self._asked(story, work)
        assert recorded.refusal is None
        return recorded.run

    def replay(self) -> FinishedRun:
        """Nothing but the cassette: whatever is done for real now would be seen in `traces`."""
        file, _ = self.compiled()
        return replay_package(file.agent, self.cassette)

    def recorded_and_replayed(self, story: str = STORY, **changes: Any) -> FinishedRun:
        """A run for real. Its replay is the same run, and does nothing."""
        done = self.record(story, **changes)
        seen = self.traces, list(self.printed), list(self.written), self.files()
        again = self.replay()
        assert again.canonical() == done.canonical()
        assert again.unused_error is None
        assert (self.traces, self.printed, self.written, self.files()) == seen
        return done

    def files(self) -> dict[str, bytes]:
        """All files of the project but those of Python's own."""
        found = (path for path in sorted(self.root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}

    def _asked(self, story: str, work: Callable[[], T]) -> T:
        with ScriptedProvider(story) as server:
            environment = {"OPENAI_API_KEY": "not-a-real-key", "OPENAI_BASE_URL": f"{server.url}/v1"}
            with patch.dict(os.environ, environment):
                return work()


def request_of(file: PackageFile, **changes: Any) -> Request:
    return Request(agent=file.agent.name, package=file, **changes)


def facts(done: FinishedRun, kind: type[T]) -> list[T]:
    records: tuple[Record, ...] = done.journal
    return [record.fact for record in records if isinstance(record.fact, kind)]
