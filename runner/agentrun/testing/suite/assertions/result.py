"""The result of an assertion, and texts that several checks use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from agentrun.canonical_json import sorted_json
from agentrun.testing.suite.evidence import Evidence

MAX_DETAIL_LINES = 40


class AssertionResult(NamedTuple):
    holds: bool
    describe: Callable[[], str]
    """The actual value in one line, with details in further lines. Called only for a failure."""


class CannotEvaluate(Exception):
    def __init__(self, words: str, hint: str | None = None) -> None:
        super().__init__(words)
        self.message = words
        self.hint = hint


def no_answer_text(evidence: Evidence) -> str:
    return f"there is no answer: the outcome is {evidence.outcome}"


def sorted_json_text(value: Any) -> str:
    return sorted_json(value).decode()


def indent_list(lines: Iterable[str]) -> str:
    every = list(lines)
    more = [f"  … and {len(every) - MAX_DETAIL_LINES} more"] if len(every) > MAX_DETAIL_LINES else []
    return "\n".join([*(f"  {line}" for line in every[:MAX_DETAIL_LINES]), *more])
