"""Cases that are run again and again: what is not always the same is a failure.

Rule 1  Each time the verdict must be the same, and so must the journal, whether the case asks for that or not.
Rule 2  The first time that differs ends it, and is told beside the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice

from msgspec.structs import replace

from agentrun.report.changes import changes_between
from agentrun.testing.suite.evaluate import Play, evaluate
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.played import Played, play
from agentrun.testing.suite.prepared import Preparations, Prepared
from agentrun.testing.suite.snapshots import MOST_LINES, Compare, snapshot_of
from agentrun.testing.suite.verdict import Complaint, Verdict


def evaluate_repeatedly(
    times: int, found: Found, preparations: Preparations, compare: Compare, carry_out: Play = play
) -> Verdict:
    """As `evaluate`, so many times."""
    if times == 1:
        return evaluate(found, preparations, compare, carry_out)
    journals: list[str] = []

    def watched(found: Found, prepared: Prepared) -> Played:
        played = carry_out(found, prepared)
        journals.append(snapshot_of(played.runs))
        return played

    first = evaluate(found, preparations, compare, watched)
    seconds = first.seconds
    for number in range(2, times + 1):
        again = evaluate(found, preparations, compare, watched)
        seconds += again.seconds
        if _what(again) != _what(first) or journals[-1:] != journals[:1]:
            wrong = Complaint(
                claim="repeat",
                message=f"run {number} of {times} did not go as the first one",
                detail="\n".join(_differences(first, again, journals)),
                hint="something in it is not replayed: chance, the clock, the order of a set, or a tool that is live",
            )
            return replace(again, status="failed", complaints=(wrong, *again.complaints), seconds=seconds)
    return replace(first, seconds=seconds)


def _what(verdict: Verdict) -> tuple[object, ...]:
    return verdict.status, verdict.complaints, verdict.tier


def _differences(first: Verdict, again: Verdict, journals: list[str]) -> Iterator[str]:
    if _what(first) != _what(again):
        yield f"first {_told(first)}"
        yield f"then {_told(again)}"
    if journals[-1:] != journals[:1]:
        yield from (change.text for change in changes_between(journals[0], journals[-1]))
        yield ""
        lines = unified_diff(journals[0].splitlines(), journals[-1].splitlines(), "first", "then", lineterm="")
        yield from islice(lines, MOST_LINES)


def _told(verdict: Verdict) -> str:
    return "; ".join([verdict.status, *(f"{wrong.claim}: {wrong.message}" for wrong in verdict.complaints)])
