"""A suite, case by case: each evaluated as often as asked, swept if asked, and its journal accepted if asked.

Rule 1  What goes wrong with one case is its verdict, and no other's: the suite goes on.
Rule 2  Nothing here knows of other cases: in whatever order, and in however many processes, the results are the same.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import unified_diff
from itertools import islice
from traceback import extract_tb

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.match import MatchTier
from agentrun.errors import AgentrunError
from agentrun.report.journal_diff import compare_journals
from agentrun.spec.source_files import display_path
from agentrun.testing.suite.coverage import CoverageCollector
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.evaluation import evaluate_case, find_miss
from agentrun.testing.suite.recording import replay_runner, settle_new_cassette
from agentrun.testing.suite.replay import (
    CaseRunner,
    CaseRuns,
    CompiledAgent,
    CompiledAgents,
    is_rest_of_shared_cassette,
    replay_case,
)
from agentrun.testing.suite.snapshots import (
    MAX_DIFF_LINES,
    SnapshotLookup,
    SnapshotUpdate,
    WrittenSnapshot,
    accepted_snapshot,
    snapshot_text,
)
from agentrun.testing.suite.verdict import CaseVerdict, Complaint


class SuiteOptions(Struct, frozen=True, kw_only=True):
    """What is done with each case."""

    update: bool = False
    require: MatchTier = "normalised"
    repeat: int = 1
    sweep: bool = False
    coverage: bool = False


class SweepCounts(Struct, frozen=True):
    """How many faults a case was put under, and how it ended under them."""

    tried: int
    endings: dict[str, int]


class CaseResult(Struct, frozen=True, kw_only=True):
    """What came of one case."""

    verdict: CaseVerdict
    written: WrittenSnapshot | None = None
    swept: SweepCounts | None = None


class SuiteRunner:
    """Carries cases out, one after the other. Each agent is compiled once."""

    def __init__(
        self, orders: SuiteOptions, carry_out: CaseRunner | None = None, covering: CoverageCollector | None = None
    ) -> None:
        self._orders = orders
        self._carry_out = carry_out or replay_runner(orders.require)
        self._preparations = CompiledAgents()
        self._last: tuple[CompiledAgent, CaseRuns] | None = None
        """What was carried out last."""
        self._covering = covering or CoverageCollector()

    def run_case(self, found: LocatedCase, compare: SnapshotLookup = accepted_snapshot) -> CaseResult:
        """`compare`: who knows what was accepted, where nothing new is accepted here."""
        try:
            return self._run_case(found, compare)
        except AgentrunError as error:
            wrong = Complaint(claim=error.code, message=error.message, hint=error.hint)
        except Exception as error:  # our bug must not cost the verdicts on all other cases
            if os.environ.get("AGENTRUN_TRACEBACK"):
                raise
            wrong = _internal_error_complaint(error)
        return CaseResult(verdict=replace(_failed_verdict(found), status="failed", complaints=(wrong,)))

    def _run_case(self, found: LocatedCase, compare: SnapshotLookup) -> CaseResult:
        accepting = SnapshotUpdate() if self._orders.update else None
        verdict = self._verdict(found, accepting or compare)
        swept = None
        if self._last is not None and (new := self._last[1].new_cassette) is not None:
            verdict = settle_new_cassette(found, verdict, new)
        if self._orders.coverage:
            self._add_coverage(found)
        if self._last is not None and self._orders.sweep and verdict.status != "unreadable":
            swept, wrong = _sweep_case(found, *self._last)
            verdict = _add_complaints(verdict, wrong)
        written = None
        if accepting is not None and verdict.status == "passed":
            written = accepting.write(found)
            verdict = replace(verdict, changes=verdict.changes if written is None else written.changes)
        return CaseResult(verdict=verdict, written=written, swept=swept)

    def _verdict(self, found: LocatedCase, compare: SnapshotLookup) -> CaseVerdict:
        self._last = None
        return evaluate_repeatedly(self._orders.repeat, found, self._preparations, compare, self._run_and_remember)

    def _add_coverage(self, found: LocatedCase) -> None:
        if self._last is None:
            self._covering.add_spec(found)
        else:
            self._covering.add(found, *self._last)

    def _run_and_remember(self, found: LocatedCase, prepared: CompiledAgent) -> CaseRuns:
        played = self._carry_out(found, prepared)
        self._last = prepared, played
        return played


def _sweep_case(
    found: LocatedCase, prepared: CompiledAgent, played: CaseRuns
) -> tuple[SweepCounts | None, list[Complaint]]:
    """A case that does not fit its recording is not swept, but what it did is looked at: that may be why."""
    from agentrun.testing.suite.sweep import find_violations, sweep  # late: few need it

    wrong = [
        Complaint(claim="sweep", message=f"{what}, without any fault") for what in find_violations(prepared, played)
    ]
    miss = find_miss(played)
    if wrong or (miss is not None and not is_rest_of_shared_cassette(found, miss)):
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
    return SweepCounts(report.tried, report.endings), wrong


def _add_complaints(verdict: CaseVerdict, wrong: list[Complaint]) -> CaseVerdict:
    """The verdict with more complaints: with one it is bad, whatever was expected."""
    return replace(verdict, status="failed", complaints=(*verdict.complaints, *wrong)) if wrong else verdict


def _failed_verdict(found: LocatedCase) -> CaseVerdict:
    return CaseVerdict(id=found.id, file=display_path(found.file), line=found.line, status="failed")


def _internal_error_complaint(error: Exception) -> Complaint:
    """Where our own mistake is, without anything that a user gave."""
    frames = extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
    return Complaint(
        claim="internal",
        message=f"{type(error).__name__} at {place}: a mistake in agentrun, not in your case",
        hint="set AGENTRUN_TRACEBACK=1 to see where it comes from, and report it",
    )


# --- cases that are run again and again: what is not always the same is a failure -----------------------------


def evaluate_repeatedly(
    times: int,
    found: LocatedCase,
    preparations: CompiledAgents,
    compare: SnapshotLookup,
    carry_out: CaseRunner = replay_case,
) -> CaseVerdict:
    """As `evaluate_case`, so many times."""
    if times == 1:
        return evaluate_case(found, preparations, compare, carry_out)
    journals: list[str] = []

    def watched(found: LocatedCase, prepared: CompiledAgent) -> CaseRuns:
        played = carry_out(found, prepared)
        journals.append(snapshot_text(played.runs))
        return played

    first = evaluate_case(found, preparations, compare, watched)
    seconds = first.seconds
    for number in range(2, times + 1):
        again = evaluate_case(found, preparations, compare, watched)
        seconds += again.seconds
        if _comparable(again) != _comparable(first) or journals[-1:] != journals[:1]:
            wrong = Complaint(
                claim="repeat",
                message=f"run {number} of {times} did not go as the first one",
                detail="\n".join(_repeat_differences(first, again, journals)),
                hint="something in it is not replayed: chance, the clock, the order of a set, or a tool that is live",
            )
            return replace(again, status="failed", complaints=(wrong, *again.complaints), seconds=seconds)
    return replace(first, seconds=seconds)


def _comparable(verdict: CaseVerdict) -> tuple[object, ...]:
    return verdict.status, verdict.complaints, verdict.tier


def _repeat_differences(first: CaseVerdict, again: CaseVerdict, journals: list[str]) -> Iterator[str]:
    if _comparable(first) != _comparable(again):
        yield f"first {_verdict_line(first)}"
        yield f"then {_verdict_line(again)}"
    if journals[-1:] != journals[:1]:
        yield from (change.text for change in compare_journals(journals[0], journals[-1]))
        yield ""
        lines = unified_diff(journals[0].splitlines(), journals[-1].splitlines(), "first", "then", lineterm="")
        yield from islice(lines, MAX_DIFF_LINES)


def _verdict_line(verdict: CaseVerdict) -> str:
    return "; ".join([verdict.status, *(f"{wrong.claim}: {wrong.message}" for wrong in verdict.complaints)])


# --- memory while many cases run ------------------------------------------------------------------------------


GC_THRESHOLD = 50_000
"""Objects after which it is worth while to look for garbage: a case leaves some hundred, in circles hardly any."""


@contextmanager
def relaxed_garbage_collection() -> Iterator[None]:
    """What is loaded by now stays: looking through it for garbage again and again is a tenth of all the work."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
