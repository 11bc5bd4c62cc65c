"""Checks of assertions before a run: find those that can never be evaluated, or can never pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from agentrun.compiler.agent_names import AgentNames
from agentrun.compiler.conditions import (
    ASSERTION_VARIABLES,
    check_condition,
    compile_assertion_expression,
    known_names_hint,
)
from agentrun.compiler.jmespath import jmespath_problems
from agentrun.compiler.json_schemas import check_schema
from agentrun.compiler.patterns import pattern_problems, pattern_problems_at
from agentrun.compiler.python_functions import callback_problems, find_function
from agentrun.core.package_lookup import matches_pattern
from agentrun.errors import ERROR_CODES, TOOL_RESULT_CODES
from agentrun.spec.problems import Problem, SourcePlace, did_you_mean, quote_text
from agentrun.spec.project import Project
from agentrun.spec.schema_check import describe_json_type
from agentrun.spec.tree import MappingNode, ScalarNode, node_at, place_at_path
from agentrun.spec.v1 import assertions as types
from agentrun.spec.v1.assertions import COMPARISON_TYPES, COMPARISONS, Assertion, is_comparison
from agentrun.spec.v1.field_types import milliseconds, parse_count


class AssertionLint:
    """Checks the assertions of one file."""

    def __init__(self, root: MappingNode, project: Project | None) -> None:
        self._root = root
        self._project = project

    def problems(self, path: CasePath, assertion: Assertion, names: AgentNames | None) -> Iterator[Problem]:
        """Yield the problems of an assertion. `path`: its path. `names`: the names of the agent, if known."""
        node = node_at(self._root, [*path, "value"])
        match assertion:
            case types.Regex() if isinstance(node, ScalarNode):
                yield from pattern_problems(node)
            case types.JsonSchemaAssertion() | types.IsJson():
                yield from check_schema(node) if node is not None else ()
            case types.JmespathAssertion() if isinstance(node, ScalarNode):
                yield from jmespath_problems(node, "the answer")
            case types.CelAssertion() if isinstance(node, ScalarNode):
                yield from _cel(node, names)
            case types.PythonAssertion():
                yield from self._python(path, assertion)
            case types.ToolsExact() | types.ToolsInOrder() | types.ToolsAnyOrder():
                yield from self._steps(path, assertion.value, names)
            case types.ToolCalled():
                tool, args, status = assertion.value, assertion.args, assertion.status
                yield from check_expected_call(self._root, path, "value", names, tool, args, status)
            case types.ToolCalls():
                if assertion.tool != "*":
                    yield from check_tool_target(self._root, [*path, "tool"], assertion.tool, names)
                yield from self._range(path, assertion)
            case types.StepStatus():
                yield from check_tool_target(self._root, [*path, "tool"], assertion.tool, names, assertion.value)
                yield from check_code(self._root, [*path, "value"], assertion.value, CALL_STATUSES, "call status")
            case types.RulingIs() | types.ApprovalIs():
                yield from self._gate(path, assertion, names)
            case types.TokensAssertion() | types.CostAssertion() | types.TurnsAssertion() | types.TimeAssertion():
                yield from self._range(path, assertion)
            case types.OutcomeIs():
                yield from check_code(self._root, [*path, "value"], assertion.value, RUN_OUTCOMES, "run outcome")

    def _steps(
        self, path: CasePath, steps: list[types.TrajectoryStepOrName], names: AgentNames | None
    ) -> Iterator[Problem]:
        for index, step in enumerate(steps):
            place: CasePath = [*path, "value", index]
            if isinstance(step, str):
                yield from check_tool_target(self._root, place, step, names)
            else:
                yield from check_expected_call(self._root, place, "tool", names, step.tool, step.args, step.status)

    def _gate(
        self, path: CasePath, assertion: types.RulingIs | types.ApprovalIs, names: AgentNames | None
    ) -> Iterator[Problem]:
        if names is None:
            return
        if assertion.target != "*" and not names.has_target(assertion.target):
            hint = did_you_mean(assertion.target, names.targets) or known_names_hint(names.targets)
            message = f"there is no tool, sink or stage {quote_text(assertion.target)}"
            yield Problem(place_at_path(self._root, [*path, "target"]), "spec.unknown_tool", message, hint)
        rule = assertion.rule if isinstance(assertion, types.RulingIs) else UNSET
        if isinstance(rule, str) and not names.any_agent(lambda each: each.has_rule(rule)):
            known = [each.id for each in names.spec.agent.policy.rules]
            hint = did_you_mean(rule, known) or known_names_hint(known)
            message = f"the policy has no rule {quote_text(rule)}"
            yield Problem(place_at_path(self._root, [*path, "rule"]), "spec.claim", message, hint)

    def _range(self, path: CasePath, assertion: Any) -> Iterator[Problem]:
        """Check that there is a limit, that `value` is alone, and that `min` is not more than `max`."""
        exactly = getattr(assertion, "value", UNSET)
        keys = [key for key in ("value", "min", "max") if hasattr(assertion, key)]
        used = [key for key in keys if getattr(assertion, key) is not UNSET]
        if not used:
            message = f"this assertion needs {' or '.join(f'`{key}`' for key in keys)}"
            hint = f"for example {_EXAMPLES[type(assertion)]}"
            yield Problem(place_at_path(self._root, path), "spec.claim", message, hint)
        elif exactly is not UNSET and len(used) > 1:
            place = place_at_path(self._root, [*path, used[1]], key=True)
            message = f"`value` is the exact number, so `{used[1]}` has no effect"
            yield Problem(place, "spec.claim", message, "remove one of the two")
        elif _amount(assertion, assertion.min) > _amount(assertion, assertion.max, float("inf")):
            message = f"min ({assertion.min}) is more than max ({assertion.max})"
            yield Problem(place_at_path(self._root, [*path, "min"]), "spec.out_of_range", message, "swap them")

    def _python(self, path: CasePath, assertion: types.PythonAssertion) -> Iterator[Problem]:
        if self._project is None:
            return
        place = place_at_path(self._root, [*path, "value"])
        found = list(callback_problems(self._project, assertion.value, place, "run"))
        yield from found
        if not found and find_function(self._project, assertion.value).is_async:
            message = f"{quote_text(assertion.value)} cannot be async"
            yield Problem(place, "spec.python", message, "write it as a plain function")


_EXAMPLES: dict[type, str] = {
    types.ToolCalls: "{type: tool-calls, max: 5}",
    types.TokensAssertion: "{type: tokens, max: 2k}",
    types.CostAssertion: "{type: cost, max: 0.01}",
    types.TurnsAssertion: "{type: turns, max: 3}",
    types.TimeAssertion: "{type: time, max: 30s}",
}


def _amount(assertion: Assertion, limit: Any, absent: float = 0) -> float:
    if isinstance(limit, UnsetType):
        return absent
    if isinstance(assertion, types.TimeAssertion):
        return milliseconds(limit)
    return parse_count(limit) if isinstance(limit, str) else limit


def _cel(node: ScalarNode, names: AgentNames | None) -> Iterator[Problem]:
    params = None if names is None else names.spec.agent.params
    fields = {**ASSERTION_VARIABLES, "params": params, "args": None, "session": None}
    for problem in check_condition(node, fields, compile_assertion_expression, ASSERTION_VARIABLES):
        hint = problem.hint and problem.hint.replace("several rules", "several assertions")
        yield replace(problem, hint=hint)


CasePath = list[str | int]

RUN_OUTCOMES = ("completed", "suspended", *(code for code in ERROR_CODES if code != "spec"))
"""The possible outcomes of a run."""
CALL_STATUSES = ("ok", "open", *TOOL_RESULT_CODES, *(code for code in ERROR_CODES if code.startswith("tool.")))
"""The possible statuses of a call."""
_NOT_RUN = ("unknown", "hidden", "invalid_arguments", "missing_field", "invalid_call")


def check_tool_target(
    root: MappingNode,
    path: CasePath,
    target: str,
    names: AgentNames | None,
    status: object = UNSET,
    *,
    key: bool = False,
) -> Iterator[Problem]:
    """Check that the agent has a tool. A call with the status `tool.unknown` may name any tool."""
    if names is None or names.has_tool(target) or (isinstance(status, str) and matches_pattern(status, "tool.unknown")):
        return
    hint = did_you_mean(target, names.tool_names) or known_names_hint(names.tool_names)
    what = f"{quote_text(target)} matches no tool" if "*" in target else f"tool {quote_text(target)} is not declared"
    yield Problem(place_at_path(root, path, key=key), "spec.unknown_tool", what, hint)


def check_code(
    root: MappingNode, path: CasePath, written: object, known: tuple[str, ...], what: str
) -> Iterator[Problem]:
    """Check a code, or a pattern for codes."""
    if not isinstance(written, str) or any(matches_pattern(written, each) for each in known):
        return
    examples = f"{', '.join(known[:2])}, {known[-1]}, {known[-1].partition('.')[0]}.*"
    hint = did_you_mean(written, known) or f"for example {examples}"
    yield Problem(place_at_path(root, path), "spec.wrong_value", f"{quote_text(written)} is not a {what}", hint)


def check_expected_call(
    root: MappingNode, path: CasePath, key: str, names: AgentNames | None, tool: str, args: object, status: object
) -> Iterator[Problem]:
    """Check an expected call: its tool, status and arguments. `key`: the key with the name of the tool."""
    yield from check_tool_target(root, [*path, key] if key else path, tool, names, status)
    yield from check_code(root, [*path, "status"], status, CALL_STATUSES, "call status")
    if isinstance(args, dict):
        known = None if names is None or _may_have_unknown_arguments(status) else names.args_of(tool)
        for name, value in args.items():
            if known is not None and name not in known and not (is_comparison(value) and "present" in value):
                message = f"tool {quote_text(tool)} has no argument {quote_text(name)}"
                hint = did_you_mean(name, known) or known_names_hint(known)
                yield Problem(place_at_path(root, [*path, "args", name], key=True), "spec.claim", message, hint)
            yield from _check_value(root, [*path, "args", name], value)


def _may_have_unknown_arguments(status: object) -> bool:
    """Return whether a call with this status may have had undeclared arguments."""
    return isinstance(status, str) and any(matches_pattern(status, f"tool.{each}") for each in _NOT_RUN)


def _check_value(root: MappingNode, path: CasePath, value: Any) -> Iterator[Problem]:
    if is_comparison(value):
        for word, operand in value.items():
            yield from _check_operand(root, [*path, word], word, operand)
        if value.get("present") is False and len(value) > 1:
            message = "an argument that is not present cannot be compared"
            yield Problem(place_at_path(root, path), "spec.claim", message, "keep `present: false` or the comparison")
    elif isinstance(value, dict):
        words = [word for word in value if word in COMPARISONS]
        for word in words:
            others = ", ".join(quote_text(each) for each in value if each not in COMPARISONS)
            place = place_at_path(root, [*path, word], key=True)
            hint = f"comparisons: {', '.join(sorted(COMPARISONS))}; for a mapping with such keys use `equals`"
            message = f"{quote_text(word)} is a comparison, but {others} is not"
            yield Problem(place, "spec.claim", message, hint)
            return
        for name, inner in value.items():
            yield from _check_value(root, [*path, name], inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _check_value(root, [*path, index], inner)


_NUMBER_OR_TEXT = (lambda operand: type(operand) in (int, float, str), "a number or text", "5")
_OPERANDS: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    **dict.fromkeys(
        ("gt", "gte", "lt", "lte"), (lambda operand: type(operand) in (int, float, str), "a number or text", "5")
    ),
    "icontains": (lambda operand: isinstance(operand, str), "text", "late"),
    "starts-with": (lambda operand: isinstance(operand, str), "text", "late"),
    "regex": (lambda operand: isinstance(operand, str), "text", '"^A"'),
    "in": (lambda operand: isinstance(operand, list) and bool(operand), "a list of values", "[a, b]"),
    "present": (lambda operand: isinstance(operand, bool), "true or false", "true"),
}
"""For each comparison: whether an operand is valid, what it must be, and an example."""


def _check_operand(root: MappingNode, path: CasePath, word: str, operand: Any) -> Iterator[Problem]:
    is_valid, wanted, example = _OPERANDS.get(word, (lambda _: True, "", ""))
    place = place_at_path(root, path)
    if not is_valid(operand):
        message = f"{quote_text(word)} compares with {wanted}, not with {describe_json_type(operand)}"
        yield Problem(place, "spec.claim", message, f"for example {{{word}: {example}}}")
    elif word == "regex":
        yield from pattern_problems_at(operand, place)
    elif word == "type":
        yield from _check_type(place, operand)


def _check_type(place: SourcePlace, operand: Any) -> Iterator[Problem]:
    if operand not in COMPARISON_TYPES:
        hint = did_you_mean(operand, COMPARISON_TYPES) if isinstance(operand, str) else None
        shown = quote_text(operand) if isinstance(operand, str) else describe_json_type(operand)
        message = f"{shown} is not a JSON type"
        yield Problem(place, "spec.claim", message, hint or f"types: {', '.join(COMPARISON_TYPES)}")
