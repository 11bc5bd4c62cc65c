"""Convert facts of earlier releases to the current form.

Rule 1  UPCASTS has an entry for every kind of fact of a version: the step to the next version. If a kind has no entry,
        it did not exist, and a journal that contains it is damaged.
Rule 2  Steps work on plain data and set every field that they add, so that a later change of a type or a default does
        not change the meaning of an old journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from agentrun.core.facts import RULES_VERSION

PlainFact: TypeAlias = dict[str, Any]
Upcast: TypeAlias = Callable[[PlainFact], PlainFact]
_NOTHING_EARLIER = {"runs": 0, "turns": 0, "messages": [], "texts": {}, "batches": {}, "grants": []}


def upcast(fact: PlainFact, rules: int) -> PlainFact:
    """Convert a fact to the current version. Raises ValueError if its version did not have such a fact."""
    for version in range(rules, RULES_VERSION):
        step = UPCASTS.get((str(fact.get("type")), version))
        if step is None:
            raise ValueError(f"version {version} has no fact {fact.get('type')!r}")
        fact = step(fact)
    return fact


def _add_fields(**added: Any) -> Upcast:
    def step(fact: PlainFact) -> PlainFact:
        if early := fact.keys() & added.keys():
            raise ValueError(f"the fact has fields of a later version: {sorted(early)}")
        return fact | added

    return step


def _upcast_reply(fact: PlainFact) -> PlainFact:
    reply = fact["reply"]
    parts = [part | {"route": None} if part["kind"] == "tool_call" else part for part in reply["message"]["parts"]]
    message = reply["message"] | {"parts": parts}
    return _add_fields(cost=0)(fact) | {"reply": reply | {"message": message}}


UPCASTS: Mapping[tuple[str, int], Upcast] = {
    ("run_started", 1): _add_fields(prompts={}, earlier=_NOTHING_EARLIER, parent=None),
    ("model_asked", 1): _add_fields(cost=0, purpose="answer", hidden=[]),
    ("model_replied", 1): _upcast_reply,
    ("model_failed", 1): _add_fields(),
    ("output_refused", 1): _add_fields(),
    ("run_stopped", 1): _add_fields(),
}
