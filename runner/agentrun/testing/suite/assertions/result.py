"""What was found out about a claim, and the words that those who find out have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from agentrun.canonical_json import sorted_json
from agentrun.core.package_lookup import matches_pattern
from agentrun.testing.suite.evidence import Evidence

MAX_DETAIL_LINES = 40
"""Lines of what is said in detail about one thing."""


class AssertionResult(NamedTuple):
    """Whether a claim holds, and what is so."""

    holds: bool
    describe: Callable[[], str]
    """What is so, in a line, and more of it in lines below. Called only for a complaint."""


class CannotEvaluate(Exception):
    """Why it cannot be told whether a claim holds."""

    def __init__(self, words: str, hint: str | None = None) -> None:
        super().__init__(words)
        self.message = words
        self.hint = hint


def no_answer_text(evidence: Evidence) -> str:
    return f"there is no answer: the outcome is {evidence.outcome}"


def matches_target(target: str, name: str) -> bool:
    """Whether a target means a tool, sink or stage. Those of sub-agents are meant only where a slash is written."""
    return ("/" in target or not is_of_sub_agent(name)) and matches_pattern(target, name)


def is_of_sub_agent(name: str) -> bool:
    """Whether it is a sub-agent's: `read/search`. A server's tool may have a slash too: `docs.a/b`."""
    agent, slash, _ = name.partition("/")
    return bool(slash) and "." not in agent


def sorted_json_text(value: Any) -> str:
    return sorted_json(value).decode()


def indent_list(lines: Iterable[str]) -> str:
    """Lines below a heading, and only so many of them."""
    shown = list(lines)
    more = [f"  … and {len(shown) - MAX_DETAIL_LINES} more"] if len(shown) > MAX_DETAIL_LINES else []
    return "\n".join([*(f"  {line}" for line in shown[:MAX_DETAIL_LINES]), *more])
