"""What two journals spent: tokens, money and turns, sub-agents included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentrun.report.amounts import dollars
from agentrun.report.change import Change, Place
from agentrun.report.steps import look, runs_of

_USAGE = ("input", "output", "cached", "reasoning")


def spent(facts: Sequence[Any]) -> dict[str, int]:
    """The sums over all replies. What was not reported counts as nothing."""
    total = dict.fromkeys(("tokens", "cost", "turns", *_USAGE), 0)
    for reply in _replies(facts):
        for name in _USAGE:
            total[name] += _number(look(reply, "reply", "usage", name))
        total["cost"] += _number(look(reply, "cost"))
    total["turns"] = sum(len(run.turns) for run in runs_of(facts))
    total["tokens"] = total["input"] + total["output"]
    return total


def _replies(facts: Iterable[Any]) -> Iterator[Any]:
    for fact in facts:
        if (reply := look(fact, "model_replied")) is not None:
            yield reply
        journal = look(fact, "child_started", "journal")
        if isinstance(journal, list):
            yield from _replies(journal)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def spending(before: dict[str, int], after: dict[str, int]) -> Iterator[Change]:
    """`spend up 12 %: 2315 → 2593 tokens, $0.001089 → $0.00122, 4 → 5 turns`."""
    if before == after:
        return
    measure = "cost" if before["cost"] != after["cost"] and before["cost"] and after["cost"] else "tokens"
    told = [f"{before['tokens']} → {after['tokens']} tokens"] if before["tokens"] != after["tokens"] else []
    if before["cost"] != after["cost"]:
        told.append(f"{dollars(before['cost'])} → {dollars(after['cost'])}")
    if before["turns"] != after["turns"]:
        told.append(f"{before['turns']} → {after['turns']} turns")
    told = told or [f"{before[name]} → {after[name]} {name} tokens" for name in _USAGE if before[name] != after[name]]
    head = _percent(before[measure], after[measure])
    yield Place().told("spend", f"spend {head}: {', '.join(told)}", before=_shown(before), after=_shown(after))


def _percent(before: int, after: int) -> str:
    """`up 12 %`, rounded to the nearest whole number; below one percent with two places."""
    if before == after:
        return "differs"
    way = "up" if after > before else "down"
    if not before or not after:
        return way
    hundredths = (abs(after - before) * 10_000 + before // 2) // before
    whole = (hundredths + 50) // 100
    return f"{way} {whole} %" if hundredths >= 100 else f"{way} {hundredths / 100:.2f} %"


def _shown(total: dict[str, int]) -> dict[str, int]:
    return {name: total[name] for name in ("tokens", "cost", "turns", *_USAGE)}
