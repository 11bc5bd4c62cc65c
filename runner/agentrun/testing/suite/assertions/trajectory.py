"""Assertions on calls, rulings and approvals.

Rule 1  A call counts whether it ran or not; `status` is how it ended. An expectation without a status does not match a
        call that failed. With `not-` it matches every call: a call that failed was made all the same.
Rule 2  Calls of sub-agents count only for targets with a slash, and in a list of all calls only if a step has a slash.
Rule 3  In `tools-any-order`, each call matches at most one step, and as many steps as possible get a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from agentrun.canonical_json import same_json
from agentrun.core.package import matches_pattern
from agentrun.core.trajectory import OK_STATUS, OPEN_STATUS, ObservedApproval, ObservedCall, ObservedRuling
from agentrun.spec.safe_text import plural
from agentrun.spec.v1 import assertions as types
from agentrun.spec.v1.assertions import is_comparison
from agentrun.testing.suite.assertions.output import check_count, compile_regex
from agentrun.testing.suite.evidence import AssertionResult, Evidence, indent_list, sorted_json_text
from agentrun.testing.suite.stubs_and_faults import is_of_sub_agent, matches_target

MAX_CALL_LINE = 200


class ExpectedCall(NamedTuple):
    tool: str
    args: dict[str, Any] | None = None
    status: str | None = None
    may_fail: bool = False
    """Whether a call that failed matches, if there is no status."""

    def matches(self, call: ObservedCall) -> bool:
        return matches_target(self.tool, call.tool) and self.mismatch(call) is None

    def mismatch(self, call: ObservedCall) -> str | None:
        """Why a call of the right tool does not match."""
        if self.status is not None and not matches_pattern(self.status, call.status):
            return f"its status is {call.status}, not {self.status}"
        if self.args is not None and call.args is None:
            return "its arguments are not a JSON object"
        if mismatch := next(argument_mismatches(self.args or {}, call.args or {}), None):
            return mismatch
        if self.status is None and not self.may_fail and call.status not in (OK_STATUS, OPEN_STATUS):
            return f"it failed; if it should, expect status: {call.status}"
        return None

    def __str__(self) -> str:
        args = "" if self.args is None else f" {sorted_json_text(self.args)}"
        return f"{self.tool}{args}{'' if self.status is None else f' → {self.status}'}"


def _expected_calls(assertion: types.ToolsExact | types.ToolsInOrder | types.ToolsAnyOrder) -> list[ExpectedCall]:
    steps = [types.TrajectoryStep(tool=step) if isinstance(step, str) else step for step in assertion.value]
    return [_expected_call(step.tool, step, assertion) for step in steps]


def _expected_call(
    tool: str, step: types.TrajectoryStep | types.ToolCalled, assertion: types.AssertionBase
) -> ExpectedCall:
    return ExpectedCall(tool, _none_if_unset(step.args), _none_if_unset(step.status), may_fail=assertion.negated)


def _none_if_unset(value: Any) -> Any:
    return None if isinstance(value, UnsetType) else value


def _format_call(call: ObservedCall) -> str:
    args = "with arguments that are not a JSON object" if call.args is None else sorted_json_text(call.args)
    return f"{call.tool} {args} → {call.status}"


def _format_calls(evidence: Evidence, calls: Iterable[ObservedCall], heading: str = "the calls:") -> str:
    lines = [evidence.quoted(f"{number} {_format_call(call)}", MAX_CALL_LINE) for number, call in enumerate(calls, 1)]
    return f"{heading}\n{indent_list(lines)}" if lines else "no call was made"


def _format_expected_and_made(evidence: Evidence, steps: Sequence[ExpectedCall], calls: Sequence[ObservedCall]) -> str:
    lines = [evidence.quoted(f"{number} {step}", MAX_CALL_LINE) for number, step in enumerate(steps, 1)]
    return f"expected:\n{indent_list(lines) or '  no calls'}\n{_format_calls(evidence, calls, 'actual:')}"


def _relevant_calls(evidence: Evidence, steps: Iterable[ExpectedCall]) -> Sequence[ObservedCall]:
    """The calls that a list of steps is compared with."""
    if any(is_of_sub_agent(step.tool) for step in steps):
        return evidence.calls
    return [call for call in evidence.calls if not is_of_sub_agent(call.tool)]


def check_tools_exact(assertion: types.ToolsExact, evidence: Evidence) -> AssertionResult:
    steps = _expected_calls(assertion)
    calls = _relevant_calls(evidence, steps)
    holds = len(steps) == len(calls) and all(step.matches(call) for step, call in zip(steps, calls, strict=True))

    def describe() -> str:
        line = "exactly these calls were made" if holds else _first_difference(evidence, steps, calls)
        return f"{line}\n{_format_expected_and_made(evidence, steps, calls)}"

    return AssertionResult(holds, describe)


def _first_difference(evidence: Evidence, steps: Sequence[ExpectedCall], calls: Sequence[ObservedCall]) -> str:
    for number, (step, call) in enumerate(zip(steps, calls, strict=False), 1):
        if not matches_target(step.tool, call.tool):
            return evidence.quoted(f"call {number} is {call.tool}, not {step.tool}", MAX_CALL_LINE)
        if mismatch := step.mismatch(call):
            return evidence.quoted(f"call {number}, {call.tool}: {mismatch}", MAX_CALL_LINE)
    if len(calls) < len(steps):
        return evidence.quoted(f"call {len(calls) + 1}, {steps[len(calls)].tool}, was not made", MAX_CALL_LINE)
    return evidence.quoted(f"call {len(steps) + 1}, {calls[len(steps)].tool}, was not expected", MAX_CALL_LINE)


def check_tools_in_order(assertion: types.ToolsInOrder, evidence: Evidence) -> AssertionResult:
    """Each step takes the first call that matches, which leaves most calls for the next steps."""
    steps = _expected_calls(assertion)
    calls = iter(evidence.calls)
    missing = next((step for step in steps if not any(step.matches(call) for call in calls)), None)

    def describe() -> str:
        made = _relevant_calls(evidence, steps)
        if missing is None:
            return f"these calls were made in this order\n{_format_expected_and_made(evidence, steps, made)}"
        at = steps.index(missing)
        after = f" after {steps[at - 1].tool}" if at else ""
        line = f"no call of {missing.tool}{after} matches{_first_mismatch(missing, evidence.calls)}"
        return f"{evidence.quoted(line, MAX_CALL_LINE)}\n{_format_expected_and_made(evidence, steps, made)}"

    return AssertionResult(missing is None, describe)


def check_tools_any_order(assertion: types.ToolsAnyOrder, evidence: Evidence) -> AssertionResult:
    steps = _expected_calls(assertion)
    left = unmatched_steps([[at for at, call in enumerate(evidence.calls) if step.matches(call)] for step in steps])

    def describe() -> str:
        made = _relevant_calls(evidence, steps)
        if not left:
            return f"these calls were made\n{_format_expected_and_made(evidence, steps, made)}"
        step = steps[left[0]]
        others = f" and {plural(len(left) - 1, 'other step')}" if len(left) > 1 else ""
        line = f"no call matches {step.tool}{others}{_first_mismatch(step, evidence.calls)}"
        return f"{evidence.quoted(line, MAX_CALL_LINE)}\n{_format_expected_and_made(evidence, steps, made)}"

    return AssertionResult(not left, describe)


def unmatched_steps(choices: Sequence[Sequence[int]]) -> list[int]:
    """The steps without a call, if as many steps as possible get one. `choices`: the calls that match each step.

    A step whose calls are all taken gets one if the owner can take another call; searched breadth-first.
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
    mismatches = (wanted.mismatch(call) for call in calls if matches_target(wanted.tool, call.tool))
    first = next(filter(None, mismatches), None)
    return f": {first}" if first else ""


