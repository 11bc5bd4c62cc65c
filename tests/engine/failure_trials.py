"""Runs with a failure injected at one port call, and the invariants that every such run is checked for."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from agentrun.compiler.package_file import seal_package
from agentrun.core.evolve import fold
from agentrun.core.facts import RunStopped
from agentrun.core.outcome import Outcome, outcome_of
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.handle import RunHandle
from agentrun.engine.host_ports import providers_by_name
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.testing.laws import RUN_ID, finish_run

from .failing_ports import (
    HOWS,
    CountingApprover,
    CountingBlobs,
    CountingBus,
    CountingClock,
    CountingExecutor,
    CountingProvider,
    CountingSink,
    Halt,
    Point,
    PortReports,
    counting_hook,
)
from .run_shapes import Shape, pictures


class Trial:
    """One run of a shape with a failure at one point."""

    def __init__(self, shape: Shape, point: Point | None, real: SystemClock | None = None) -> None:
        self.ports = PortReports(point)
        self.clock = CountingClock(self.ports)
        clock = real or self.clock
        self.file = seal_package(shape.agent)
        self.handle: RunHandle | None = None
        self.result: Outcome | None = None
        self.error: BaseException | None = None
        self.resumed = False
        self.left: set[Any] = set()
        """Tasks that were still there when the run was over."""
        setting = shape.setting(clock, self._cancel)
        blobs = CountingBlobs(self.ports)
        self.request = Request(
            agent=shape.agent.name,
            package=self.file,
            message=setting.message,
            run=RUN_ID,
            attachments=pictures(super(CountingBlobs, blobs).put, shape),
        )
        models = providers_by_name(shape.agent, setting.model)
        self.runtime = Runtime.in_memory(
            journals=self.ports.journals,
            clock=clock,
            events=CountingBus(self.ports),
            content=blobs,
            providers={name: CountingProvider(self.ports, model) for name, model in models.items()},
            executors={name: CountingExecutor(self.ports, tool) for name, tool in setting.tools.items()},
            hooks={name: counting_hook(self.ports, hook) for name, hook in setting.hooks.items()},
            sinks={name: CountingSink(self.ports, sink) for name, sink in setting.sinks.items()},
            approver=CountingApprover(self.ports, setting.approver) if setting.approver else None,
        )

    def _cancel(self) -> None:
        assert self.handle is not None
        self.handle.cancel("ada")

    def live(self) -> "Trial":
        def begun() -> Outcome:
            self.handle = self.runtime.start(self.request)
            return self.clock.run(self.handle.wait())

        return self._heard(begun)

    def live_in_a_loop(self) -> "Trial":
        """The same in real time. Nothing may be left in the loop."""

        async def begun() -> Outcome:
            try:
                self.handle = self.runtime.start(self.request)
                return await self.handle.wait()
            finally:
                self.left = asyncio.all_tasks() - {asyncio.current_task()}

        return self._heard(lambda: asyncio.run(begun()))

    def resume(self, point: Point | None = None) -> "Trial":
        """Go on with the run after a failure, and perhaps into the next one."""
        self.ports.arm(point)
        self.resumed = True

        def resumed() -> Outcome:
            self.handle = self.runtime.resume(RUN_ID)
            return finish_run(self.runtime, self.handle, self.clock, "retry", "approved")

        return self._heard(resumed)

    def _heard(self, work: Callable[[], Outcome]) -> "Trial":
        self.handle = self.result = self.error = None
        try:
            self.result = work()
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is looked at
            self.error = error
        return self

    def ends(self) -> dict[str, list[int]]:
        """For each run, how far from its end its terminal records are."""
        return {
            run: [len(records) - record.seq for record in records if isinstance(record.fact, RunStopped)]
            for run, records in self.ports.journals.kept().items()
        }


def points(trial: Trial) -> Iterator[Point]:
    """Every call of every port that there was in a trial that nothing disturbed."""
    for port, count in sorted(trial.ports.since.items()):
        yield from (Point(port, number, how) for number in range(1, count + 1) for how in HOWS)


def check_trial(trial: Trial) -> None:
    try:
        look(trial)
    except AssertionError as error:
        error.add_note(f"{trial.ports.point}: {trial.error!r} {trial.result!r} {trial.ends()}")
        raise


def look(trial: Trial) -> None:
    """Whatever happened, this holds. A run that is not over and can go on, does."""
    assert trial.ports.wrong == [], trial.ports.wrong
    assert +trial.ports.active == {}, "nothing is left running"
    ends = trial.ends()
    if trial.error is not None and not ends.get(RUN_ID):
        point = trial.ports.point
        assert trial.handle is None or trial.resumed or (point and point.fails_journal), "it was to be ended"
        if RUN_ID not in ends:
            return  # never accepted: it left nothing
        look(trial.resume())
        return
    assert ends.pop(RUN_ID) == [0], "one terminal record"
    least = 0 if trial.resumed or trial.ports.strikes_twice else 1
    assert all(each == [0][: len(each)] and len(each) >= least for each in ends.values()), "one for each child too"
    if trial.error is None:
        assert trial.result == outcome_of(fold(trial.ports.journals.kept()[RUN_ID]))
    else:
        assert isinstance(trial.error, Halt)
