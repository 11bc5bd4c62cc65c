"""One case, from its file to a verdict.

Rule 1  A case that says nothing of its outcome must complete. Of a conversation the turn that ended it may say it.
Rule 2  Where the recording does not fit, nothing is claimed of a run that did not happen: only the miss is told.
Rule 3  Interactions that nobody asked for are a miss too, but of a run that can be judged.
Rule 4  They are none where the recording is that of another case: that one must play all of it.
Rule 5  Nor are they where a fault made the run another one than the recorded. The tier of such a run is `faulted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.outcome import Outcome
from agentrun.engine.pipeline import in_ci
from agentrun.errors import AgentrunError, CassetteError, SpecError
from agentrun.spec.files import shown_path
from agentrun.spec.v1.assertions import Assertion, JournalSnapshot, OutcomeIs, Python
from agentrun.spec.v1.cases import Turn
from agentrun.testing.suite.causes import causes_of, sections_changed
from agentrun.testing.suite.claims import judged, name_of
from agentrun.testing.suite.evidence import Evidence, evidence_of
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.played import Played, is_consequence, is_left_to_another, play
from agentrun.testing.suite.prepared import Preparations, Prepared
from agentrun.testing.suite.snapshots import Compare, accepted, compared
from agentrun.testing.suite.told import story_of
from agentrun.testing.suite.verdict import Complaint, Status, Verdict, complaints_of

Play: TypeAlias = Callable[[Found, Prepared], Played]

COMPLETES = OutcomeIs(value="completed")


def evaluate(found: Found, preparations: Preparations, compare: Compare, carry_out: Play = play) -> Verdict:
    """Run a case and judge it. `carry_out`: how it is run, by default from its recording."""
    began = perf_counter()
    case = found.case
    verdict = Verdict(id=found.id, file=shown_path(found.file), line=found.line, status="passed")
    if case.skip is not UNSET:
        return replace(verdict, status="skipped", reason=case.skip)
    try:
        prepared = preparations.of(found)
    except SpecError as error:
        return replace(verdict, status="unreadable", complaints=complaints_of(error.problems))
    played = carry_out(found, prepared)
    if played.unrecorded is not None:
        return replace(_unrecorded(verdict, prepared, played, played.unrecorded), seconds=perf_counter() - began)
    verdict = _judged(verdict, found, prepared, played, compare)
    verdict = replace(verdict, seconds=perf_counter() - began)
    return verdict if case.xfail is UNSET else _expected(verdict, case.xfail)


def _judged(verdict: Verdict, found: Found, prepared: Prepared, played: Played, compare: Compare) -> Verdict:
    evidence = evidence_of(played)
    miss = miss_of(played)
    if miss is not None and (is_left_to_another(found, miss) or is_consequence(played, miss)):
        miss = None  # Rules 4 and 5
    complaints: list[Complaint] = []
    changes: tuple[str, ...] = ()
    snapshots = [claim for claim in found.case.claims if isinstance(claim, JournalSnapshot)]
    live: tuple[str, ...] = ()
    if miss is None or miss.code == "cassette.unused":
        live = _live(found, played)
        complaints += _claims(found, prepared, played, evidence)
        if snapshots and played.runs:
            wrong, changes = compared(found, played.runs, compare, negated=snapshots[0].negated)
            complaints += wrong
    status: Status = "failed" if complaints else "passed"
    if miss is not None:
        status = "failed" if complaints else "missed"
        causes = causes_of(miss, played, accepted(found, "") if snapshots else None)
        complaints.append(_told(miss, causes))
        changes += tuple(cause for cause in causes if cause not in changes)
    if complaints and (not changes or (miss is not None and miss.code == "cassette.unused")):
        changes += sections_changed(found, prepared)
    return replace(
        verdict,
        status=status,
        complaints=tuple(complaints),
        changes=changes,
        story=story_of(prepared, played) if complaints else "",
        live=live,
        tier="faulted" if played.strayed else played.runs[-1].tier if played.runs else None,
        spent={each: getattr(evidence, each) for each in ("tokens", "cost", "turns", "time")},
    )


def _claims(found: Found, prepared: Prepared, played: Played, evidence: Evidence) -> Iterator[Complaint]:
    """What does not hold of the whole, then of each turn of a conversation."""
    may_reach = played.is_live and not in_ci()
    turns = [] if found.case.turns is UNSET else found.case.turns[len(played.runs) - 1 : len(played.runs)]
    last = [claim for turn in turns if isinstance(turn, Turn) for claim in turn.claims]
    for claim in _with_outcome(found.case.claims, last if played.error is None else []):
        if isinstance(claim, JournalSnapshot):
            continue
        if (wrong := judged(claim, evidence, prepared, may_reach=may_reach)) is not None:
            yield wrong if played.error is None else _without_run(wrong, played.error)
    for place in played.unmet:
        hint = "a place is counted from 1 in each run: see the story"
        yield Complaint(claim="faults", message=f"the fault at {place} never happened", hint=hint)
    if found.case.turns is UNSET:
        return
    for number, turn in enumerate(found.case.turns):
        claims = turn.claims if isinstance(turn, Turn) else []
        if claims and number >= len(played.runs):
            message = f"turn {number + 1}: the conversation ended before it"
            yield Complaint(claim=name_of(claims[0]), message=message)
            return
        own = evidence_of(Played(played.runs[number : number + 1])) if claims else evidence
        for claim in claims:
            if (wrong := judged(claim, own, prepared, may_reach=may_reach)) is not None:
                yield replace(wrong, message=f"turn {number + 1}: {wrong.message}")


def _live(found: Found, played: Played) -> tuple[str, ...]:
    """The functions that judge a case with the network, because it says so."""
    turns = [] if found.case.turns is UNSET else found.case.turns[: len(played.runs)]
    claims = [*found.case.claims, *(claim for turn in turns if isinstance(turn, Turn) for claim in turn.claims)]
    return tuple(sorted({claim.value for claim in claims if isinstance(claim, Python) and claim.network}))


def _without_run(wrong: Complaint, error: AgentrunError) -> Complaint:
    """The complaint about a run that did not start, with why: no story tells it."""
    return replace(wrong, detail="\n".join(filter(None, [wrong.detail, error.message])), hint=wrong.hint or error.hint)


def _with_outcome(claims: list[Assertion], last: list[Assertion]) -> list[Assertion]:
    """`last`: the claims of the turn that ended a conversation."""
    return claims if any(isinstance(claim, OutcomeIs) for claim in (*claims, *last)) else [COMPLETES, *claims]


def miss_of(played: Played) -> AgentrunError | None:
    """Why the recording does not fit. None: it does."""
    if isinstance(played.problem, CassetteError):
        return played.problem
    end = played.runs[-1].ended if played.runs else None
    if isinstance(end, Outcome) and end.fault is not None and end.fault.code.startswith("cassette."):
        return CassetteError(end.fault.code, end.fault.message, hint=end.fault.hint, fields=end.fault.fields)
    return None


def _unrecorded(verdict: Verdict, prepared: Prepared, played: Played, why: AgentrunError) -> Verdict:
    """The verdict on a case that was to be recorded and is not: nothing else is said of it."""
    wrong = Complaint(claim="record", message=f"not recorded: {why.message}", hint=why.hint)
    return replace(verdict, status="missed", complaints=(wrong,), story=story_of(prepared, played))


def _told(miss: AgentrunError, causes: tuple[str, ...]) -> Complaint:
    """The miss, and above its explanation what of its causes is not in it."""
    lines = list(map(str, miss.fields.get("story", ())))
    known = "\n".join([miss.message, *lines])
    lines = [*(cause for cause in causes if cause not in known), *lines]
    return Complaint(claim=miss.code, message=miss.message, detail="\n".join(lines), hint=miss.hint)


def _expected(verdict: Verdict, reason: str) -> Verdict:
    """The verdict on a case that is known to fail."""
    if verdict.status in ("failed", "missed"):
        return replace(verdict, status="xfailed", reason=reason, story="")
    wrong = Complaint(claim="xfail", message=f"it passes, although it is said to fail: {reason}", hint="remove `xfail`")
    return replace(verdict, status="failed", reason=reason, complaints=(wrong,))
