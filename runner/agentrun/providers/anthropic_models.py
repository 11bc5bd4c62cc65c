"""What the generations of Claude take. They differ, and the API refuses what a model does not take.

Rule 1  A model is known by its name: family and version. 4.5 and older are told a budget of tokens for thinking, later
        ones an effort.
Rule 2  A name without either (another server behind the same API) is treated like an older model: nothing is refused
        that the API has ever taken.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

_NAME = re.compile(r"claude-(?:(?P<family>[a-z]+)-?)?(?:(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d))?")
_EFFORT_FAMILIES = ("fable", "mythos")
"""All of these families think by effort, whatever their version."""


class Claude(NamedTuple):
    """What one model takes."""

    effort: bool
    """Whether thinking is told by effort; else by a budget."""
    off: Literal["disabled", "between_tools"] | None
    """How thinking is turned off. None: it cannot be."""
    samples: bool
    """Whether temperature and top_p may be set at all."""
    samples_both: bool
    """Whether both may be set at once."""
    forced: bool
    """Whether a call may be forced when the model does not think."""
    bound: bool
    """Whether its thoughts are bound to all that was said before them."""
    structured: bool
    """Whether it can promise to keep a schema."""


def claude(name: str) -> Claude:
    """What the model of this name takes."""
    found = _NAME.search(name)
    family = found["family"] if found else None
    version = (int(found["major"]), int(found["minor"] or 0)) if found and found["major"] else (0, 0)
    special = family in _EFFORT_FAMILIES
    bound = version >= ((5, 1) if special else (5, 5))
    return Claude(
        effort=special or version >= (4, 6),
        off=_off(family, version),
        samples=not special and version < (4, 7),
        samples_both=version < (4, 1),
        forced=not bound or family == "haiku",
        bound=bound,
        structured=special or version >= (4, 5),
    )


def _off(family: str | None, version: tuple[int, int]) -> Literal["disabled", "between_tools"] | None:
    if family in _EFFORT_FAMILIES or (family == "opus" and version >= (5, 5)):
        return None
    return "between_tools" if family == "sonnet" and version >= (5, 5) else "disabled"
