"""Regular expressions in specs.

Rule 1  Patterns are RE2. Patterns that RE2 cannot compile are refused, so no pattern can hang.
Rule 2  The weight of a pattern is the size of its program, so its cost in time and memory is known before it is used.
Rule 3  Patterns in a JSON Schema are run by another linear engine, which must be able to compile them too.
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
"""The maximum program size of one pattern: it takes 20 ms to compile and some megabytes of memory."""
_SMALL_PROGRAM_SIZE = 1000
_TOO_LARGE = "the pattern is too large"
_MEMORY = 2 * 1024 * 1024


class PatternCheck(NamedTuple):
    weight: int
    reason: str | None = None
    """Why the pattern cannot be used."""


@lru_cache(maxsize=512)
def check_pattern(pattern: str) -> PatternCheck:
    """Return the weight of a pattern, and the reason if it cannot be used."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        return PatternCheck(MAX_PROGRAM_SIZE, f"the pattern is longer than {MAX_PATTERN_LENGTH:,} characters")
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
        re2.purge()  # type: ignore[no-untyped-call]  # as above; its cache of 128 patterns can take a gigabyte
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
    return check_pattern(pattern).reason is None and _runs_in_schemas(pattern)


def pattern_problems(node: ScalarNode) -> Iterator[Problem]:
    yield from pattern_problems_at(node.text, node.place)


def schema_pattern_problems(pattern: str, place: SourcePlace) -> Iterator[Problem]:
    found = list(pattern_problems_at(pattern, place))
    yield from found
    if not found and not _runs_in_schemas(pattern):
        yield Problem(place, "spec.pattern", "the pattern cannot be used in a JSON Schema", "simplify the pattern")


def pattern_problems_at(pattern: str, place: SourcePlace) -> Iterator[Problem]:
    reason = check_pattern(pattern).reason
    if reason is None:
        return
    hint = None
    if reason == _TOO_LARGE:
        hint = "use smaller repetition counts, or limit the length with maxLength"
    elif "perl operator" in reason or "escape" in reason:
        hint = "patterns are RE2, which has no look-around and no back-references"
    yield Problem(place, "spec.pattern", f"this regular expression cannot be used: {reason}", hint)