def check_tool_called(assertion: types.ToolCalled, evidence: Evidence) -> AssertionResult:
    wanted = _expected_call(assertion.value, assertion, assertion)
    matching = [call for call in evidence.calls if wanted.matches(call)]

    def describe() -> str:
        if matching:
            return f"{evidence.quoted(f'{wanted} was called', MAX_CALL_LINE)}\n{_format_calls(evidence, matching)}"
        about = [call for call in evidence.calls if matches_target(wanted.tool, call.tool)]
        if not about:
            return f"{wanted.tool} was not called\n{_format_calls(evidence, _relevant_calls(evidence, [wanted]))}"
        lines = [evidence.quoted(f"{_format_call(call)}: {wanted.mismatch(call)}", MAX_CALL_LINE) for call in about]
        mismatch = evidence.quoted(_first_mismatch(wanted, about), MAX_CALL_LINE)
        return f"no call of {wanted.tool} matches{mismatch}\n{indent_list(lines)}"

    return AssertionResult(bool(matching), describe)


def check_tool_calls(assertion: types.ToolCalls, evidence: Evidence) -> AssertionResult:
    calls = [call for call in evidence.calls if matches_target(assertion.tool, call.tool)]
    verb = "made" if assertion.tool == "*" else f"of {assertion.tool} made"
    result = check_count(len(calls), assertion, "call", verb)
    return AssertionResult(result.holds, lambda: f"{result.describe()}\n{_format_calls(evidence, calls)}")


