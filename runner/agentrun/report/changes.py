"""What two canonical journals say differently, in words: aligned by run, turn and call, and never by line.

Rule 1  Never silent: two texts that differ have at least one change.
Rule 2  What follows from another change is not told again: spend is told once, in sums; another model in the first turn
        that asks it.
Rule 3  The texts of changes are fit for a terminal: masked, visible and cut. Their values are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentrun.canon import same
from agentrun.journal.laid_out import NotLaidOut, read_back
from agentrun.report.change import Change, Place
from agentrun.report.changes_run import runs_compared
from agentrun.report.changes_spend import spending, spent
from agentrun.report.fields import fields
from agentrun.report.steps import runs_of

__all__ = ["Change", "changes_between", "changes_of", "facts_in"]

_NOT_OVER = frozenset({"outcome", "output", "spend", "share"})
_IN_EVERY_TURN = frozenset({"route", "model"})


def changes_between(before: str, after: str, *, cut: bool = False) -> tuple[Change, ...]:
    """The differences between two canonical journals, in the order of the run."""
    if before == after:
        return ()
    try:
        one = facts_in(before)
    except NotLaidOut as error:
        return (Change(text=f"the journal before cannot be read: {error}"),)
    try:
        two = facts_in(after)
    except NotLaidOut as error:
        return (Change(text=f"the journal now cannot be read: {error}"),)
    found = changes_of(one, two, cut=cut)
    return found or (() if cut else (Change(text="the journals say the same, but are not written the same"),))


def facts_in(text: str) -> list[Any]:
    """The facts of a canonical journal. Raises NotLaidOut."""
    facts = read_back(text) if text.strip("\n") else []
    if not isinstance(facts, list):
        raise NotLaidOut(1)
    return facts


def changes_of(before: Sequence[Any], after: Sequence[Any], *, cut: bool = False) -> tuple[Change, ...]:
    """The same of facts as plain data. `cut`: the run did not come to its end, and what it lacks says nothing."""
    if same(list(before), list(after)):
        return ()
    one, two = runs_of(before), runs_of(after)
    found = list(_told_once(runs_compared(Place(), one, two)))
    if cut:
        return tuple(each for each in found if each.how != "gone" and each.kind not in _NOT_OVER)
    sums = spent(before), spent(after)
    found += spending(*sums)
    told = [each for each in found if each.kind != "share"] if sums[0] != sums[1] else found
    return tuple(told or found) or tuple(_anything(before, after))


def _told_once(found: Iterable[Change]) -> Iterator[Change]:
    """Another model is another one in each turn: of a run, or of all its sub-agents, that is told where it begins."""
    seen = set()
    for each in found:
        what = each.kind, each.run, bool(each.path), str(each.before), str(each.after)
        if each.kind not in _IN_EVERY_TURN or what not in seen:
            yield each
        seen.add(what)


def _anything(before: Sequence[Any], after: Sequence[Any]) -> Iterator[Change]:
    """What nothing above has words for."""
    for field in fields(list(before), list(after)):
        yield Change(text=f"the journal differs in {field.words()}", before=field.before, after=field.after)
        return
