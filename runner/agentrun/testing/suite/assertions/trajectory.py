"""Claims about calls.

Rule 1  A call counts whether it ran or not; `status` says what came of it.
Rule 2  Calls of sub-agents count only for targets with a slash, and in a list of all calls only if one has.
Rule 3  In any order, each call answers for one step at most, and the steps are given calls so that as many as can be
        have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from agentrun.core.package_lookup import matches_pattern
from agentrun.spec.safe_text import plural
from agentrun.spec.v1 import assertions as types
from agentrun.spec.v1.assertions import is_comparison
from agentrun.testing.suite.assertions.output import compile_regex, equals_as_json
from agentrun.testing.suite.assertions.result import (
    AssertionResult,
    indent_list,
    is_of_sub_agent,
    matches_target,
    sorted_json_text,
)
from agentrun.testing.suite.assertions.spend import check_count
from agentrun.testing.suite.evidence import Evidence, ObservedApproval, ObservedCall, ObservedRuling

MAX_CALL_LINE = 200
"""Characters of a line that shows a call, or why it does not fit."""


class ExpectedCall(NamedTuple):
    """A call as it is wanted."""

    tool: str
    args: dict[str, Any] | None = None
    status: str | None = None

    def fits(self, call: ObservedCall) -> bool:
        return matches_target(self.tool, call.tool) and self.mismatch(call) is None

    def mismatch(self, call: ObservedCall) -> str | None:
        """What is wrong with a call of the right tool."""
        if self.status is not None and not matches_pattern(self.status, call.status):
            return f"its status is {call.status}, not {self.status}"
        if self.args is None:
            return None
        if call.args is None:
            return "its arguments are no JSON object"
        return next(argument_mismatches(self.args, call.args), None)

    def __str__(self) -> str:
        args = "" if self.args is None else f" {sorted_json_text(self.args)}"
        return f"{self.tool}{args}{'' if self.status is None else f' → {self.status}'}"


def _expected_call(step: types.TrajectoryStepOrName) -> ExpectedCall:
    return (
        ExpectedCall(step)
        if isinstance(step, str)
        else ExpectedCall(step.tool, _none_if_unset(step.args), _none_if_unset(step.status))
    )


def _none_if_unset(value: Any) -> Any:
    return None if isinstance(value, UnsetType) else value


def _format_call(call: ObservedCall) -> str:
    args = "with arguments that are no JSON object" if call.args is None else sorted_json_text(call.args)
    return f"{call.tool} {args} → {call.status}"


def _format_calls(evidence: Evidence, calls: Iterable[ObservedCall], heading: str = "the calls:") -> str:
    lines = [evidence.quoted(f"{number} {_format_call(call)}", MAX_CALL_LINE) for number, call in enumerate(calls, 1)]
    return f"{heading}\n{indent_list(lines)}" if lines else "no call was made"


def _format_expected_and_made(evidence: Evidence, steps: Sequence[ExpectedCall], calls: Sequence[ObservedCall]) -> str:
    wanted = (
        indent_list(evidence.quoted(f"{number} {step}", MAX_CALL_LINE) for number, step in enumerate(steps, 1))
        or "  no calls"
    )
    return f"wanted:\n{wanted}\n{_format_calls(evidence, calls, 'made:')}"


def _relevant_calls(evidence: Evidence, steps: Iterable[ExpectedCall]) -> Sequence[ObservedCall]:
    """The calls that a list of steps is about."""
    if any(is_of_sub_agent(step.tool) for step in steps):
        return evidence.calls
    return [call for call in evidence.calls if not is_of_sub_agent(call.tool)]


def check_tools_exact(claim: types.ToolsExact, evidence: Evidence) -> AssertionResult:
    steps = [_expected_call(step) for step in claim.value]
    calls = _relevant_calls(evidence, steps)
    holds = len(steps) == len(calls) and all(step.fits(call) for step, call in zip(steps, calls, strict=True))

    def says() -> str:
        how = "these calls were made, and no others" if holds else _first_difference(evidence, steps, calls)
        return f"{how}\n{_format_expected_and_made(evidence, steps, calls)}"

    return AssertionResult(holds, says)


def _first_difference(evidence: Evidence, steps: Sequence[ExpectedCall], calls: Sequence[ObservedCall]) -> str:
    for number, (step, call) in enumerate(zip(steps, calls, strict=False), 1):
        if not matches_target(step.tool, call.tool):
            return evidence.quoted(f"call {number} is {call.tool}, not {step.tool}", MAX_CALL_LINE)
        if why := step.mismatch(call):
            return evidence.quoted(f"call {number}, {call.tool}: {why}", MAX_CALL_LINE)
    if len(calls) < len(steps):
        return evidence.quoted(f"call {len(calls) + 1}, {steps[len(calls)].tool}, was not made", MAX_CALL_LINE)
    return evidence.quoted(f"call {len(steps) + 1}, {calls[len(steps)].tool}, is one too many", MAX_CALL_LINE)


def check_tools_in_order(claim: types.ToolsInOrder, evidence: Evidence) -> AssertionResult:
    """Each step takes the first call that fits it: whoever takes a later one leaves less to the steps behind it."""
    steps = [_expected_call(step) for step in claim.value]
    calls = iter(evidence.calls)
    missing = next((step for step in steps if not any(step.fits(call) for call in calls)), None)

    def says() -> str:
        made = _relevant_calls(evidence, steps)
        if missing is None:
            return f"these calls were made in this order\n{_format_expected_and_made(evidence, steps, made)}"
        at = steps.index(missing)
        behind = f" after {steps[at - 1].tool}" if at else ""
        why = _first_mismatch(missing, evidence.calls)
        line = f"there is no call of {missing.tool}{behind} that fits{why}"
        return f"{evidence.quoted(line, MAX_CALL_LINE)}\n{_format_expected_and_made(evidence, steps, made)}"

    return AssertionResult(missing is None, says)


def check_tools_any_order(claim: types.ToolsAnyOrder, evidence: Evidence) -> AssertionResult:
    steps = [_expected_call(step) for step in claim.value]
    left = unmatched_steps([[at for at, call in enumerate(evidence.calls) if step.fits(call)] for step in steps])

    def says() -> str:
        made = _relevant_calls(evidence, steps)
        if not left:
            return f"these calls were made\n{_format_expected_and_made(evidence, steps, made)}"
        step = steps[left[0]]
        others = f", and for {plural(len(left) - 1, 'other')}" if len(left) > 1 else ""
        line = f"there is no call for {step.tool}{others}{_first_mismatch(step, evidence.calls)}"
        return f"{evidence.quoted(line, MAX_CALL_LINE)}\n{_format_expected_and_made(evidence, steps, made)}"

    return AssertionResult(not left, says)


def unmatched_steps(choices: Sequence[Sequence[int]]) -> list[int]:
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


def _first_mismatch(wanted: ExpectedCall, calls: Iterable[ObservedCall]) -> str:
    """Why the first call of the right tool does not fit."""
    whys = (wanted.mismatch(call) for call in calls if matches_target(wanted.tool, call.tool))
    why = next((why for why in whys if why), None)
    return f": {why}" if why else ""


def check_tool_called(claim: types.ToolCalled, evidence: Evidence) -> AssertionResult:
    wanted = ExpectedCall(claim.value, _none_if_unset(claim.args), _none_if_unset(claim.status))
    fits = [call for call in evidence.calls if wanted.fits(call)]

    def says() -> str:
        if fits:
            return f"{evidence.quoted(f'{wanted} was called', MAX_CALL_LINE)}\n{_format_calls(evidence, fits)}"
        about = [call for call in evidence.calls if matches_target(wanted.tool, call.tool)]
        if not about:
            return f"{wanted.tool} was not called\n{_format_calls(evidence, _relevant_calls(evidence, [wanted]))}"
        lines = [evidence.quoted(f"{_format_call(call)}: {wanted.mismatch(call)}", MAX_CALL_LINE) for call in about]
        mismatch = evidence.quoted(_first_mismatch(wanted, about), MAX_CALL_LINE)
        return f"no call of {wanted.tool} fits{mismatch}\n{indent_list(lines)}"

    return AssertionResult(bool(fits), says)


def check_tool_calls(claim: types.ToolCalls, evidence: Evidence) -> AssertionResult:
    calls = [call for call in evidence.calls if matches_target(claim.tool, call.tool)]
    verb = "made" if claim.tool == "*" else f"of {claim.tool} made"
    finding = check_count(len(calls), claim, "call", verb)
    return AssertionResult(finding.holds, lambda: f"{finding.describe()}\n{_format_calls(evidence, calls)}")


def check_step_status(claim: types.StepStatus, evidence: Evidence) -> AssertionResult:
    calls = [call for call in evidence.calls if matches_target(claim.tool, call.tool)]
    nth = None if isinstance(claim.nth, UnsetType) else claim.nth
    looked_at = calls if nth is None else calls[nth - 1 : nth]
    wrong = [call for call in looked_at if not matches_pattern(claim.value, call.status)]

    def says() -> str:
        if not looked_at:
            which = "was not called" if not calls else f"has no call {nth}; it was called {plural(len(calls), 'time')}"
            return f"{claim.tool} {which}"
        which = f"call {nth} of {claim.tool}" if nth is not None else f"a call of {claim.tool}"
        if wrong:
            return f"{which} ended with {wrong[0].status}, not {claim.value}\n{_format_calls(evidence, calls)}"
        which = which if nth is not None else f"every call of {claim.tool}"
        return f"{which} ended with {claim.value}\n{_format_calls(evidence, calls)}"

    return AssertionResult(bool(looked_at) and not wrong, says)


# --- whether the arguments of a call are those that were wanted -----------------------------------------------


def argument_mismatches(wanted: dict[str, Any], found: dict[str, Any], above: str = "") -> Iterator[str]:
    """What is not as it was wanted: which field, and which comparison it fails."""
    for name, value in wanted.items():
        if name in found:
            yield from _value_mismatches(value, found[name], f"{above}{name}")
        elif not (is_comparison(value) and value.get("present") is False):
            yield f"{above}{name} is missing"


def _value_mismatches(wanted: Any, found: Any, at: str) -> Iterator[str]:
    if is_comparison(wanted):
        for word, operand in wanted.items():
            if not _COMPARISONS[word](found, operand):
                yield f"{at} is {sorted_json_text(found)}, which fails {{{word}: {sorted_json_text(operand)}}}"
    elif isinstance(wanted, dict) and isinstance(found, dict):
        yield from argument_mismatches(wanted, found, f"{at}.")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from _value_mismatches(one, other, f"{at}.{index}")
    elif isinstance(wanted, dict | list) or not equals_as_json(wanted, found):
        yield f"{at} is {sorted_json_text(found)}, not {sorted_json_text(wanted)}"


def _compare_ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Numbers with numbers, texts with texts; nothing else has an order."""

    def holds(found: Any, operand: Any) -> bool:
        both = (_is_number(found) and _is_number(operand)) or (isinstance(found, str) and isinstance(operand, str))
        return both and compare(found, operand)

    return holds


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(found: Any, operand: Any) -> bool:
    if isinstance(found, list):
        return any(equals_as_json(item, operand) for item in found)
    return isinstance(found, str) and isinstance(operand, str) and operand in found


