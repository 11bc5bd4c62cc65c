"""Run many cases, for a limited time, and print one line about them.

    crash: 1713 cases, 0 violations, seed 4711

A case that did not happen as planned is not counted as one, but after the seed: `12 missed`. A violation is printed
with its case, so that it can be repeated with the same seed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Lock
from typing import NamedTuple

MINUTES = 13
"""A series begins no case after that."""


class Case(NamedTuple):
    name: str
    run: Callable[[int], None]
    """Gets the number of the worker. Raises an exception if something is not as it must be."""


class CaseMissed(Exception):
    """The case shows nothing, because what it is about did not happen."""


def choose_seed() -> int:
    """The number after `--seed`, or a new one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    return int(parser.parse_args().seed)


def run_series(title: str, cases: Sequence[Case], seed: int, *, least: int = 1, workers: int = 0) -> int:
    """Run the cases and return an exit code. `least`: fewer cases are not enough."""
    workers = workers or os.cpu_count() or 1
    end, numbers, lock = time.monotonic() + 60 * MINUTES, count(), Lock()
    done = violations = missed = 0

    def work(worker: int) -> None:
        nonlocal done, violations, missed
        while time.monotonic() < end and (number := next(numbers)) < len(cases):
            try:
                text = _violation(cases[number], worker)
            except CaseMissed:
                with lock:
                    missed += 1
                continue
            with lock:
                done += 1
                if text is not None:
                    violations += 1
                    sys.stderr.write(f"{title}: {cases[number].name}: {text}\n")

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    others = f", {missed} missed" if missed else ""
    sys.stdout.write(f"{title}: {done} cases, {violations} violations, seed {seed}{others}\n")
    if done < least:
        late = len(cases) - done - missed
        sys.stderr.write(f"{title}: {least} cases are needed, and {late} did not run in time\n")
    return int(bool(violations) or done < least)


def _violation(case: Case, worker: int) -> str | None:
    try:
        case.run(worker)
    except CaseMissed:
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a violation
        return f"{type(error).__name__}: {error}"
    return None
