"""Run one case and judge it.

Rule 1  A case without an `outcome` assertion must complete. In a conversation, the last turn may have the assertion.
Rule 2  After a miss no assertion is checked, because the run did not happen. Only the miss is reported.
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

from agentrun.engine.ci import in_ci
from agentrun.errors import AgentrunError, CassetteError, SpecError
from agentrun.spec.v1.assertions import JournalSnapshot, OutcomeIs, PythonAssertion
from agentrun.testing.suite.assertions import assertion_name, check_assertion
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.evidence import Evidence, collect_evidence
from agentrun.testing.suite.failure_text import run_story
from agentrun.testing.suite.miss_causes import changed_section_texts, find_miss_causes
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
from agentrun.testing.suite.snapshots import SnapshotLookup, accepted_snapshot, compare_snapshot
from agentrun.testing.suite.verdict import CaseStatus, CaseVerdict, Complaint, case_verdict, complaints_of_problems

DEFAULT_OUTCOME = OutcomeIs(value="completed")


def evaluate_case(
    located: LocatedCase, agents: CompiledAgents, compare: SnapshotLookup, run_case: CaseRunner = replay_case
) -> CaseVerdict:
    """Run a case and judge it. By default it is replayed."""
    began = perf_counter()
    case = located.case
    verdict = case_verdict(located, "passed")
    if case.skip is not UNSET:
        return replace(verdict, status="skipped", reason=case.skip)
    try:
        agent = agents.for_case(located)
    except SpecError as error:
        return replace(verdict, status="unreadable", complaints=complaints_of_problems(error.problems))
    case_runs = run_case(located, agent)
    if (why := case_runs.recording_error) is not None:
        complaint = Complaint(claim="record", message=f"not recorded: {why.message}", hint=why.hint)
        verdict = replace(verdict, status="missed", complaints=(complaint,), story=run_story(agent, case_runs))
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
    complaints: list[Complaint] = []
    changes: tuple[str, ...] = ()
    snapshot = located.snapshot
    live: tuple[str, ...] = ()
    if miss is None or miss.code == "cassette.unused":
        live = _live_functions(located, case_runs)
        complaints += _check_assertions(located, agent, case_runs, evidence)
        if snapshot is not None and case_runs.runs:
            more, changes = compare_snapshot(located, case_runs.runs, compare, negated=snapshot.negated)
            complaints += more
    status: CaseStatus = "failed" if complaints else "passed"
    if miss is not None:
        status = "failed" if complaints else "missed"
        causes = find_miss_causes(miss, case_runs, accepted_snapshot(located, "") if snapshot else None)
        complaints.append(_miss_complaint(miss, causes))
        changes += tuple(cause for cause in causes if cause not in changes)
    if complaints and (not changes or (miss is not None and miss.code == "cassette.unused")):
        changes += changed_section_texts(located, agent)
    return replace(
        verdict,
        status=status,
        complaints=tuple(complaints),
        changes=changes,
        story=run_story(agent, case_runs) if complaints else "",
        live=live,
        tier="faulted" if case_runs.has_diverged else case_runs.runs[-1].tier if case_runs.runs else None,
        spent={each: getattr(evidence, each) for each in ("tokens", "cost", "turns", "time")},
    )


def _check_assertions(
    located: LocatedCase, agent: CompiledAgent, case_runs: CaseRuns, evidence: Evidence
) -> Iterator[Complaint]:
    """Check the assertions of the case, then those of each turn of a conversation."""
    may_reach = case_runs.is_live and not in_ci()
    assertions, run_count = located.case.assertions, len(case_runs.runs)
    last = located.turn_assertions[run_count - 1 : run_count] if case_runs.start_error is None else []
    if not any(isinstance(each, OutcomeIs) for each in chain(assertions, *last)):
        assertions = [DEFAULT_OUTCOME, *assertions]
    for assertion in assertions:
        if isinstance(assertion, JournalSnapshot):
            continue
        if (complaint := check_assertion(assertion, evidence, agent, may_reach=may_reach)) is not None:
            yield complaint if case_runs.start_error is None else _add_start_error(complaint, case_runs.start_error)
    for place in case_runs.untriggered_faults:
        message = f"the fault at {place} was not injected: the run made no such call"
        hint = "calls are counted from 1 in each run; compare the place with the steps of the run"
        yield Complaint(claim="faults", message=message, hint=hint)
    for number, assertions in enumerate(located.turn_assertions):
        if assertions and number >= run_count:
            message = f"turn {number + 1}: the conversation ended before this turn"
            yield Complaint(claim=assertion_name(assertions[0]), message=message)
            return
        own = collect_evidence(CaseRuns(case_runs.runs[number : number + 1])) if assertions else evidence
        for assertion in assertions:
            if (complaint := check_assertion(assertion, own, agent, may_reach=may_reach)) is not None:
                yield replace(complaint, message=f"turn {number + 1}: {complaint.message}")


def _live_functions(located: LocatedCase, case_runs: CaseRuns) -> tuple[str, ...]:
    """The assertion functions with `network: true`."""
    every = chain(located.case.assertions, *located.turn_assertions[: len(case_runs.runs)])
    return tuple(sorted({each.value for each in every if isinstance(each, PythonAssertion) and each.network}))


def _add_start_error(complaint: Complaint, error: AgentrunError) -> Complaint:
    """Add the reason why a run did not start, because it has no steps to show."""
    detail = "\n".join(filter(None, [complaint.detail, error.message]))
    return replace(complaint, detail=detail, hint=complaint.hint or error.hint)


def find_miss(case_runs: CaseRuns) -> AgentrunError | None:
    """Why the cassette does not match. None: it matches."""
    if isinstance(case_runs.any_error, CassetteError):
        return case_runs.any_error
    return ending_miss(case_runs.runs[-1]) if case_runs.runs else None


def _miss_complaint(miss: AgentrunError, causes: tuple[str, ...]) -> Complaint:
    """The miss, with the causes that its explanation does not contain, and the explanation."""
    lines = list(map(str, miss.fields.get("story", ())))
    explanation = "\n".join([miss.message, *lines])
    lines = [*(cause for cause in causes if cause not in explanation), *lines]
    return Complaint(claim=miss.code, message=miss.message, detail="\n".join(lines), hint=miss.hint)


def _apply_xfail(verdict: CaseVerdict, reason: str) -> CaseVerdict:
    if verdict.status in ("failed", "missed"):
        return replace(verdict, status="xfailed", reason=reason, story="")
    message = f"the case passes, but `xfail` says that it fails: {reason}"
    complaint = Complaint(claim="xfail", message=message, hint="remove `xfail`")
    return replace(verdict, status="failed", reason=reason, complaints=(complaint,))
