"""Run a suite case by case: repeat each case, sweep it, and accept its journal, if the options say so.

Rule 1  An error in one case is its verdict only. The suite continues.
Rule 2  Cases do not share state: the results are the same in any order and with any number of processes.
Rule 3  With `repeat`, each run must give the same verdict and journal, whether the case has a snapshot or not.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from traceback import extract_tb

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.match_tiers import DEFAULT_TIER, MatchTier
from agentrun.errors import AgentrunError
from agentrun.testing.suite import snapshots
from agentrun.testing.suite.case_changes import make_change
from agentrun.testing.suite.coverage import CoverageCollector
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.evaluation import evaluate_case, find_miss
from agentrun.testing.suite.recording import settle_new_cassette
from agentrun.testing.suite.replay import (
    CaseRunner,
    CaseRuns,
    CompiledAgent,
    CompiledAgents,
    is_rest_of_shared_cassette,
    replay_case,
)
from agentrun.testing.suite.verdict import CaseFailure, CaseVerdict, case_verdict, failure_of_error

GC_THRESHOLD = 50_000
"""Objects between collections. A case leaves a few hundred objects, and hardly any cycles."""


class SuiteOptions(Struct, frozen=True, kw_only=True):
    update: bool = False
    add: str | None = None
    """With `update`: the name under which journals are accepted in addition to the others."""
    require: MatchTier = DEFAULT_TIER
    repeat: int = 1
    sweep: bool = False
    coverage: bool = False


class SweepCounts(Struct, frozen=True):
    tried: int
    endings: dict[str, int]


class CaseResult(Struct, frozen=True, kw_only=True):
    verdict: CaseVerdict
    written: snapshots.WrittenSnapshot | None = None
    unwritten: snapshots.UnwrittenSnapshot | None = None
    swept: SweepCounts | None = None


class SuiteRunner:
    """Runs cases one after the other. Each agent is compiled once."""

    def __init__(
        self, options: SuiteOptions, run_case: CaseRunner | None = None, coverage: CoverageCollector | None = None
    ) -> None:
        self._options = options
        self._replay_or_record = run_case or partial(replay_case, require=options.require)
        self._agents = CompiledAgents()
        self._last: tuple[CompiledAgent, CaseRuns] | None = None
        self._coverage = coverage or CoverageCollector()

    def run_case(
        self, located: LocatedCase, compare: snapshots.SnapshotLookup = snapshots.accepted_snapshots
    ) -> CaseResult:
        """`compare`: used unless `update` is set."""
        self._last = None
        try:
            return self._run_case(located, compare)
        except AgentrunError as error:
            failure = failure_of_error(error)
        except Exception as error:  # a bug in agentrun must not lose the verdicts on the other cases
            if os.environ.get("AGENTRUN_TRACEBACK"):
                raise
            failure = _internal_error_failure(error)
        return CaseResult(verdict=case_verdict(located, "failed", failure))

    def _run_case(self, located: LocatedCase, compare: snapshots.SnapshotLookup) -> CaseResult:
        options = self._options
        update = snapshots.SnapshotUpdate(options.add) if options.update else None
        verdict = evaluate_repeatedly(options.repeat, located, self._agents, update or compare, self._run_and_remember)
        swept = written = unwritten = None
        if self._last is not None and (new := self._last[1].new_cassette) is not None:
            verdict = settle_new_cassette(located, verdict, new)
        if options.coverage:
            self._coverage.add_spec(located)
            if self._last is not None:
                self._coverage.add(located, *self._last)
        if self._last is not None and options.sweep and verdict.status != "unreadable":
            swept, failures = _sweep_case(located, *self._last)
            if failures:  # a failure even if the case has `xfail`
                verdict = replace(verdict, status="failed", failures=(*verdict.failures, *failures))
        if update is not None and verdict.status == "passed":
            written = update.write(located)
            if written is not None:
                verdict = replace(verdict, changes=tuple(map(make_change, written.changes)))
        elif update is not None and verdict.is_bad:
            unwritten = update.unwritten(located, verdict)
        return CaseResult(verdict=verdict, written=written, unwritten=unwritten, swept=swept)

    def _run_and_remember(self, located: LocatedCase, agent: CompiledAgent) -> CaseRuns:
        case_runs = self._replay_or_record(located, agent)
        self._last = agent, case_runs
        return case_runs


def _sweep_case(
    located: LocatedCase, agent: CompiledAgent, case_runs: CaseRuns
) -> tuple[SweepCounts | None, list[CaseFailure]]:
    """Sweep a case. After a miss only the invariants are checked, because a violation may be the cause of the miss."""
    from agentrun.testing.suite.sweep import find_violations, sweep  # late: rarely needed

    failures = [
        CaseFailure(assertion="sweep", message=f"{violation}, without a fault")
        for violation in find_violations(agent, case_runs, {})
    ]
    miss = find_miss(case_runs)
    if failures or (miss is not None and not is_rest_of_shared_cassette(located, miss)):
        return None, failures
    report = sweep(located, agent)
    failures = [
        CaseFailure(
            assertion="sweep",
            message=f"{violation}, with an injected fault",
            detail=result.steps,
            hint=f"to reproduce it, add this to the case: faults: [{result.yaml.removeprefix('- ')}]",
        )
        for result in report.violations
        for violation in result.violations
    ]
    return SweepCounts(report.tried, report.endings), failures


def _internal_error_failure(error: Exception) -> CaseFailure:
    """The place of a bug in agentrun, without any data of the user."""
    frames = extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
    return CaseFailure(
        assertion="internal",
        message=f"{type(error).__name__} at {place}: this is a bug in agentrun, not in your case",
        hint="please report it; AGENTRUN_TRACEBACK=1 shows the traceback",
    )


def evaluate_repeatedly(
    times: int,
    located: LocatedCase,
    agents: CompiledAgents,
    compare: snapshots.SnapshotLookup,
    run_case: CaseRunner = replay_case,
) -> CaseVerdict:
    if times == 1:
        return evaluate_case(located, agents, compare, run_case)
    journals: list[str] = []

    def run_and_keep_journal(located: LocatedCase, agent: CompiledAgent) -> CaseRuns:
        case_runs = run_case(located, agent)
        journals.append(snapshots.canonical_text(case_runs.runs))
        return case_runs

    first = evaluate_case(located, agents, compare, run_and_keep_journal)
    seconds = first.seconds
    for number in range(2, times + 1):
        again = evaluate_case(located, agents, compare, run_and_keep_journal)
        seconds += again.seconds
        if _comparable(again) != _comparable(first) or journals[-1:] != journals[:1]:
            failure = CaseFailure(
                assertion="repeat",
                message=f"run {number} of {times} differs from the first one",
                detail="\n".join(_repeat_differences(first, again, journals)),
                hint="something is not replayed: randomness, the clock, the order of a set, or a live tool",
            )
            return replace(again, status="failed", failures=(failure, *again.failures), seconds=seconds)
    return replace(first, seconds=seconds)


def _comparable(verdict: CaseVerdict) -> tuple[object, ...]:
    return verdict.status, verdict.failures, verdict.tier


def _repeat_differences(first: CaseVerdict, again: CaseVerdict, journals: list[str]) -> Iterator[str]:
    if _comparable(first) != _comparable(again):
        yield f"first {_verdict_line(first)}"
        yield f"then {_verdict_line(again)}"
    if journals[-1:] != journals[:1]:
        yield from snapshots.journal_diff(journals[0], journals[-1], "first", "then")


def _verdict_line(verdict: CaseVerdict) -> str:
    return "; ".join([verdict.status, *(f"{each.assertion}: {each.message}" for each in verdict.failures)])


@contextmanager
def relaxed_garbage_collection() -> Iterator[None]:
    """Collect garbage less often, and ignore what is already loaded. This saves a tenth of the time of a suite."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
