"""A run of the real command, whose processes are killed, and which must end as if nothing had happened.

Each command is a process of its own: `agentrun SPEC`, `agentrun resume`, `agentrun settle`. A person decides from what
the outside world says: a call that took effect gets its result, any other one is started again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

from agentrun.core import facts
from agentrun.core.audit import find_divergence
from agentrun.core.evolve import fold
from agentrun.engine.answers import package_of_run
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.store.run_ids import root_run

from ..cli import forked_command
from .crash_trial import journal_story, read_all
from .dying_command import program
from .killed_agents import write_agents
from .outside_world import Effect, OutsideWorld
from .store_operations import CrashPoint, Operation

MAX_COMMANDS = 30
SECONDS = 60.0
KILLED = -9
WAITS = 8
IDEMPOTENT = ("set",)


class Death(NamedTuple):
    """When a process dies: at an operation of the store, or at an event of the outside world."""

    point: CrashPoint | None = None
    event: int = 0

    def __str__(self) -> str:
        return str(self.point) if self.point else f"event {self.event}"


class Command(NamedTuple):
    """A command that was not killed, and what it did."""

    words: str
    operations: list[Operation]
    events: int


class KilledRun:
    def __init__(self, agent: str, folder: Path, world: OutsideWorld, planted: str = "") -> None:
        """`planted`: Python that puts a bug into each process."""
        self._start = [f"{agent}.yaml", "--mode", "live", "--approve", "all"]
        self._world = world
        self._planted = planted
        self.project = Project(folder)
        self.commands: list[Command] = []
        self._earlier: set[str] = set()
        folder.mkdir()
        write_agents(folder, world.url)
        world.reset(folder / "notes.txt")
        if agent == "session":
            self._start += ["--session", "ada"]
            code, text = self._execute(self._start, None)
            assert code == 0, text
            self._earlier.update(self._journals())
            self.commands.clear()

    def run(self, deaths: Sequence[Death | None] = ()) -> None:
        """Run commands until the run is finished: the first with the first death, the second with the second, and so
        on. Raises AssertionError if one ends in another way."""
        for number in range(MAX_COMMANDS):
            death = deaths[number] if number < len(deaths) else None
            words, is_last = self._next_command()
            code, text = self._execute(words, death)
            expected = {*([KILLED] if death else []), 0, *([] if is_last else [WAITS])}
            assert code in expected, f"{' '.join(words)}: exit {code}\n{text}"
            if is_last and code == 0:
                return
        raise AssertionError(f"the run has not ended after {MAX_COMMANDS} commands")

    def _next_command(self) -> tuple[list[str], bool]:
        """A command, and whether it only prints the outcome of a finished run."""
        journals = self._journals()
        if not journals:
            return self._start, False
        (root,) = {root_run(run) for run in journals}
        for run, records in journals.items():
            state = fold(records)
            if run == root and state.stopped:
                return ["resume", root], True
            for call in (each for each in state.calls if each.status == "lost"):
                effect = Effect(call.tool, str((call.all_arguments or {})["q"]))
                done = (
                    ["--result", RESULTS[call.tool] % effect.about] if self._world.happened()[effect] else ["--retry"]
                )
                return ["settle", run, call.id, *done, "--no-resume"], False
        return ["resume", root, "--approve", "all"], False

    def _execute(self, words: list[str], death: Death | None) -> tuple[int, str]:
        folder, listing = self.project.root, self.project.root / "operations.json"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "OPENAI_API_KEY": "sk-not-real",
            "OPENAI_BASE_URL": f"{self._world.url}/v1",
        }
        watched = [self.project.store_directory, folder / ".local"]
        code_text = program(watched, death.point if death else None, listing, self._planted)
        with open(os.devnull, "rb") as null, (folder / "output.txt").open("wb") as output:
            streams = [null.fileno(), output.fileno(), output.fileno()]
            pids: list[int] = []
            self._world.kill(death.event if death else 0, lambda: pids[0])
            process = forked_command.Copy(words, folder, environment, streams, program=code_text)
            pids.append(process.pid)
            code = process.wait(SECONDS)
        self._world.wait_until_quiet()
        if code != KILLED:
            operations = [Operation(*each) for each in json.loads(listing.read_text(encoding="utf-8"))]
            self.commands.append(Command(" ".join(words), operations, self._world.events))
        return code, (folder / "output.txt").read_text(encoding="utf-8")[-2000:]

    # --- checks ----------------------------------------------------------------------------------------------------

    def check(self, whole: str, effects: Counter[Effect]) -> None:
        """Raise AssertionError unless the run ended like one with this story and these effects."""
        assert self._world.happened() == effects, f"{effects} → {self._world.happened()}"
        assert max(self._world.keys().values(), default=1) == 1, self._world.keys()
        with FileStore(self.project) as store:
            for run, records in self._journals().items():
                ends = [record.seq for record in records if isinstance(record.fact, facts.RunStopped)]
                assert ends == [len(records)], f"{run} has {len(records)} records and ends at {ends}"
                assert find_divergence(package_of_run(store, run), records) is None, f"{run} would decide differently"
        for path in self.project.store_directory.rglob("*lock"):
            if path.is_file():
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        story = self.story
        assert story == whole, "\n".join(unified_diff(whole.splitlines(), story.splitlines(), "whole", "killed"))

    @property
    def story(self) -> str:
        return journal_story(self._journals())

    def _journals(self) -> dict[str, tuple[facts.Record, ...]]:
        found = read_all(FileStore(self.project))
        return {run: records for run, records in found.items() if run not in self._earlier}


RESULTS = {"pay": '{"done": "%s"}', "note": "noted %s"}
"""What the model reads of each call that may be lost."""
