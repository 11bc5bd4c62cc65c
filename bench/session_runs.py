"""A long session: what the start of a run costs when many runs came before it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

RUNS, MEASURED = 200, 20
ANSWER = "An answer of about sixty characters, so that it has a size."


def last_to_first(folder: Path) -> float:
    """CPU of starting the last runs of a session, to that of the runs after the first ones."""
    times = start_times(folder)
    first, last = times[MEASURED : 2 * MEASURED], times[-MEASURED:]
    return min(last) / min(first)


def start_times(folder: Path) -> list[float]:
    from core_run import long_package

    from agentrun import Request, Runtime
    from agentrun.compiler.package_file import seal_package
    from agentrun.spec.project import Project
    from agentrun.store.files import FileStore
    from agentrun.testing import StepClock, scripted, stub

    times, clock, package = [], StepClock(), seal_package(long_package(folder))
    with TemporaryDirectory(dir=folder) as place:
        os.environ["XDG_STATE_HOME"] = f"{place}/state"
        with FileStore(Project(Path(place)), sync="process") as store:
            runtime = Runtime.in_memory(
                journals=store,
                clock=clock,
                providers={"openai": scripted(*[ANSWER] * RUNS)},
                executors={name: stub("") for name in package.agent.tools},
            )
            runtime.sessions.create("long")
            for number in range(RUNS):
                message = f"Question {number}, with a few words more."
                request = Request(agent=package.agent.name, package=package, message=message, session="long")
                begin = time.process_time()
                handle = runtime.start(request)
                times.append(time.process_time() - begin)
                clock.run(handle.wait())
    return times
