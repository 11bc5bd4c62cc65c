"""Whole runs in this process: a project on disk, a provider on a real socket, recorded and then replayed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar
from unittest.mock import patch

from agentrun.compiler.compile import compile_spec
from agentrun.compiler.fingerprint import PackageFile, sealed
from agentrun.core.facts import Record
from agentrun.core.package import Package
from agentrun.engine.assemble import FinishedRun, replay_run
from agentrun.engine.bus import Event
from agentrun.engine.real_time import Job, live_run
from agentrun.engine.recording import Target, record_run
from agentrun.spec.project import Project
from agentrun.testing.provider import ScriptedProvider

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
        self.tape = root / "tape.yaml"
        self.printed: list[tuple[str, str]] = []
        self.written: list[str] = []
        self.events: list[Event] = []

    @property
    def traces(self) -> list[str]:
        path = self.root / "trace.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def compiled(self) -> tuple[PackageFile, Project]:
        compiled = compile_spec(self.spec)
        assert compiled.package is not None, [problem.message for problem in compiled.errors]
        assert compiled.spec is not None
        return sealed(compiled.package), compiled.spec.project

    @property
    def package(self) -> Package:
        return self.compiled()[0].agent

    def job(self, **changes: Any) -> Job:
        file, project = changes.pop("compiled", None) or self.compiled()
        given = {"printed": lambda name, text: self.printed.append((name, text)), "write": self.written.append}
        return Job(file=file, project=project, watch=self.events.append, **{**given, **changes})

    def live(self, story: str = STORY, **changes: Any) -> FinishedRun:
        job = self.job(**changes)
        return self._asked(story, lambda: asyncio.run(live_run(job)))

    def record(self, story: str = STORY, **changes: Any) -> FinishedRun:
        job = self.job(**changes)
        target = Target(project=job.project, path=self.tape, about={"spec": "desk.yaml", "case": "default"})
        recorded = self._asked(story, lambda: asyncio.run(record_run(job, target)))
        assert recorded.refused is None
        return recorded.run

    def replay(self) -> FinishedRun:
        """Nothing but the tape: whatever is done for real now would be seen in `traces`."""
        file, _ = self.compiled()
        return replay_run(file.agent, fingerprint=file.fingerprint, message=None, params={}, cassette=self.tape)

    def recorded_and_replayed(self, story: str = STORY, **changes: Any) -> FinishedRun:
        """A run for real. Its replay is the same run, and does nothing."""
        done = self.record(story, **changes)
        seen = self.traces, list(self.printed), list(self.written), self.files()
        again = self.replay()
        assert again.canonical() == done.canonical()
        assert again.unused is None
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


def facts(done: FinishedRun, kind: type[T]) -> list[T]:
    records: tuple[Record, ...] = done.journal
    return [record.fact for record in records if isinstance(record.fact, kind)]
