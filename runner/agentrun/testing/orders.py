"""The law of order: whichever of several effects is done first, the run ends the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import unified_diff
from random import Random

from agentrun.compiler.fingerprint import PackageFile
from agentrun.core.evolve import fold
from agentrun.core.state import State
from agentrun.engine.api import AnyPackage, package_of
from agentrun.engine.clock import StepClock
from agentrun.engine.memory import MemoryJournals
from agentrun.testing.setting import RUN, MakeSetting, begun, ended, runtime_in, story

MOST = 10_000
"""Orders that are tried when all are wanted."""


def any_order(
    package: AnyPackage,
    setting: MakeSetting,
    *,
    seeds: int = 200,
    every: bool = False,
    width: int = 8,
) -> int:
    """Any order in which effects are done gives one end state and one canonical journal.

    `seeds` random orders are tried, or with `every` all that there are. A batch with a terminal tool, or with one that
    aborts its siblings, is the exception: there it matters who is first.

        laws.any_order(package, setting, every=True)
    """
    file = package_of(package)
    first_story, first_state = _run(file, setting, _planned([]), width)
    tried = 0
    for choices in _all() if every else map(_random, range(seeds)):
        told, state = _run(file, setting, choices, width)
        tried += 1
        if told != first_story:
            raise AssertionError(f"{choices}: another journal\n" + _difference(first_story, told))
        if state != first_state:
            raise AssertionError(f"{choices}: the same journal, another state\n{first_state}\n{state}")
    return tried


class _Choices:
    """An order: which of those that could go on did, each time."""

    def __init__(self, choose: Callable[[int, int], int]) -> None:
        self._choose = choose
        """Given how many choices were made before, and of how many this one is."""
        self.made: list[tuple[int, int]] = []
        """Each choice, and of how many."""
        self._names: list[str] = []

    def __call__(self, ready: Sequence[str]) -> int:
        choice = self._choose(len(self.made), len(ready))
        self.made.append((choice, len(ready)))
        self._names.append(ready[choice])
        return choice

    def __str__(self) -> str:
        return "in the order " + ", ".join(self._names)


def _planned(plan: Sequence[int]) -> _Choices:
    """A plan, and after it always the first."""
    return _Choices(lambda number, among: plan[number] if number < len(plan) else 0)


def _random(seed: int) -> _Choices:
    chance = Random(seed)  # noqa: S311  # to be repeated, not to be secret
    return _Choices(lambda number, among: chance.randrange(among))


def _all() -> Iterator[_Choices]:
    """All orders, one after the other: the last choice that could have been another is made anew."""
    choices = _planned([])
    for _ in range(MOST):
        yield choices  # the caller tries it, and with that learns what there was to choose from
        while choices.made and choices.made[-1][0] + 1 == choices.made[-1][1]:
            choices.made.pop()
        if not choices.made:
            return
        *before, (last, _) = choices.made
        choices = _planned([*(choice for choice, _ in before), last + 1])
    raise AssertionError(f"there are more than {MOST} orders: try random ones")


def _run(file: PackageFile, setting: MakeSetting, order: _Choices, width: int) -> tuple[str, State]:
    clock, journals = StepClock(), MemoryJournals()
    world = setting(clock)
    runtime = runtime_in(file, world, clock, journals, width, order)
    ended(runtime, begun(runtime, file, world), clock, "retry", "approved")
    return story(journals), fold(journals.records(RUN))


def _difference(one: str, other: str) -> str:
    return "\n".join(unified_diff(one.splitlines(), other.splitlines(), "first order", "this order", lineterm=""))
