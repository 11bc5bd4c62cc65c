"""Run one case and judge it.

Rule 1  A case without an `outcome` assertion must complete. In a conversation, the last turn may have the assertion.
Rule 2  After a miss no assertion is checked, because the run did not happen. Only the miss is reported. If the run
        could not start, only the outcome is checked. If it has no answer because it failed, that is reported once.
Rule 3  Unused interactions are a miss too, but assertions are checked.
Rule 4  They are not a miss if the cassette belongs to another case: that case must play all of it.
Rule 5  Nor are they a miss if a fault made the run differ from the recorded one. The tier of such a run is `faulted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from time import perf_counter

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.cassette.interactions import changed_tools
from agentrun.engine.ci import in_ci
from agentrun.errors import AgentrunError, CassetteError, SpecError
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.assertions import JournalSnapshot, OutcomeIs, PythonAssertion
from agentrun.testing.suite.assertions import assertion_name, check_assertion
from agentrun.testing.suite.case_changes import (
    describe_run_changes,
    describe_sections,
    find_miss_causes,
    sections_changed_since,
)
from agentrun.testing.suite.discovery import LocatedCase, PlacedAssertion
from agentrun.testing.suite.evidence import Evidence, collect_evidence, no_answer_text
from agentrun.testing.suite.failure_text import run_steps
from agentrun.testing.suite.replay import (
    CaseRunner,
    CaseRuns,
    CompiledAgent,
    CompiledAgents,
    ending_miss,
    is_rest_after_fault,
    is_rest_of_shared_cassette,
    replay_case,
)
from agentrun.testing.suite.snapshots import SnapshotComparison, SnapshotLookup, accepted_and_now, compare_snapshot
from agentrun.testing.suite.verdict import (
    CaseChange,
    CaseFailure,
    CaseStatus,
    CaseVerdict,
    case_verdict,
    failures_of_problems,
)

DEFAULT_OUTCOME = OutcomeIs(value="completed")


def evaluate_case(
    located: LocatedCase, agents: CompiledAgents, compare: SnapshotLookup, run_case: CaseRunner = replay_case
) -> CaseVerdict:
    began = perf_counter()
    case = located.case
    verdict = case_verdict(located, "passed")
    if case.skip is not UNSET:
        return replace(verdict, status="skipped", reason=case.skip)
    try:
        agent = agents.for_case(located)
    except SpecError as error:
        return replace(verdict, status="unreadable", failures=failures_of_problems(error.problems))
    case_runs = run_case(located, agent)
    if (why := case_runs.recording_error) is not None:
        failure = CaseFailure(assertion="record", message=f"not recorded: {why.message}", hint=why.hint)
        verdict = replace(verdict, status="missed", failures=(failure,), steps=run_steps(agent, case_runs))
        return replace(verdict, seconds=perf_counter() - began)
    verdict = _judge(verdict, located, agent, case_runs, compare)
    verdict = replace(verdict, seconds=perf_counter() - began)
    return verdict if case.xfail is UNSET else _apply_xfail(verdict, case.xfail)


def _judge(
    verdict: CaseVerdict, located: LocatedCase, agent: CompiledAgent, case_runs: CaseRuns, compare: SnapshotLookup
) -> CaseVerdict:
    evidence = collect_evidence(case_runs)
    miss = find_miss(case_runs)
    if miss is not None and (is_rest_of_shared_cassette(located, miss) or is_rest_after_fault(case_runs, miss)):
        miss = None  # Rules 4 and 5
    failures: list[CaseFailure] = []
    changes: tuple[CaseChange, ...] = ()
    sections = sections_changed_since(case_runs.metadata, agent)
    snapshot = located.snapshot
    live: tuple[str, ...] = ()
    compared = SnapshotComparison()
    if miss is None or miss.code == "cassette.unused":
        every = chain(located.assertions, *located.turn_assertions[: len(case_runs.runs)])
        live = tuple(sorted({each.value for each, _ in every if isinstance(each, PythonAssertion) and each.network}))
        failures += _check_assertions(located, agent, case_runs, evidence)
        if snapshot is not None and case_runs.runs:
            compared = compare_snapshot(located, case_runs.runs, compare)
            failures += [] if compared.failure is None else [_placed(compared.failure, located, located.snapshot_line)]
            changes = tuple(describe_run_changes(compared.changes, agent, sections))
    status: CaseStatus = "failed" if failures else "passed"
    if miss is not None:
        status = "failed" if failures else "missed"
        causes = find_miss_causes(miss, agent, case_runs, accepted_and_now(located, case_runs.runs))
        failures.append(_miss_failure(miss, [cause.text for cause in causes]))
        changes += tuple(cause for cause in causes if cause not in changes)
    if failures and (not changes or (miss is not None and miss.code == "cassette.unused")):
        changes += describe_sections(sections, changes)
    return replace(
        verdict,
        status=status,
        failures=tuple(failures),
        changes=changes,
        changed_tools=() if case_runs.is_live else changed_tools(case_runs.metadata, agent.file.agent),
        steps=run_steps(agent, case_runs) if failures else "",
        live=live,
        snapshot=compared.match,
        ignored=compared.ignored,
        tier="faulted" if case_runs.has_diverged else case_runs.runs[-1].tier if case_runs.runs else None,
        spent={each: getattr(evidence, each) for each in ("tokens", "cost", "turns", "time")},
    )


def _check_assertions(
    located: LocatedCase, agent: CompiledAgent, case_runs: CaseRuns, evidence: Evidence
) -> Iterator[CaseFailure]:
    may_reach = case_runs.is_live and not in_ci()
    assertions, run_count = located.assertions, len(case_runs.runs)
    last = located.turn_assertions[run_count - 1 : run_count] if case_runs.start_error is None else []
    if not any(isinstance(each, OutcomeIs) for each, _ in chain(assertions, *last)):
        assertions = [PlacedAssertion(DEFAULT_OUTCOME, None), *assertions]
    has_wrong_outcome = False
    for assertion, line in sorted(assertions, key=lambda each: not isinstance(each.assertion, OutcomeIs)):
        if isinstance(assertion, JournalSnapshot):
            continue
        failure = check_assertion(assertion, evidence, agent, may_reach=may_reach)
        if failure is None or (has_wrong_outcome and _follows_from_outcome(failure, case_runs, evidence)):
            continue
        if isinstance(assertion, OutcomeIs) and case_runs.start_error is not None:
            failure = _add_start_error(failure, case_runs.start_error)
        has_wrong_outcome |= isinstance(assertion, OutcomeIs)
        yield _placed(failure, located, line)
    for place in case_runs.untriggered_faults:
        message = f"the fault at {place} was not injected: the run made no such call"
        hint = "calls are counted from 1 in each run; compare the place with the steps of the run"
        yield CaseFailure(assertion="faults", message=message, hint=hint)
    for number, assertions in enumerate(located.turn_assertions):
        if assertions and number >= run_count:
            message = f"turn {number + 1}: the conversation ended before this turn"
            first, line = assertions[0]
            yield _placed(CaseFailure(assertion=assertion_name(first), message=message), located, line)
            return
        own = collect_evidence(CaseRuns(case_runs.runs[number : number + 1])) if assertions else evidence
        for assertion, line in assertions:
            if (failure := check_assertion(assertion, own, agent, may_reach=may_reach)) is not None:
                yield _placed(replace(failure, message=f"turn {number + 1}: {failure.message}"), located, line)


def _placed(failure: CaseFailure, located: LocatedCase, line: int | None) -> CaseFailure:
    """The failure with the line of its assertion."""
    return failure if line is None else replace(failure, file=display_path(located.file), line=line)


def _follows_from_outcome(failure: CaseFailure, case_runs: CaseRuns, evidence: Evidence) -> bool:
    """Whether an assertion failed only because the run did not start or has no answer."""
    return case_runs.start_error is not None or failure.message == no_answer_text(evidence)


def _add_start_error(failure: CaseFailure, error: AgentrunError) -> CaseFailure:
    """Add the reason why a run did not start, because it has no steps to show."""
    return replace(failure, message=f"{failure.message}: {error.message}", hint=failure.hint or error.hint)


def find_miss(case_runs: CaseRuns) -> AgentrunError | None:
    """Why the cassette does not match. None: it matches."""
    if isinstance(case_runs.any_error, CassetteError):
        return case_runs.any_error
    return ending_miss(case_runs.runs[-1]) if case_runs.runs else None


def _miss_failure(miss: AgentrunError, causes: list[str]) -> CaseFailure:
    """The miss and its explanation, with the causes that the explanation does not contain."""
    first, *rest = list(map(str, miss.fields.get("explanation", ()))) or [miss.message]
    explanation = "\n".join([miss.message, first, *rest])
    # The explanation names the changed sections, and may name several in one line.
    others = [
        f"  {cause}" for cause in causes if cause not in explanation and not cause.startswith("the spec's section")
    ]
    detail = "\n".join([first, *others, *rest]) if others or rest else ""
    return CaseFailure(assertion=miss.code, message=miss.message, detail=detail, hint=miss.hint)


def _apply_xfail(verdict: CaseVerdict, reason: str) -> CaseVerdict:
    if verdict.status in ("failed", "missed"):
        return replace(verdict, status="xfailed", reason=reason, steps="")
    message = f"the case passes, but `xfail` says that it fails: {reason}"
    failure = CaseFailure(assertion="xfail", message=message, hint="remove `xfail`")
    return replace(verdict, status="failed", reason=reason, failures=(failure,))
