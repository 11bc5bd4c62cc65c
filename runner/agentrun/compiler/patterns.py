"""Regular expressions that people write.

Rule 1  Patterns are RE2: what RE2 cannot compile is refused, so no pattern can hang.
Rule 2  A pattern has a weight, the size of its program: what one costs to compile and keep is known before it is used.
Rule 3  In a JSON Schema another engine runs them, as linear as RE2: there it must compile them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import jsonschema_rs
import re2

from agentrun.spec.problems import Problem, SourcePlace
from agentrun.spec.tree import ScalarNode

MAX_PATTERN_LENGTH = 1024
MAX_PROGRAM_SIZE = 60_000
"""The largest program of one pattern: 20 ms to compile and some megabytes to keep."""
_SMALL_PROGRAM_SIZE = 1000
_TOO_LARGE = "it is too large"
_MEMORY = 2 * 1024 * 1024


class PatternCheck(NamedTuple):
    """What is known of a pattern."""

    weight: int
    reason: str | None = None
    """Why it cannot be used."""


@lru_cache(maxsize=512)
def check_pattern(pattern: str) -> PatternCheck:
    """The weight of a pattern, and why it cannot be used, if it cannot."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        return PatternCheck(MAX_PROGRAM_SIZE, f"it is longer than {MAX_PATTERN_LENGTH:,} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        weight: int = re2.compile(pattern, options).programsize  # type: ignore[no-untyped-call]  # re2 has no types
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        too_large = "too large" in text
        return PatternCheck(MAX_PROGRAM_SIZE if too_large else _SMALL_PROGRAM_SIZE, _TOO_LARGE if too_large else text)
    if weight > _SMALL_PROGRAM_SIZE:
        re2.purge()  # type: ignore[no-untyped-call]  # as above; what it keeps of 128 patterns can be a gigabyte
    if weight > MAX_PROGRAM_SIZE:
        return PatternCheck(MAX_PROGRAM_SIZE, _TOO_LARGE)
    return PatternCheck(weight)


@lru_cache(maxsize=512)
def _runs_in_schemas(pattern: str) -> bool:
    try:
        jsonschema_rs.Draft202012Validator(
            {"pattern": pattern}, offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except jsonschema_rs.ValidationError:
        return False
    return True


def is_usable_in_schemas(pattern: str) -> bool:
    """Whether a JSON Schema may have a pattern."""
    return check_pattern(pattern).reason is None and _runs_in_schemas(pattern)


def pattern_problems(node: ScalarNode) -> Iterator[Problem]:
    """What RE2 refuses about a pattern."""
    yield from pattern_problems_at(node.text, node.place)


def schema_pattern_problems(pattern: str, place: SourcePlace) -> Iterator[Problem]:
    """The same for a pattern in a JSON Schema."""
    found = list(pattern_problems_at(pattern, place))
    yield from found
    if not found and not _runs_in_schemas(pattern):
        yield Problem(place, "spec.pattern", "the pattern cannot be used in a JSON Schema", "write it in a simpler way")


def pattern_problems_at(pattern: str, place: SourcePlace) -> Iterator[Problem]:
    reason = check_pattern(pattern).reason
    if reason is None:
        return
    hint = None
    if reason == _TOO_LARGE:
        hint = "repeat less often, or limit the length in another way (maxLength)"
    elif "perl operator" in reason or "escape" in reason:
        hint = "patterns are RE2: no look-around, no back-references"
    yield Problem(place, "spec.pattern", f"the pattern cannot be used: {reason}", hint)
