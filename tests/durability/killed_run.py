"""A run of the real command, whose processes are killed, and which must end as if nothing had happened.

Each command is a process of its own: `agentrun SPEC`, `agentrun resume`, `agentrun settle`. A person decides from what
the outside world says: a call that took effect gets its result, any other one is started again.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple

from agentrun.cassette.file import load_cassette
from agentrun.core import facts
from agentrun.core.audit import find_divergence
from agentrun.core.evolve import fold
from agentrun.engine.answers import package_of_run
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.store.run_ids import root_run
from agentrun.store.run_recording import RECORDING_NAME

from ..cli import forked_command
from .crash_trial import journal_story, read_all
from .dying_command import failing_program, inject, program
from .killed_agents import write_agents
from .outside_world import Effect, OutsideWorld
from .recorded_trial import contents
from .store_operations import CrashPoint, Operation

MAX_COMMANDS = 30
SECONDS = 60.0
KILLED = -9
WAITS = 8
REFUSED = 2
FAILED = 7
"""The store cannot be written or read."""


class Death(NamedTuple):
    """When a process dies: at an operation of the store, or at an event of the outside world."""

    point: CrashPoint | None = None
    event: int = 0

    def __str__(self) -> str:
        return str(self.point) if self.point else f"event {self.event}"


class Fault(NamedTuple):
    """What goes wrong in a process that goes on, or is killed by strace."""

    inject: str = ""
    """For `strace -e inject`."""
    prelude: str = ""
    """Python that runs before the command."""
    output: str = ""
    """A file for what the command prints."""
    repair: Callable[[], None] | None = None
    """Called after the command."""
    event: int = 0
    """An event of the outside world, and what happens then."""
    action: Callable[[Effect | None], bool] = lambda effect: False
    codes: tuple[int, ...] = (0, FAILED, WAITS)
    """The exit codes that the command may have."""

    def __str__(self) -> str:
        return self.inject or self.prelude or self.output


class Command(NamedTuple):
    """A command that was not killed, and what it did."""

    words: str
    operations: list[Operation]
    events: int


class KilledRun:
    def __init__(
        self,
        agent: str,
        folder: Path,
        world: OutsideWorld,
        planted: str = "",
        store: Path | None = None,
    ) -> None:
        """`planted`: Python that puts a bug into each process. `store`: another directory for the store."""
        self._environment = {} if store is None else {"AGENTRUN_STORE": str(store)}
        self.start_command = [f"{agent}.yaml", "--mode", "live", "--approve", "all"]
        if agent == "record":
            self.start_command = [f"{agent}.yaml", "--mode", "record", "--yes", "--approve", "all"]
        self._world = world
        self._planted = planted
        self.project = Project(folder) if store is None else Project(folder, store=str(store))
        self.commands: list[Command] = []
        self.events = 0
        """Events of the outside world during the last command."""
        self._earlier: set[str] = set()
        folder.mkdir()
        write_agents(folder, world.url)
        world.reset(folder / "notes.txt")
        if agent == "session":
            self.start_command += ["--session", "ada", "--create"]
            code, text = self.execute(self.start_command, None)
            assert code == 0, text
            self._earlier.update(self._journals())
            self.commands.clear()

    def run(self, disturbances: Sequence[Death | Fault | None] = ()) -> None:
        """Run commands until the run is finished: the first with the first disturbance, the second with the second,
        and so on. Raises AssertionError if one ends in another way."""
        settled: list[list[str]] = []
        for number in range(MAX_COMMANDS):
            disturbance = disturbances[number] if number < len(disturbances) else None
            words, is_last = self._next_command()
            code, text = self.execute(words, disturbance)
            expected = {0} if is_last else {0, WAITS}
            if words[:3] in settled and "run.invalid_state" in text:
                expected.add(REFUSED)  # the message of the process that died was taken first
            settled += [words[:3]] if words[0] == "settle" else []
            if isinstance(disturbance, Fault):
                expected.update(disturbance.codes)
            elif disturbance is not None:
                expected.add(KILLED)
            assert code in expected, f"{' '.join(words)}: exit {code}\n{text}"
            if isinstance(disturbance, Fault) and disturbance.repair is not None:
                disturbance.repair()
            if is_last and code == 0:
                return
        raise AssertionError(f"the run has not ended after {MAX_COMMANDS} commands")

    def _next_command(self) -> tuple[list[str], bool]:
        """A command, and whether it only prints the outcome of a finished run."""
        journals = self._journals()
        if not journals:
            return self.start_command, False
        (root,) = {root_run(run) for run in journals}
        for run, records in journals.items():
            state = fold(records)
            if run == root and state.stopped:
                return ["resume", root], True
            for call in (each for each in state.calls if each.status == "lost" and each.tool in RESULTS):
                effect = Effect(call.tool, str((call.all_arguments or {})["q"]))
                done = (
                    ["--result", RESULTS[call.tool] % effect.about] if self._world.happened()[effect] else ["--retry"]
                )
                return ["settle", run, call.id, *done, "--no-resume"], False
        return ["resume", root, "--approve", "all"], False

    def execute(self, words: list[str], disturbance: Death | Fault | None) -> tuple[int, str]:
        """Run a command. Return its exit code and the end of what it printed."""
        fault = disturbance if isinstance(disturbance, Fault) else Fault()
        folder, listing = self.project.root, self.project.root / "operations.json"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "OPENAI_API_KEY": "sk-not-real",
            "OPENAI_BASE_URL": f"{self._world.url}/v1",
            **self._environment,
        }
        text = failing_program(fault.prelude, stops=bool(fault.inject))
        if fault == Fault():
            watched = [self.project.store_directory, self.project.cassette_directory, folder / ".local"]
            point = disturbance.point if isinstance(disturbance, Death) else None
            text = program(watched, point, listing, self._planted)
        output_path = Path(fault.output) if fault.output else folder / "output.txt"
        with open(os.devnull, "rb") as null, output_path.open("wb") as output:
            streams = [null.fileno(), output.fileno(), output.fileno()]
            pids: list[int] = []
            if isinstance(disturbance, Death):
                self._world.disturb(disturbance.event, lambda effect: _kill(pids))
            else:
                self._world.disturb(fault.event, fault.action)
            process = forked_command.Copy(words, folder, environment, streams, program=text)
            pids.append(process.pid)
            with inject(process.pid, fault.inject, self.trace) if fault.inject else nullcontext():
                code = process.wait(SECONDS)
        self._world.wait_until_quiet()
        self.events = self._world.events
        if code != KILLED and fault == Fault():
            operations = [Operation(*each) for each in json.loads(listing.read_text(encoding="utf-8"))]
            self.commands.append(Command(" ".join(words), operations, self.events))
        return code, "" if fault.output else output_path.read_text(encoding="utf-8")[-2000:]

    @property
    def trace(self) -> Path:
        """What strace saw of the process that it disturbed."""
        return self.project.root / "trace.txt"

    # --- checks ----------------------------------------------------------------------------------------------------

    def check(self, whole: str, effects: Counter[Effect]) -> None:
        """Raise AssertionError unless the run ended like one with this story and these effects."""
        self.check_integrity()
        assert self._world.happened() == effects, f"{effects} → {self._world.happened()}"
        for run, records in self._journals().items():
            ends = [record.seq for record in records if isinstance(record.fact, facts.RunStopped)]
            assert ends == [len(records)], f"{run} has {len(records)} records and ends at {ends}"
        story = self.story
        assert story == whole, "\n".join(unified_diff(whole.splitlines(), story.splitlines(), "whole", "killed"))

    @property
    def recorded(self) -> Counter[tuple[Any, ...]]:
        """What is on the cassette, without the address of the world. Empty if the run is not recorded."""
        cassettes = [*self.project.cassette_directory.rglob("*.yaml")]
        found = contents(load_cassette(cassettes[0])) if cassettes else Counter[tuple[Any, ...]]()
        url = self._world.url
        return Counter(
            tuple(part.replace(url, "") if isinstance(part, str) else part for part in each)
            for each in found.elements()
        )

    def check_recording(self, whole: Counter[tuple[Any, ...]]) -> None:
        """Raise AssertionError unless the cassette has what the undisturbed one has, and nothing else is left."""
        recorded = self.recorded
        assert recorded == whole, f"only recorded: {recorded - whole}, only in the whole: {whole - recorded}"
        with FileStore(self.project) as store:  # a process that dies before the first record leaves an empty log
            left = [run for run in self._journals() if (store.run_directory(run) / RECORDING_NAME).exists()]
        assert left == [], f"the logs of {left} are left"
        assert len([*self.project.cassette_directory.rglob("*.*")]) == bool(whole)

    def check_integrity(self) -> None:
        """Raise AssertionError if something happened twice, a journal is damaged, or a lock is left."""
        assert max(self._world.happened().values(), default=1) == 1, self._world.happened()
        assert max(self._world.keys().values(), default=1) == 1, self._world.keys()
        with FileStore(self.project) as store:
            for run, records in self._journals().items():
                assert find_divergence(package_of_run(store, run), records) is None, f"{run} would decide differently"
        for path in self.project.store_directory.rglob("*lock"):
            if path.is_file():
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @property
    def story(self) -> str:
        return journal_story(self._journals())

    def _journals(self) -> dict[str, tuple[facts.Record, ...]]:
        found = read_all(FileStore(self.project))
        return {run: records for run, records in found.items() if run not in self._earlier}


def _kill(processes: list[int]) -> bool:
    os.kill(processes[0], signal.SIGKILL)
    return True


RESULTS = {"pay": '{"done": "%s"}', "note": "noted %s"}
"""The tools that may run at most once, and what the model reads of a call."""
