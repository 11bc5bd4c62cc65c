"""A run that crashes in this process, is continued, and must end as if nothing had happened.

Each step is a command of its own, with its own store: start, resume, answer, settle. A crash is an exception that
nothing catches; the memory of the process is dropped with the runtime, and the kernel's part, locks and open files, is
played by `StoreOperations.close_files`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from msgspec.structs import replace

from agentrun.core import facts
from agentrun.core.audit import find_divergence
from agentrun.core.evolve import fold
from agentrun.core.messages import Text
from agentrun.core.outcome import Question
from agentrun.engine.answers import open_questions, package_of_run
from agentrun.engine.clock import StepClock
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.errors import RequestError
from agentrun.journal.canonical import canonical
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.testing import replies
from agentrun.testing.doubles import Crash

from .shapes import ONCE, Shape, World, hooks
from .store_operations import CrashPoint, Operation, StoreOperations

RUN = "run-1"
MAX_COMMANDS = 30
HOUR_MS = 3_600_000


def crash() -> NoReturn:
    raise Crash


class CrashTrial:
    def __init__(self, shape: Shape, folder: Path) -> None:
        self._shape = shape
        self.project = Project(folder)
        self._clock = StepClock()
        self.world = World()
        self.operations: list[Operation] = []
        self._watched = [self.project.store_directory]

    def run(self, *points: CrashPoint) -> None:
        """Run to the end. The first life ends at the first point, the second at the second, and so on; a life that is
        shorter ends the run."""
        for point in (*points, None):
            with StoreOperations(self._watched, point, crash, syncs=False) as operations:
                try:
                    self._life()
                    return
                except Crash:
                    self._clock.move_to(self._clock.now() + HOUR_MS)
                finally:
                    self.operations = operations.seen
                    operations.close_files()

    def _life(self) -> None:
        """Commands, until the run is finished."""
        for _ in range(MAX_COMMANDS):
            with FileStore(self.project) as store:
                if RUN in store and self._decide(store):
                    continue
            with FileStore(self.project) as store:
                runtime = self._runtime(store)
                if RUN in store:
                    handle = runtime.resume(RUN, finished_ok=True)
                else:
                    agent = self._shape.package.agent.name
                    handle = runtime.start(Request(agent=agent, package=self._shape.package, message="Hi.", run=RUN))
                if (ending := self._clock.run(handle.wait())).is_finished:
                    assert ending.status == "completed", ending
                    return
        raise AssertionError(f"the run has not ended after {MAX_COMMANDS} commands")

    def _runtime(self, store: FileStore) -> Runtime:
        agent = self._shape.package.agent
        tools = {name for each in (agent, *agent.agents.values()) for name in each.tools} - agent.agents.keys()
        return Runtime.in_memory(
            journals=store,
            content=store.blobs(RUN),
            providers={"openai": replies(self._shape.model)},
            executors=dict.fromkeys(tools, self.world),
            hooks={hook.id: hooks()[hook.id] for hook in agent.hooks},
            sinks=dict.fromkeys(agent.sinks, self.world),
            clock=self._clock,
        )

    def _decide(self, store: FileStore) -> bool:
        """Do what a person does with a run that waits: approve, or look whether a lost call took effect. False: there
        is nothing to decide."""
        for run, records in read_all(store).items():
            state = fold(records)
            for question in () if state.stopped else self._questions(store, run):
                with _answered_before():
                    self._runtime(store).answer(run, question, "approved", by="a person")
                return True
            for call in (each for each in state.calls if each.status == "lost" and each.tool in ONCE):
                result = self.world.results.get((call.tool, _keys(records)[call.id]))
                with _answered_before():
                    if result is None:
                        self._runtime(store).settle(run, call.id, "retry", "a person")
                    else:
                        self._runtime(store).settle(run, call.id, "result", "a person", (Text(result),))
                return True
        return False

    def _questions(self, store: FileStore, run: str) -> tuple[Question, ...]:
        return open_questions(store, run)

    # --- checks ----------------------------------------------------------------------------------------------------

    def check(self, undisturbed: CrashTrial) -> None:
        """Raise AssertionError unless the run ended as the undisturbed one did."""
        with FileStore(self.project) as store:
            journals = read_all(store)
            assert not any(map(store.is_locked, store.runs())), "a lock is left"
            for run, records in journals.items():
                ends = [record.seq for record in records if isinstance(record.fact, facts.RunStopped)]
                assert ends == [len(records)], f"{run} has {len(records)} records and ends at {ends}"
                assert find_divergence(package_of_run(store, run), records) is None, f"{run} would decide differently"
        found, whole = journal_story(journals), undisturbed.story
        assert found == whole, "\n".join(unified_diff(whole.splitlines(), found.splitlines(), "whole", "crashed"))
        assert self.world.effects == undisturbed.world.effects, f"{undisturbed.world.effects} → {self.world.effects}"
        assert self.world.deliveries == undisturbed.world.deliveries

    @cached_property
    def story(self) -> str:
        return journal_story(read_all(FileStore(self.project)))


@contextmanager
def _answered_before() -> Iterator[None]:
    """The message of a process that died is taken first, and then the second answer is refused."""
    try:
        yield
    except RequestError as error:
        if error.code != "run.invalid_state":
            raise


def read_all(store: FileStore) -> dict[str, tuple[facts.Record, ...]]:
    """The checked journals of the runs that exist. Reading a journal checks its chain and its head."""
    return {run: store.records(run) for run in store.runs() if run in store}


def _keys(records: Sequence[facts.Record]) -> dict[str, str]:
    return {each.fact.call: each.fact.key for each in records if isinstance(each.fact, facts.ToolStarted)}


def journal_story(journals: dict[str, tuple[facts.Record, ...]]) -> str:
    """The canonical journal. A result that a person gave is like one of the tool, and the spend of a sub-agent is left
    out, because an interrupted request counts as spent."""
    plain = {run: [replace(each, fact=_plain(each.fact)) for each in records] for run, records in journals.items()}
    return canonical(plain.pop(min(plain, key=len)), plain)  # the id of a sub-agent is longer


def _plain(fact: facts.Fact) -> facts.Fact:
    match fact:
        case facts.ToolFinished():
            return replace(fact, spent=None)
        case facts.CallSettled(how="result"):
            return facts.ToolFinished(fact.call, fact.parts)
    return fact
