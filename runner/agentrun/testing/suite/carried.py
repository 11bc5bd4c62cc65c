"""A suite, case by case: each evaluated as often as asked, swept if asked, and its journal accepted if asked.

Rule 1  What goes wrong with one case is its verdict, and no other's: the suite goes on.
Rule 2  Nothing here knows of other cases: in whatever order, and in however many processes, the results are the same.
"""

from __future__ import annotations

import os
from traceback import extract_tb

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.match import Tier
from agentrun.errors import AgentrunError
from agentrun.spec.files import shown_path
from agentrun.testing.suite.accepting import Accepting, Written
from agentrun.testing.suite.coverage import Covering
from agentrun.testing.suite.evaluate import Play, miss_of
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.new_cassettes import settle_recording
from agentrun.testing.suite.played import Played, is_left_to_another
from agentrun.testing.suite.prepared import Preparations, Prepared
from agentrun.testing.suite.recorded import replaying
from agentrun.testing.suite.repeated import evaluate_repeatedly
from agentrun.testing.suite.snapshots import Compare, accepted
from agentrun.testing.suite.verdict import Complaint, Verdict


class Orders(Struct, frozen=True, kw_only=True):
    """What is done with each case."""

    update: bool = False
    require: Tier = "normalised"
    repeat: int = 1
    sweep: bool = False
    coverage: bool = False


class Swept(Struct, frozen=True):
    """How many faults a case was put under, and how it ended under them."""

    tried: int
    endings: dict[str, int]


class Result(Struct, frozen=True, kw_only=True):
    """What came of one case."""

    verdict: Verdict
    written: Written | None = None
    swept: Swept | None = None


class Suite:
    """Carries cases out, one after the other. Each agent is compiled once."""

    def __init__(self, orders: Orders, carry_out: Play | None = None, covering: Covering | None = None) -> None:
        self._orders = orders
        self._carry_out = carry_out or replaying(orders.require)
        self._preparations = Preparations()
        self._last: tuple[Prepared, Played] | None = None
        """What was carried out last."""
        self._covering = covering or Covering()

    def result(self, found: Found, compare: Compare = accepted) -> Result:
        """`compare`: who knows what was accepted, where nothing new is accepted here."""
        try:
            return self._result(found, compare)
        except AgentrunError as error:
            wrong = Complaint(claim=error.code, message=error.message, hint=error.hint)
        except Exception as error:  # our bug must not cost the verdicts on all other cases
            if os.environ.get("AGENTRUN_TRACEBACK"):
                raise
            wrong = _internal(error)
        return Result(verdict=replace(_empty(found), status="failed", complaints=(wrong,)))

    def _result(self, found: Found, compare: Compare) -> Result:
        accepting = Accepting() if self._orders.update else None
        verdict = self._verdict(found, accepting or compare)
        swept = None
        if self._last is not None and (new := self._last[1].new_cassette) is not None:
            verdict = settle_recording(found, verdict, new)
        if self._orders.coverage:
            self._cover(found)
        if self._last is not None and self._orders.sweep and verdict.status != "unreadable":
            swept, wrong = _sweep(found, *self._last)
            verdict = _with(verdict, wrong)
        written = None
        if accepting is not None and verdict.status == "passed":
            written = accepting.write(found)
            verdict = replace(verdict, changes=verdict.changes if written is None else written.changes)
        return Result(verdict=verdict, written=written, swept=swept)

    def _verdict(self, found: Found, compare: Compare) -> Verdict:
        self._last = None
        return evaluate_repeatedly(self._orders.repeat, found, self._preparations, compare, self._carried_out)

    def _cover(self, found: Found) -> None:
        if self._last is None:
            self._covering.under_test(found)
        else:
            self._covering.add(found, *self._last)

    def _carried_out(self, found: Found, prepared: Prepared) -> Played:
        played = self._carry_out(found, prepared)
        self._last = prepared, played
        return played


def _sweep(found: Found, prepared: Prepared, played: Played) -> tuple[Swept | None, list[Complaint]]:
    """A case that does not fit its recording is not swept, but what it did is looked at: that may be why."""
    from agentrun.testing.suite.sweep import broken_by, sweep  # late: few need it

    wrong = [Complaint(claim="sweep", message=f"{what}, without any fault") for what in broken_by(prepared, played)]
    miss = miss_of(played)
    if wrong or (miss is not None and not is_left_to_another(found, miss)):
        return None, wrong
    report = sweep(found, prepared)
    wrong = [
        Complaint(
            claim="sweep",
            message=f"{what}, under a fault",
            detail=result.story,
            hint=f"put it into the case to see it again: faults: [{result.yaml.removeprefix('- ')}]",
        )
        for result in report.violations
        for what in result.violations
    ]
    return Swept(report.tried, report.endings), wrong


def _with(verdict: Verdict, wrong: list[Complaint]) -> Verdict:
    """The verdict with more complaints: with one it is bad, whatever was expected."""
    return replace(verdict, status="failed", complaints=(*verdict.complaints, *wrong)) if wrong else verdict


def _empty(found: Found) -> Verdict:
    return Verdict(id=found.id, file=shown_path(found.file), line=found.line, status="failed")


def _internal(error: Exception) -> Complaint:
    """Where our own mistake is, without anything that a user gave."""
    frames = extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
    return Complaint(
        claim="internal",
        message=f"{type(error).__name__} at {place}: a mistake in agentrun, not in your case",
        hint="set AGENTRUN_TRACEBACK=1 to see where it comes from, and report it",
    )
