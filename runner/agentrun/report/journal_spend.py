"""What the replies of a journal spent, and how the spend of two journals differs.

Rule 1  Sub-agents are included. Usage that a provider did not report counts as 0, and the rounded text says so.
Rule 2  A rounded amount has two significant digits; half of a unit is rounded up: 104 → 100, 105 → 110.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentrun.report.change import ChangePlace, RunChange
from agentrun.report.formatting import format_budget, format_dollars
from agentrun.report.journal_tree import get_path, parse_runs

_USAGE = ("input", "output", "cached", "reasoning")


def sum_spend(facts: Sequence[Any]) -> dict[str, int]:
    """The sums over all replies, and the number of turns of the runs."""
    total = _sum_replies(facts)
    total["turns"] = sum(len(run.turns) for run in parse_runs(facts))
    return total


def rounded_spend(facts: Iterable[Any]) -> str:
    """`2.3k tokens, $0.0011`. Without a price there is no cost."""
    replies = list(_replies(facts))
    total = _sum_replies(facts)
    texts = [format_budget("tokens", round_to_two_digits(total["tokens"]))]
    if total["cost"]:
        texts.append(format_budget("cost", round_to_two_digits(total["cost"])))
    unknown = sum(not all(isinstance(_usage(reply, name), int) for name in ("input", "output")) for reply in replies)
    if unknown:
        texts.append(f"{'1 reply' if unknown == 1 else f'{unknown} replies'} without usage")
    return ", ".join(texts)


def round_to_two_digits(amount: int) -> int:
    unit: int = 10 ** max(len(str(amount)) - 2, 0)
    return (amount + unit // 2) // unit * unit


def _sum_replies(facts: Iterable[Any]) -> dict[str, int]:
    total = dict.fromkeys(("tokens", "cost", "turns", *_USAGE), 0)
    for reply in _replies(facts):
        for name in _USAGE:
            total[name] += _number(_usage(reply, name))
        total["cost"] += _number(get_path(reply, "cost"))
    total["tokens"] = total["input"] + total["output"]
    return total


def _usage(reply: Any, name: str) -> Any:
    return get_path(reply, "reply", "usage", name)


def _replies(facts: Iterable[Any]) -> Iterator[Any]:
    for fact in facts:
        if (reply := get_path(fact, "model_replied")) is not None:
            yield reply
        journal = get_path(fact, "child_started", "journal")
        if isinstance(journal, list):
            yield from _replies(journal)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def compare_spend(before: dict[str, int], after: dict[str, int]) -> Iterator[RunChange]:
    """`spend up 12 %: 2315 → 2593 tokens, $0.001089 → $0.00122, 4 → 5 turns`."""
    if before == after:
        return
    measure = "cost" if before["cost"] != after["cost"] and before["cost"] and after["cost"] else "tokens"
    texts = [f"{before['tokens']} → {after['tokens']} tokens"] if before["tokens"] != after["tokens"] else []
    if before["cost"] != after["cost"]:
        texts.append(f"{format_dollars(before['cost'])} → {format_dollars(after['cost'])}")
    if before["turns"] != after["turns"]:
        texts.append(f"{before['turns']} → {after['turns']} turns")
    texts = texts or [f"{before[name]} → {after[name]} {name} tokens" for name in _USAGE if before[name] != after[name]]
    head = _percent(before[measure], after[measure])
    yield ChangePlace().make_change("spend", f"spend {head}: {', '.join(texts)}", before=before, after=after)


def _percent(before: int, after: int) -> str:
    """`up 12 %`, rounded to a whole number; below one percent with two decimals."""
    if before == after:
        return "differs"
    way = "up" if after > before else "down"
    if not before or not after:
        return way
    hundredths = (abs(after - before) * 10_000 + before // 2) // before
    whole = (hundredths + 50) // 100
    return f"{way} {whole} %" if hundredths >= 100 else f"{way} {hundredths / 100:.2f} %"
