"""Memory while many cases run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 50_000
"""Objects after which it is worth while to look for garbage: a case leaves some hundred, in circles hardly any."""


@contextmanager
def settled() -> Iterator[None]:
    """What is loaded by now stays: looking through it for garbage again and again is a tenth of all the work."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(MANY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
