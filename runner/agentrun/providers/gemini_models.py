"""What the generations of Gemini take.

Rule 1  A model is known by the version in its name. Up to 2.5 it is told a budget of tokens for thinking, from 3 on a
        level; before 2.5 it does not think.
Rule 2  A name without a version (`gemini-flash-latest`) means the current generation.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"gemini-(\d{1,2})(?:\.(\d{1,2}))?")


class Gemini(NamedTuple):
    """What one model takes."""

    current: bool
    """Whether it is of generation 3 or later: thinks by level, signs its calls, keeps a schema and calls tools."""
    thinks: bool
    """Whether it thinks at all."""
    off: bool
    """Whether thinking can be turned off, or nearly."""


def gemini(name: str) -> Gemini:
    """What the model of this name takes."""
    found = _NAME.search(name)
    version = (int(found[1]), int(found[2] or 0)) if found else (99, 0)
    thinks = version >= (2, 5)
    return Gemini(current=version >= (3, 0), thinks=thinks, off=not thinks or "pro" not in name)
