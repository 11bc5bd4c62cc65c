"""Claims about calls.

Rule 1  A call counts whether it ran or not; `status` says what came of it.
Rule 2  Calls of sub-agents count only for targets with a slash, and in a list of all calls only if one has.
Rule 3  In any order, each call answers for one step at most, and the steps are given calls so that as many as can be
        have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import UnsetType

from agentrun.core.names import matches
from agentrun.spec.text import plural
from agentrun.spec.v1 import assertions as types
from agentrun.testing.suite.claims.arguments import misfits
from agentrun.testing.suite.claims.finding import Finding, in_json, is_below, is_meant, listed
from agentrun.testing.suite.claims.spend import in_number
from agentrun.testing.suite.evidence import Evidence
from agentrun.testing.suite.trail import Call

LONG = 200
"""Characters of a line that shows a call, or why it does not fit."""


class Wanted(NamedTuple):
    """A call as it is wanted."""

    tool: str
    args: dict[str, Any] | None = None
    status: str | None = None

    def fits(self, call: Call) -> bool:
        return is_meant(self.tool, call.tool) and self.why_not(call) is None

    def why_not(self, call: Call) -> str | None:
        """What is wrong with a call of the right tool."""
        if self.status is not None and not matches(self.status, call.status):
            return f"its status is {call.status}, not {self.status}"
        if self.args is None:
            return None
        if call.args is None:
            return "its arguments are no JSON object"
        return next(misfits(self.args, call.args), None)

    def __str__(self) -> str:
        args = "" if self.args is None else f" {in_json(self.args)}"
        return f"{self.tool}{args}{'' if self.status is None else f' → {self.status}'}"


def _wanted(step: types.AStep) -> Wanted:
    return Wanted(step) if isinstance(step, str) else Wanted(step.tool, _given(step.args), _given(step.status))


def _given(value: Any) -> Any:
    return None if isinstance(value, UnsetType) else value


def _shown(call: Call) -> str:
    args = "with arguments that are no JSON object" if call.args is None else in_json(call.args)
    return f"{call.tool} {args} → {call.status}"


def _calls(evidence: Evidence, calls: Iterable[Call], heading: str = "the calls:") -> str:
    lines = [evidence.quoted(f"{number} {_shown(call)}", LONG) for number, call in enumerate(calls, 1)]
    return f"{heading}\n{listed(lines)}" if lines else "no call was made"


def _both(evidence: Evidence, steps: Sequence[Wanted], calls: Sequence[Call]) -> str:
    wanted = listed(evidence.quoted(f"{number} {step}", LONG) for number, step in enumerate(steps, 1)) or "  no calls"
    return f"wanted:\n{wanted}\n{_calls(evidence, calls, 'made:')}"


def _in_question(evidence: Evidence, steps: Iterable[Wanted]) -> Sequence[Call]:
    """The calls that a list of steps is about."""
    if any(is_below(step.tool) for step in steps):
        return evidence.calls
    return [call for call in evidence.calls if not is_below(call.tool)]


def exact(claim: types.ToolsExact, evidence: Evidence) -> Finding:
    steps = [_wanted(step) for step in claim.value]
    calls = _in_question(evidence, steps)
    holds = len(steps) == len(calls) and all(step.fits(call) for step, call in zip(steps, calls, strict=True))

    def says() -> str:
        how = "these calls were made, and no others" if holds else _first_difference(evidence, steps, calls)
        return f"{how}\n{_both(evidence, steps, calls)}"

    return Finding(holds, says)


def _first_difference(evidence: Evidence, steps: Sequence[Wanted], calls: Sequence[Call]) -> str:
    for number, (step, call) in enumerate(zip(steps, calls, strict=False), 1):
        if not is_meant(step.tool, call.tool):
            return evidence.quoted(f"call {number} is {call.tool}, not {step.tool}", LONG)
        if why := step.why_not(call):
            return evidence.quoted(f"call {number}, {call.tool}: {why}", LONG)
    if len(calls) < len(steps):
        return evidence.quoted(f"call {len(calls) + 1}, {steps[len(calls)].tool}, was not made", LONG)
    return evidence.quoted(f"call {len(steps) + 1}, {calls[len(steps)].tool}, is one too many", LONG)


def in_order(claim: types.ToolsInOrder, evidence: Evidence) -> Finding:
    """Each step takes the first call that fits it: whoever takes a later one leaves less to the steps behind it."""
    steps = [_wanted(step) for step in claim.value]
    calls = iter(evidence.calls)
    missing = next((step for step in steps if not any(step.fits(call) for call in calls)), None)

    def says() -> str:
        made = _in_question(evidence, steps)
        if missing is None:
            return f"these calls were made in this order\n{_both(evidence, steps, made)}"
        at = steps.index(missing)
        behind = f" after {steps[at - 1].tool}" if at else ""
        why = _nearest(missing, evidence.calls)
        line = f"there is no call of {missing.tool}{behind} that fits{why}"
        return f"{evidence.quoted(line, LONG)}\n{_both(evidence, steps, made)}"

    return Finding(missing is None, says)


def any_order(claim: types.ToolsAnyOrder, evidence: Evidence) -> Finding:
    steps = [_wanted(step) for step in claim.value]
    left = unmatched([[at for at, call in enumerate(evidence.calls) if step.fits(call)] for step in steps])

    def says() -> str:
        made = _in_question(evidence, steps)
        if not left:
            return f"these calls were made\n{_both(evidence, steps, made)}"
        step = steps[left[0]]
        others = f", and for {plural(len(left) - 1, 'other')}" if len(left) > 1 else ""
        line = f"there is no call for {step.tool}{others}{_nearest(step, evidence.calls)}"
        return f"{evidence.quoted(line, LONG)}\n{_both(evidence, steps, made)}"

    return Finding(not left, says)


def unmatched(choices: Sequence[Sequence[int]]) -> list[int]:
    """The steps that get no call when as many as possible get one each. `choices`: the calls that fit each step.

    A step whose calls are all taken may have one if its owner can take another: the way there is searched in breadth.
    """
    owner: dict[int, int] = {}
    left: list[int] = []
    for step in range(len(choices)):
        came_from: dict[int, int] = {}
        pending, end = [step], None
        while pending and end is None:
            asking = pending.pop(0)
            for call in choices[asking]:
                if call not in came_from:
                    came_from[call] = asking
                    if call not in owner:
                        end = call
                        break
                    pending.append(owner[call])
        if end is None:
            left.append(step)
            continue
        holding = {taken: call for call, taken in owner.items()}
        while True:
            asking = came_from[end]
            owner[end] = asking
            if asking == step:
                break
            end = holding[asking]
    return left


def _nearest(wanted: Wanted, calls: Iterable[Call]) -> str:
    """Why the first call of the right tool does not fit."""
    whys = (wanted.why_not(call) for call in calls if is_meant(wanted.tool, call.tool))
    why = next((why for why in whys if why), None)
    return f": {why}" if why else ""


def called(claim: types.ToolCalled, evidence: Evidence) -> Finding:
    wanted = Wanted(claim.value, _given(claim.args), _given(claim.status))
    fits = [call for call in evidence.calls if wanted.fits(call)]

    def says() -> str:
        if fits:
            return f"{evidence.quoted(f'{wanted} was called', LONG)}\n{_calls(evidence, fits)}"
        about = [call for call in evidence.calls if is_meant(wanted.tool, call.tool)]
        if not about:
            return f"{wanted.tool} was not called\n{_calls(evidence, _in_question(evidence, [wanted]))}"
        lines = [evidence.quoted(f"{_shown(call)}: {wanted.why_not(call)}", LONG) for call in about]
        return f"no call of {wanted.tool} fits{evidence.quoted(_nearest(wanted, about), LONG)}\n{listed(lines)}"

    return Finding(bool(fits), says)


def counted(claim: types.ToolCalls, evidence: Evidence) -> Finding:
    calls = [call for call in evidence.calls if is_meant(claim.tool, call.tool)]
    verb = "made" if claim.tool == "*" else f"of {claim.tool} made"
    finding = in_number(len(calls), claim, "call", verb)
    return Finding(finding.holds, lambda: f"{finding.says()}\n{_calls(evidence, calls)}")


def ended(claim: types.StepStatus, evidence: Evidence) -> Finding:
    calls = [call for call in evidence.calls if is_meant(claim.tool, call.tool)]
    nth = None if isinstance(claim.nth, UnsetType) else claim.nth
    looked_at = calls if nth is None else calls[nth - 1 : nth]
    wrong = [call for call in looked_at if not matches(claim.value, call.status)]

    def says() -> str:
        if not looked_at:
            which = "was not called" if not calls else f"has no call {nth}; it was called {plural(len(calls), 'time')}"
            return f"{claim.tool} {which}"
        which = f"call {nth} of {claim.tool}" if nth is not None else f"a call of {claim.tool}"
        if wrong:
            return f"{which} ended with {wrong[0].status}, not {claim.value}\n{_calls(evidence, calls)}"
        which = which if nth is not None else f"every call of {claim.tool}"
        return f"{which} ended with {claim.value}\n{_calls(evidence, calls)}"

    return Finding(bool(looked_at) and not wrong, says)
