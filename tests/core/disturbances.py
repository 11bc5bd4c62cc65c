"""Disturbances of a run (cancel, message, crash, ...), injected after any record of any run shape."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from agentrun.core.facts import CancelRequested, MessageQueued, RunStopped, TimePassed
from agentrun.core.fault import Fault
from agentrun.core.messages import user_message
from agentrun.core.transitions import is_acceptable

from .script import Run, RunWaits
from .shapes import SHAPES

Disturbance = Callable[[Run], None]


def cancel(run: Run) -> None:
    run.add(CancelRequested("somebody"))


def message(run: Run) -> None:
    fact = MessageQueued("q9", user_message("One more thing."))
    if is_acceptable(run.state, fact):
        run.add(fact)


def time_passes(run: Run) -> None:
    run.add(TimePassed())


def host_stops(run: Run) -> None:
    run.add(RunStopped("failed", fault=Fault("internal", "a bug in the runtime", {"error": "KeyError"})))


def crash(run: Run) -> None:
    run.crash()


def other_package(run: Run) -> None:
    run.crash(run.agent)


DISTURBANCES: dict[str, Disturbance] = {
    each.__name__: each for each in (cancel, message, time_passes, host_stops, crash, other_package)
}


def length(name: str) -> int:
    """How many records a shape has when nothing comes between."""
    run = SHAPES[name]()
    run.finish()
    return len(run.records)


def disturbed(name: str, at: int, what: Disturbance) -> Run:
    """A run that is taken as far as it goes, with something that came between."""
    run = SHAPES[name]()
    own = run.disturb.get(at)

    def both(run: Run) -> None:
        if own is not None:
            own(run)
        what(run)

    run.disturb[at] = both
    run.answers += [run.answers[-1]] * 3 if run.answers else []
    with suppress(RunWaits):
        run.finish()
    return run


def everywhere(name: str, what: Disturbance) -> Iterator[Run]:
    """A shape, disturbed after each of its records."""
    for at in range(1, length(name)):
        yield disturbed(name, at, what)
