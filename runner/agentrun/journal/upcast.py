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

from agentrun.core.facts import RULES_VERSION

PlainFact: TypeAlias = dict[str, Any]
Upcast: TypeAlias = Callable[[PlainFact], PlainFact]


def upcast(fact: PlainFact, rules: int) -> PlainFact:
    """A fact in the form of today. Raises ValueError for one that its version cannot have written."""
    for version in range(rules, RULES_VERSION):
        step = UPCASTS.get((str(fact.get("type")), version))
        if step is None:
            raise ValueError(f"version {version} has no fact {fact.get('type')!r}")
        fact = step(fact)
    return fact


def _unchanged(fact: PlainFact) -> PlainFact:
    return fact


def _add_fields(**added: Any) -> Upcast:
    def step(fact: PlainFact) -> PlainFact:
        if early := fact.keys() & added.keys():
            raise ValueError(f"the fact has {sorted(early)} before its time")
        return fact | added

    return step


def _upcast_reply(fact: PlainFact) -> PlainFact:
    """Calls that do not say yet which route asked for them."""
    reply = fact["reply"]
    parts = [part | {"route": None} if part["kind"] == "tool_call" else part for part in reply["message"]["parts"]]
    message = reply["message"] | {"parts": parts}
    return _add_fields(cost=0)(fact) | {"reply": reply | {"message": message}}


_NOTHING_EARLIER = {"runs": 0, "turns": 0, "messages": [], "texts": {}, "batches": {}, "grants": []}

UPCASTS: Mapping[tuple[str, int], Upcast] = {
    ("run_started", 1): _add_fields(prompts={}, earlier=_NOTHING_EARLIER, parent=None),
    ("model_asked", 1): _add_fields(cost=0, purpose="answer", hidden=[]),
    ("model_replied", 1): _upcast_reply,
    ("model_failed", 1): _unchanged,
    ("output_refused", 1): _unchanged,
    ("run_stopped", 1): _unchanged,
}