def _is_of_type(found: Any, name: str) -> bool:
    match found:
        case None:
            return name == "null"
        case bool():
            return name == "boolean"
        case int():
            return name in ("integer", "number")
        case float():
            return name == "number" or (name == "integer" and found.is_integer())
        case str():
            return name == "string"
        case list():
            return name == "array"
    return name == "object"


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": equals_as_json,
    "gt": _compare_ordered(lambda found, operand: found > operand),
    "gte": _compare_ordered(lambda found, operand: found >= operand),
    "lt": _compare_ordered(lambda found, operand: found < operand),
    "lte": _compare_ordered(lambda found, operand: found <= operand),
    "contains": _contains,
    "icontains": lambda found, text: isinstance(found, str) and text.casefold() in found.casefold(),
    "starts-with": lambda found, text: isinstance(found, str) and found.startswith(text),
    "regex": lambda found, pattern: isinstance(found, str) and compile_regex(pattern).search(found) is not None,
    "in": lambda found, values: any(equals_as_json(found, value) for value in values),
    "present": lambda found, wanted: wanted is True,
    "type": _is_of_type,
}
"""What each word asks of a value that is there."""


# --- claims about the policy and about people -----------------------------------------------------------------


def check_ruling(claim: types.RulingIs, evidence: Evidence) -> AssertionResult:
    """The policy ruled so, at least once."""
    fits = [each for each in evidence.rulings if _fits_ruling(claim, each)]

    def says() -> str:
        about = f"{claim.value} for {'anything' if claim.target == '*' else claim.target}"
        stage = "" if claim.stage is UNSET else f" on {claim.stage}"
        rule = "" if claim.rule is UNSET else f" by rule {evidence.quoted(claim.rule)}"
        if fits:
            return f"the policy ruled {about}{stage}{rule}\n{_format_rulings(evidence, fits)}"
        there = evidence.rulings
        rulings = _format_rulings(evidence, there) or "  it ruled on nothing"
        return f"the policy did not rule {about}{stage}{rule}\n{rulings}"

    return AssertionResult(bool(fits), says)


