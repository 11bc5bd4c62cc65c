"""One case, from its file to a verdict.

Rule 1  A case that says nothing of its outcome must complete. Of a conversation the turn that ended it may say it.
Rule 2  Where the recording does not fit, nothing is claimed of a run that did not happen: only the miss is told.
Rule 3  Interactions that nobody asked for are a miss too, but of a run that can be judged.
Rule 4  They are none where the recording is that of another case: that one must play all of it.
Rule 5  Nor are they where a fault made the run another one than the recorded. The tier of such a run is `faulted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.outcome import Outcome
from agentrun.engine.ci import in_ci
from agentrun.errors import AgentrunError, CassetteError, SpecError
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.assertions import Assertion, JournalSnapshot, OutcomeIs, PythonAssertion
from agentrun.spec.v1.cases import CaseTurn
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
    is_rest_after_fault,
    is_rest_of_shared_cassette,
    replay_case,
)
from agentrun.testing.suite.snapshots import SnapshotLookup, accepted_snapshot, compare_snapshot
from agentrun.testing.suite.verdict import CaseStatus, CaseVerdict, Complaint, complaints_of_problems

DEFAULT_OUTCOME = OutcomeIs(value="completed")


def evaluate_case(
    found: LocatedCase, preparations: CompiledAgents, compare: SnapshotLookup, carry_out: CaseRunner = replay_case
) -> CaseVerdict:
    """Run a case and judge it. `carry_out`: how it is run, by default from its recording."""
    began = perf_counter()
    case = found.case
    verdict = CaseVerdict(id=found.id, file=display_path(found.file), line=found.line, status="passed")
    if case.skip is not UNSET:
        return replace(verdict, status="skipped", reason=case.skip)
    try:
        prepared = preparations.for_case(found)
    except SpecError as error:
        return replace(verdict, status="unreadable", complaints=complaints_of_problems(error.problems))
    played = carry_out(found, prepared)
    if played.recording_error is not None:
        return replace(
            _not_recorded_verdict(verdict, prepared, played, played.recording_error), seconds=perf_counter() - began
        )
    verdict = _judge(verdict, found, prepared, played, compare)
    verdict = replace(verdict, seconds=perf_counter() - began)
    return verdict if case.xfail is UNSET else _apply_xfail(verdict, case.xfail)


def _judge(
    verdict: CaseVerdict, found: LocatedCase, prepared: CompiledAgent, played: CaseRuns, compare: SnapshotLookup
) -> CaseVerdict:
    evidence = collect_evidence(played)
    miss = find_miss(played)
    if miss is not None and (is_rest_of_shared_cassette(found, miss) or is_rest_after_fault(played, miss)):
        miss = None  # Rules 4 and 5
    complaints: list[Complaint] = []
    changes: tuple[str, ...] = ()
    snapshots = [claim for claim in found.case.assertions if isinstance(claim, JournalSnapshot)]
    live: tuple[str, ...] = ()
    if miss is None or miss.code == "cassette.unused":
        live = _live_functions(found, played)
        complaints += _check_assertions(found, prepared, played, evidence)
        if snapshots and played.runs:
            wrong, changes = compare_snapshot(found, played.runs, compare, negated=snapshots[0].negated)
            complaints += wrong
    status: CaseStatus = "failed" if complaints else "passed"
    if miss is not None:
        status = "failed" if complaints else "missed"
        causes = find_miss_causes(miss, played, accepted_snapshot(found, "") if snapshots else None)
        complaints.append(_miss_complaint(miss, causes))
        changes += tuple(cause for cause in causes if cause not in changes)
    if complaints and (not changes or (miss is not None and miss.code == "cassette.unused")):
        changes += changed_section_texts(found, prepared)
    return replace(
        verdict,
        status=status,
        complaints=tuple(complaints),
        changes=changes,
        story=run_story(prepared, played) if complaints else "",
        live=live,
        tier="faulted" if played.has_diverged else played.runs[-1].tier if played.runs else None,
        spent={each: getattr(evidence, each) for each in ("tokens", "cost", "turns", "time")},
    )


def _check_assertions(
    found: LocatedCase, prepared: CompiledAgent, played: CaseRuns, evidence: Evidence
) -> Iterator[Complaint]:
    """What does not hold of the whole, then of each turn of a conversation."""
    may_reach = played.is_live and not in_ci()
    turns = [] if found.case.turns is UNSET else found.case.turns[len(played.runs) - 1 : len(played.runs)]
    last = [claim for turn in turns if isinstance(turn, CaseTurn) for claim in turn.assertions]
    for claim in _add_default_outcome(found.case.assertions, last if played.start_error is None else []):
        if isinstance(claim, JournalSnapshot):
            continue
        if (wrong := check_assertion(claim, evidence, prepared, may_reach=may_reach)) is not None:
            yield wrong if played.start_error is None else _add_start_error(wrong, played.start_error)
    for place in played.untriggered_faults:
        hint = "a place is counted from 1 in each run: see the story"
        yield Complaint(claim="faults", message=f"the fault at {place} never happened", hint=hint)
    if found.case.turns is UNSET:
        return
    for number, turn in enumerate(found.case.turns):
        claims = turn.assertions if isinstance(turn, CaseTurn) else []
        if claims and number >= len(played.runs):
            message = f"turn {number + 1}: the conversation ended before it"
            yield Complaint(claim=assertion_name(claims[0]), message=message)
            return
        own = collect_evidence(CaseRuns(played.runs[number : number + 1])) if claims else evidence
        for claim in claims:
            if (wrong := check_assertion(claim, own, prepared, may_reach=may_reach)) is not None:
                yield replace(wrong, message=f"turn {number + 1}: {wrong.message}")


def _live_functions(found: LocatedCase, played: CaseRuns) -> tuple[str, ...]:
    """The functions that judge a case with the network, because it says so."""
    turns = [] if found.case.turns is UNSET else found.case.turns[: len(played.runs)]
    claims = [
        *found.case.assertions,
        *(claim for turn in turns if isinstance(turn, CaseTurn) for claim in turn.assertions),
    ]
    return tuple(sorted({claim.value for claim in claims if isinstance(claim, PythonAssertion) and claim.network}))


def _add_start_error(wrong: Complaint, error: AgentrunError) -> Complaint:
    """The complaint about a run that did not start, with why: no story tells it."""
    return replace(wrong, detail="\n".join(filter(None, [wrong.detail, error.message])), hint=wrong.hint or error.hint)


def _add_default_outcome(claims: list[Assertion], last: list[Assertion]) -> list[Assertion]:
    """`last`: the claims of the turn that ended a conversation."""
    return claims if any(isinstance(claim, OutcomeIs) for claim in (*claims, *last)) else [DEFAULT_OUTCOME, *claims]


def find_miss(played: CaseRuns) -> AgentrunError | None:
    """Why the recording does not fit. None: it does."""
    if isinstance(played.any_error, CassetteError):
        return played.any_error
    end = played.runs[-1].ending if played.runs else None
    if isinstance(end, Outcome) and end.fault is not None and end.fault.code.startswith("cassette."):
        return CassetteError(end.fault.code, end.fault.message, hint=end.fault.hint, fields=end.fault.fields)
    return None


def _not_recorded_verdict(
    verdict: CaseVerdict, prepared: CompiledAgent, played: CaseRuns, why: AgentrunError
) -> CaseVerdict:
    """The verdict on a case that was to be recorded and is not: nothing else is said of it."""
    wrong = Complaint(claim="record", message=f"not recorded: {why.message}", hint=why.hint)
    return replace(verdict, status="missed", complaints=(wrong,), story=run_story(prepared, played))


def _miss_complaint(miss: AgentrunError, causes: tuple[str, ...]) -> Complaint:
    """The miss, and above its explanation what of its causes is not in it."""
    lines = list(map(str, miss.fields.get("story", ())))
    known = "\n".join([miss.message, *lines])
    lines = [*(cause for cause in causes if cause not in known), *lines]
    return Complaint(claim=miss.code, message=miss.message, detail="\n".join(lines), hint=miss.hint)


def _apply_xfail(verdict: CaseVerdict, reason: str) -> CaseVerdict:
    """The verdict on a case that is known to fail."""
    if verdict.status in ("failed", "missed"):
        return replace(verdict, status="xfailed", reason=reason, story="")
    wrong = Complaint(claim="xfail", message=f"it passes, although it is said to fail: {reason}", hint="remove `xfail`")
    return replace(verdict, status="failed", reason=reason, complaints=(wrong,))