def check_step_status(assertion: types.StepStatus, evidence: Evidence) -> AssertionResult:
    calls = [call for call in evidence.calls if matches_target(assertion.tool, call.tool)]
    nth = None if isinstance(assertion.nth, UnsetType) else assertion.nth
    checked = calls if nth is None else calls[nth - 1 : nth]
    different = [call for call in checked if not matches_pattern(assertion.value, call.status)]

    def describe() -> str:
        if not checked:
            which = "was not called" if not calls else f"has no call {nth}; it was called {plural(len(calls), 'time')}"
            return f"{assertion.tool} {which}"
        which = f"call {nth} of {assertion.tool}" if nth is not None else f"a call of {assertion.tool}"
        if different:
            return f"{which} ended with {different[0].status}, not {assertion.value}\n{_format_calls(evidence, calls)}"
        which = which if nth is not None else f"every call of {assertion.tool}"
        return f"{which} ended with {assertion.value}\n{_format_calls(evidence, calls)}"

    return AssertionResult(bool(checked) and not different, describe)


def argument_mismatches(wanted: dict[str, Any], actual: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, value in wanted.items():
        if name in actual:
            yield from _value_mismatches(value, actual[name], f"{above}{name}")
        elif not (is_comparison(value) and value.get("present") is False):
            yield f"{above}{name} is missing"


def _value_mismatches(wanted: Any, actual: Any, at: str) -> Iterator[str]:
    if is_comparison(wanted):
        for word, operand in wanted.items():
            if not _COMPARISONS[word](actual, operand):
                yield f"{at} is {sorted_json_text(actual)}, which fails {{{word}: {sorted_json_text(operand)}}}"
    elif isinstance(wanted, dict) and isinstance(actual, dict):
        yield from argument_mismatches(wanted, actual, f"{at}.")
    elif isinstance(wanted, list) and isinstance(actual, list) and len(wanted) == len(actual):
        for index, (one, other) in enumerate(zip(wanted, actual, strict=True)):
            yield from _value_mismatches(one, other, f"{at}.{index}")
    elif isinstance(wanted, dict | list) or not same_json(wanted, actual):
        yield f"{at} is {sorted_json_text(actual)}, not {sorted_json_text(wanted)}"


def _compare_ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Compare numbers with numbers and texts with texts. All other values have no order."""

    def holds(actual: Any, operand: Any) -> bool:
        both = (_is_number(actual) and _is_number(operand)) or (isinstance(actual, str) and isinstance(operand, str))
        return both and compare(actual, operand)

    return holds


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(actual: Any, operand: Any) -> bool:
    if isinstance(actual, list):
        return any(same_json(item, operand) for item in actual)
    return isinstance(actual, str) and isinstance(operand, str) and operand in actual


def _is_of_type(actual: Any, name: str) -> bool:
    match actual:
        case None:
            return name == "null"
        case bool():
            return name == "boolean"
        case int():
            return name in ("integer", "number")
        case float():
            return name == "number" or (name == "integer" and actual.is_integer())
        case str():
            return name == "string"
        case list():
            return name == "array"
    return name == "object"


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": same_json,
    "gt": _compare_ordered(gt),
    "gte": _compare_ordered(ge),
    "lt": _compare_ordered(lt),
    "lte": _compare_ordered(le),
    "contains": _contains,
    "icontains": lambda actual, text: isinstance(actual, str) and text.casefold() in actual.casefold(),
    "starts-with": lambda actual, text: isinstance(actual, str) and actual.startswith(text),
    "regex": lambda actual, pattern: isinstance(actual, str) and compile_regex(pattern).search(actual) is not None,
    "in": lambda actual, values: any(same_json(actual, value) for value in values),
    "present": lambda actual, wanted: wanted is True,
    "type": _is_of_type,
}
"""The comparison of an existing value with an operand."""


def check_ruling(assertion: types.RulingIs, evidence: Evidence) -> AssertionResult:
    """The policy must have ruled like this at least once."""
    matching = [each for each in evidence.rulings if _matches_ruling(assertion, each)]

    def describe() -> str:
        about = f"{assertion.value} for {'anything' if assertion.target == '*' else assertion.target}"
        stage = "" if assertion.stage is UNSET else f" on {assertion.stage}"
        rule = "" if assertion.rule is UNSET else f" by rule {evidence.quoted(assertion.rule)}"
        if matching:
            return f"the policy ruled {about}{stage}{rule}\n{_format_rulings(evidence, matching)}"
        rulings = _format_rulings(evidence, evidence.rulings) or "  there were no rulings"
        return f"the policy did not rule {about}{stage}{rule}\n{rulings}"

    return AssertionResult(bool(matching), describe)


def _matches_ruling(assertion: types.RulingIs, each: ObservedRuling) -> bool:
    return (
        each.ruling == assertion.value
        and matches_target(assertion.target, each.target)
        and (assertion.stage is UNSET or each.stage == assertion.stage)
        and (assertion.rule is UNSET or assertion.rule in each.rules)
    )


def _format_rulings(evidence: Evidence, rulings: Iterable[ObservedRuling]) -> str:
    def line(each: ObservedRuling) -> str:
        stage = "" if each.target == each.stage else f" ({each.stage})"
        return f"{each.target}{stage}: {each.ruling} by {', '.join(each.rules) or 'default'}"

    return indent_list(evidence.quoted(line(each)) for each in rulings)


def check_approval(assertion: types.ApprovalIs, evidence: Evidence) -> AssertionResult:
    """An approval must have been answered like this at least once."""
    about = [each for each in evidence.approvals if matches_target(assertion.target, each.target)]
    matching = [each for each in about if each.answer == assertion.value]

    def describe() -> str:
        target = "" if assertion.target == "*" else f" about {assertion.target}"
        if matching:
            return f"the answer{target} is {assertion.value}\n{_format_approvals(evidence, matching)}"
        if not about:
            return f"there is no answer to an approval{target}"
        return f"no answer{target} is {assertion.value}\n{_format_approvals(evidence, about)}"

    return AssertionResult(bool(matching), describe)


def _format_approvals(evidence: Evidence, answers: Iterable[ObservedApproval]) -> str:
    return indent_list(evidence.quoted(f"{each.target}: {each.answer} by {each.by}") for each in answers)
