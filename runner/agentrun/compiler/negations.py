"""Assertions as people write them, told apart: `not-contains` is `contains`, negated."""

from __future__ import annotations

from typing import Any

NOT = "not-"


def told_apart(document: dict[str, Any]) -> dict[str, Any]:
    """A file of cases with `not-` taken off the types of its assertions."""
    cases = [positive(case) for case in document["cases"]]
    for case in cases:
        if "turns" in case:
            case["turns"] = [positive(turn) if isinstance(turn, dict) else turn for turn in case["turns"]]
    return {**document, "defaults": positive(document.get("defaults", {})), "cases": cases}


def positive(part: dict[str, Any]) -> dict[str, Any]:
    """The same for what has assertions: a case, a turn, what cases have in common."""
    if "assert" not in part:
        return dict(part)
    return {**part, "assert": [_claim(each) for each in part["assert"]]}


def _claim(written: dict[str, Any]) -> dict[str, Any]:
    kind: str = written["type"]
    return {**written, "type": kind.removeprefix(NOT), "negated": kind.startswith(NOT)}
