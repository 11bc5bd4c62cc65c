"""`make crash`: kill the processes of real runs at every operation of the store, and in the outside world.

    python -m tests.durability.crash [--seed N]

Each case is a run in a new folder: its process dies by SIGKILL, others continue it, and the end must be that of a run
that was not disturbed (`KilledRun.check`). A third of the cases die three times. Each bug of `planted_bugs.py` is a
case too: it is a violation if nothing finds it.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from os import cpu_count
from pathlib import Path
from random import Random

from agentrun.errors import AgentrunError

from .killed_agents import AGENTS
from .killed_run import Command, Death, Fault, KilledRun
from .outside_world import Effect, OutsideWorld
from .planted_bugs import BUGS, BUGS_IN_PROCESSES
from .series import Case, choose_seed, run_series
from .store_operations import CrashPoint, points_of

LEAST_CASES = 1000
TRIPLES = 45
"""Cases of each agent that die three times."""


class Undisturbed:
    """A run of an agent that nothing disturbed, and runs that are compared with it."""

    def __init__(self, agent: str, folder: Path, worlds: Sequence[OutsideWorld], planted: str = "") -> None:
        self._agent = agent
        self._folder = folder
        self._worlds = worlds
        self._planted = planted
        self._numbers = count()
        whole = KilledRun(agent, folder / agent, worlds[0])
        whole.run()
        self.command: Command = whole.commands[0]
        self._story = whole.story
        self._effects: Counter[Effect] = worlds[0].happened()
        self._recorded = whole.recorded

    def try_disturbances(self, disturbances: Sequence[Death | Fault], worker: int, store: Path | None = None) -> None:
        """Raise AssertionError if a run with these disturbances does not end like the undisturbed one."""
        self.finish(self.new_run(worker, store), disturbances)

    def new_run(self, worker: int, store: Path | None = None) -> KilledRun:
        folder = self._folder / f"{self._agent}-{next(self._numbers)}"
        return KilledRun(self._agent, folder, self._worlds[worker], self._planted, store)

    def finish(self, run: KilledRun, disturbances: Sequence[Death | Fault] = ()) -> None:
        """Run the rest of it, and compare it with the undisturbed one."""
        run.run(disturbances)
        run.check(self._story, self._effects)
        run.check_recording(self._recorded)
        shutil.rmtree(run.project.root)

    def deaths(self) -> list[Death]:
        """Every single death of the first process."""
        events = range(1, self.command.events + 1)
        return [*map(Death, points_of(self.command.operations)), *(Death(event=event) for event in events)]

    def cases(self, chance: Random) -> list[Case]:
        single = self.deaths()
        series: list[list[Death]] = [[death] for death in single]
        for _ in range(TRIPLES):
            series.append([chance.choice(single), self._random_death(chance), self._random_death(chance)])
        return [Case(self.name_of(deaths), partial(self.try_disturbances, deaths)) for deaths in series]

    def _random_death(self, chance: Random) -> Death:
        """A process that continues a run has fewer operations, so that not each of these happens."""
        number = chance.randint(1, len(self.command.operations))
        return Death(CrashPoint(number, chance.choice(("before", "after", "torn")), chance.randint(1, 200)))

    def name_of(self, deaths: Sequence[Death]) -> str:
        first = deaths[0].point
        about = f" ({self.command.operations[first.number - 1]})" if first else ""
        return f"{self._agent} {', '.join(map(str, deaths))}{about}"


def find_bug(name: str, folder: Path, worlds: list[OutsideWorld], chance: Random, worker: int = 0) -> None:
    """Raise AssertionError if a bug is in all processes and no run that is killed shows it."""
    bug, plant = BUGS[name], f"from tests.durability.planted_bugs import BUGS; BUGS[{name!r}].plant(setattr)"
    folder.mkdir()
    undisturbed = Undisturbed("batch", folder, worlds[worker:] + worlds[:worker], plant)
    deaths = [death for death in undisturbed.deaths() if re.search(bug.killed_at, undisturbed.name_of([death]))]
    chance.shuffle(deaths)
    found = []
    for death in deaths:
        try:
            undisturbed.try_disturbances([death], 0)
        except (AssertionError, AgentrunError) as error:
            found.append(f"{undisturbed.name_of([death])}: {error}")
            if re.search(bug.violation_in_processes, found[-1]):
                return
    raise AssertionError(f"the planted bug {name} is not found: {found}")


def main() -> int:
    seed = choose_seed()
    chance = Random(seed)  # noqa: S311  # reproducible, not secret
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crash-")))
        worlds = [stack.enter_context(OutsideWorld()) for _ in range(cpu_count() or 1)]
        cases = [case for agent in AGENTS for case in Undisturbed(agent, folder, worlds).cases(chance)]
        for bug in BUGS_IN_PROCESSES:
            cases.append(Case(f"planted {bug}", partial(find_bug, bug, folder / bug, worlds, Random(seed))))  # noqa: S311
        chance.shuffle(cases)
        return run_series("crash", cases, seed, least=LEAST_CASES)


if __name__ == "__main__":
    sys.exit(main())
