"""Facts of earlier releases, made into today's.

Rule 1  A record has the form of the rules that its owner wrote under: `run_started` and `run_resumed` say which.
Rule 2  STEPS has every kind of fact that a version knew, and what makes of it a fact of the next version. A kind that
        is not there did not exist: a journal that has it is damaged.
Rule 3  Steps work on plain data and write out every field they add: no later change of a type or of a default can
        change what an old journal means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from agentrun.core.facts import RULES

Plain: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Plain], Plain]


def upcast(fact: Plain, rules: int) -> Plain:
    """A fact in the form of today. Raises ValueError for one that its version cannot have written."""
    for version in range(rules, RULES):
        step = STEPS.get((str(fact.get("type")), version))
        if step is None:
            raise ValueError(f"version {version} has no fact {fact.get('type')!r}")
        fact = step(fact)
    return fact


def _same(fact: Plain) -> Plain:
    return fact


def _with(**added: Any) -> Step:
    def step(fact: Plain) -> Plain:
        if early := fact.keys() & added.keys():
            raise ValueError(f"the fact has {sorted(early)} before its time")
        return fact | added

    return step


def _replied(fact: Plain) -> Plain:
    """Calls that do not say yet which route asked for them."""
    reply = fact["reply"]
    parts = [part | {"route": None} if part["kind"] == "tool_call" else part for part in reply["message"]["parts"]]
    message = reply["message"] | {"parts": parts}
    return _with(cost=0)(fact) | {"reply": reply | {"message": message}}


_NOTHING_EARLIER = {"runs": 0, "turns": 0, "messages": [], "texts": {}, "batches": {}, "grants": []}

STEPS: Mapping[tuple[str, int], Step] = {
    ("run_started", 1): _with(prompts={}, earlier=_NOTHING_EARLIER, parent=None),
    ("model_asked", 1): _with(cost=0, purpose="answer", hidden=[]),
    ("model_replied", 1): _replied,
    ("model_failed", 1): _same,
    ("output_refused", 1): _same,
    ("run_stopped", 1): _same,
}
