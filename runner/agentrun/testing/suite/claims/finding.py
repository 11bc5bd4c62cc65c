"""What was found out about a claim, and the words that those who find out have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from agentrun.canon import compact
from agentrun.core.names import matches
from agentrun.testing.suite.evidence import Evidence

MOST_LINES = 40
"""Lines of what is said in detail about one thing."""


class Finding(NamedTuple):
    """Whether a claim holds, and what is so."""

    holds: bool
    says: Callable[[], str]
    """What is so, in a line, and more of it in lines below. Called only for a complaint."""


class CannotTell(Exception):
    """Why it cannot be told whether a claim holds."""

    def __init__(self, words: str, hint: str | None = None) -> None:
        super().__init__(words)
        self.words = words
        self.hint = hint


def no_answer(evidence: Evidence) -> str:
    return f"there is no answer: the outcome is {evidence.outcome}"


def is_meant(target: str, name: str) -> bool:
    """Whether a target means a tool, sink or stage. Those of sub-agents are meant only where a slash is written."""
    return ("/" in target or not is_below(name)) and matches(target, name)


def is_below(name: str) -> bool:
    """Whether it is a sub-agent's: `read/search`. A server's tool may have a slash too: `docs.a/b`."""
    agent, slash, _ = name.partition("/")
    return bool(slash) and "." not in agent


def in_json(value: Any) -> str:
    return compact(value).decode()


def listed(lines: Iterable[str]) -> str:
    """Lines below a heading, and only so many of them."""
    shown = list(lines)
    more = [f"  … and {len(shown) - MOST_LINES} more"] if len(shown) > MOST_LINES else []
    return "\n".join([*(f"  {line}" for line in shown[:MOST_LINES]), *more])