def _fits_ruling(claim: types.RulingIs, seen: ObservedRuling) -> bool:
    return (
        seen.ruling == claim.value
        and matches_target(claim.target, seen.target)
        and (claim.stage is UNSET or seen.stage == claim.stage)
        and (claim.rule is UNSET or claim.rule in seen.rules)
    )


def _format_rulings(evidence: Evidence, rulings: Iterable[ObservedRuling]) -> str:
    return indent_list(
        evidence.quoted(
            f"{seen.target} ({seen.stage}): {seen.ruling} by {', '.join(seen.rules) or 'default'}"
            if seen.target != seen.stage
            else f"{seen.target}: {seen.ruling} by {', '.join(seen.rules) or 'default'}"
        )
        for seen in rulings
    )


def check_approval(claim: types.ApprovalIs, evidence: Evidence) -> AssertionResult:
    """A person was asked and answered so, at least once."""
    about = [each for each in evidence.approvals if matches_target(claim.target, each.target)]
    fits = [each for each in about if each.answer == claim.value]

    def says() -> str:
        target = "" if claim.target == "*" else f" about {claim.target}"
        if fits:
            return f"the answer{target} is {claim.value}\n{_format_approvals(evidence, fits)}"
        if not about:
            return f"nobody was asked{target}, or nobody answered"
        return f"no answer{target} is {claim.value}\n{_format_approvals(evidence, about)}"

    return AssertionResult(bool(fits), says)


def _format_approvals(evidence: Evidence, answers: Iterable[ObservedApproval]) -> str:
    return indent_list(evidence.quoted(f"{seen.target}: {seen.answer} by {seen.by}") for seen in answers)
