"""Shorten long loops in `make test` and run them in full in `make test-long`.

The part is the same in every run: what is red is red for everybody.
"""

import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

LONG = os.environ.get("AGENTRUN_TESTS") == "long"


def sample_of(every: int, items: Iterable[T]) -> Iterator[T]:
    """Every item in `make test-long`, in `make test` the first, and one of each `every` after it."""
    return (item for number, item in enumerate(items) if LONG or number % every == 0)


def times(short: int, whole: int) -> int:
    """How often: `short` in `make test`, `whole` in `make test-long`."""
    return whole if LONG else short
