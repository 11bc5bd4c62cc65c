"""Assertions before a run: everything that can never be judged, or never hold, is told with its place."""

from __future__ import annotations

from collections.abc import Iterator
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
from agentrun.compiler.jmespath import UnusableJmespath, check_jmespath_syntax
from agentrun.compiler.json_schemas import check_schema
from agentrun.compiler.patterns import pattern_problems, pattern_problems_at
from agentrun.compiler.python_functions import FunctionRefused, find_function
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
        self._functions: dict[str, FunctionRefused | str | None] = {}

    def problems(self, path: CasePath, claim: Assertion, names: AgentNames | None) -> Iterator[Problem]:
        """What is wrong with an assertion. `path`: where it stands. `names`: what there is, if that is known."""
        node = node_at(self._root, [*path, "value"])
        match claim:
            case types.Regex() if isinstance(node, ScalarNode):
                yield from pattern_problems(node)
            case types.JsonSchemaAssertion() | types.IsJson():
                yield from check_schema(node) if node is not None else ()
            case types.JmespathAssertion() if isinstance(node, ScalarNode):
                yield from _jmespath(node)
            case types.CelAssertion() if isinstance(node, ScalarNode):
                yield from _cel(node, names)
            case types.PythonAssertion():
                yield from self._python(path, claim)
            case types.ToolsExact() | types.ToolsInOrder() | types.ToolsAnyOrder():
                yield from self._steps(path, claim.value, names)
            case types.ToolCalled():
                yield from check_expected_call(self._root, path, "value", names, claim.value, claim.args, claim.status)
            case types.ToolCalls():
                yield from (
                    check_tool_target(self._root, [*path, "tool"], claim.tool, names) if claim.tool != "*" else ()
                )
                yield from self._range(path, claim)
            case types.StepStatus():
                yield from check_tool_target(self._root, [*path, "tool"], claim.tool, names, claim.value)
                yield from check_code(self._root, [*path, "value"], claim.value, CALL_STATUSES, "status of a call")
            case types.RulingIs() | types.ApprovalIs():
                yield from self._gate(path, claim, names)
            case types.TokensAssertion() | types.CostAssertion() | types.TurnsAssertion() | types.TimeAssertion():
                yield from self._range(path, claim)
            case types.OutcomeIs():
                yield from check_code(self._root, [*path, "value"], claim.value, RUN_OUTCOMES, "outcome of a run")

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
        self, path: CasePath, claim: types.RulingIs | types.ApprovalIs, names: AgentNames | None
    ) -> Iterator[Problem]:
        if names is None:
            return
        if claim.target != "*" and not names.has_target(claim.target):
            hint = did_you_mean(claim.target, names.targets) or known_names_hint(names.targets)
            message = f"no tool, sink or stage is called {quote_text(claim.target)}"
            yield Problem(place_at_path(self._root, [*path, "target"]), "spec.unknown_tool", message, hint)
        rule = claim.rule if isinstance(claim, types.RulingIs) else UNSET
        if isinstance(rule, str) and not names.any_agent(lambda each: each.has_rule(rule)):
            known = [each.id for each in names.spec.agent.policy.rules]
            hint = did_you_mean(rule, known) or known_names_hint(known)
            message = f"the policy has no rule {quote_text(rule)}"
            yield Problem(place_at_path(self._root, [*path, "rule"]), "spec.claim", message, hint)

    def _range(self, path: CasePath, claim: Any) -> Iterator[Problem]:
        """At least one limit; one that says exactly how many alone; the lower not above the upper."""
        exactly = getattr(claim, "value", UNSET)
        keys = [key for key in ("value", "min", "max") if hasattr(claim, key)]
        given = [key for key in keys if getattr(claim, key) is not UNSET]
        if not given:
            message = f"it does not say how much: give {' or '.join(f'`{key}`' for key in keys)}"
            yield Problem(
                place_at_path(self._root, path), "spec.claim", message, f"for example {_EXAMPLES[type(claim)]}"
            )
        elif exactly is not UNSET and len(given) > 1:
            message = f"`value` says exactly how many, so `{given[1]}` says nothing"
            yield Problem(
                place_at_path(self._root, [*path, given[1]], key=True), "spec.claim", message, "keep one of them"
            )
        elif _amount(claim, claim.min) > _amount(claim, claim.max, float("inf")):
            message = f"min ({claim.min}) is more than max ({claim.max})"
            yield Problem(place_at_path(self._root, [*path, "min"]), "spec.out_of_range", message, "exchange them")

    def _python(self, path: CasePath, claim: types.PythonAssertion) -> Iterator[Problem]:
        if self._project is None:
            return
        place = place_at_path(self._root, [*path, "value"])
        try:
            function = find_function(self._project, claim.value)
        except FunctionRefused as refused:
            yield Problem(place, refused.code, refused.message, refused.hint)
            return
        if function.is_async:
            hint = "write it as a plain function"
            yield Problem(place, "spec.python", f"{quote_text(claim.value)} is async", hint)
        elif not function.takes_one:
            message = f"{quote_text(claim.value)} cannot be called with one argument, as assertions are"
            yield Problem(place, "spec.python", message, f"write it as def {function.name}(run)")


_EXAMPLES: dict[type, str] = {
    types.ToolCalls: "{type: tool-calls, max: 5}",
    types.TokensAssertion: "{type: tokens, max: 2k}",
    types.CostAssertion: "{type: cost, max: 0.01}",
    types.TurnsAssertion: "{type: turns, max: 3}",
    types.TimeAssertion: "{type: time, max: 30s}",
}


def _amount(claim: Assertion, limit: Any, absent: float = 0) -> float:
    if isinstance(limit, UnsetType):
        return absent
    return (
        milliseconds(limit)
        if isinstance(claim, types.TimeAssertion)
        else parse_count(limit)
        if isinstance(limit, str)
        else limit
    )


def _jmespath(node: ScalarNode) -> Iterator[Problem]:
    try:
        check_jmespath_syntax(node.text)
    except UnusableJmespath as unusable:
        hint = unusable.hint or "for example items[*].name; a text of it is in single quotes"
        message = unusable.message.replace("the reply", "the answer")
        yield Problem(node.place_at(unusable.offset, 1), "spec.jmespath", message, hint)


def _cel(node: ScalarNode, names: AgentNames | None) -> Iterator[Problem]:
    params = None if names is None else names.spec.agent.params
    fields = {**ASSERTION_VARIABLES, "params": params, "args": None, "session": None}
    for problem in check_condition(node, fields, compile_assertion_expression, ASSERTION_VARIABLES):
        hint = problem.hint and problem.hint.replace("several rules", "several assertions")
        yield replace(problem, hint=hint)


# --- calls as assertions describe them: tools that exist, ends that there are ---------------------------------


CasePath = list[str | int]

RUN_OUTCOMES = ("completed", "suspended", *(code for code in ERROR_CODES if code != "spec"))
"""How a run can end."""
CALL_STATUSES = ("ok", "open", *TOOL_RESULT_CODES, *(code for code in ERROR_CODES if code.startswith("tool.")))
"""How a call can end, or not."""
_NOT_RUN = ("unknown", "hidden", "invalid_arguments", "missing_field", "invalid_call")


def check_tool_target(
    root: MappingNode, path: CasePath, target: str, names: AgentNames | None, status: object = UNSET
) -> Iterator[Problem]:
    """A tool that the agent has. What is said to have been refused as unknown need not exist."""
    if names is None or names.has_tool(target) or (isinstance(status, str) and matches_pattern(status, "tool.unknown")):
        return
    hint = did_you_mean(target, names.tool_names) or known_names_hint(names.tool_names)
    what = f"{quote_text(target)} matches no tool" if "*" in target else f"tool {quote_text(target)} is not declared"
    yield Problem(place_at_path(root, path), "spec.unknown_tool", what, hint)


def check_code(
    root: MappingNode, path: CasePath, written: object, known: tuple[str, ...], what: str
) -> Iterator[Problem]:
    """A code, or a pattern of one."""
    if not isinstance(written, str) or any(matches_pattern(written, each) for each in known):
        return
    hint = (
        did_you_mean(written, known)
        or f"for example {', '.join(known[:2])}, {known[-1]}, {known[-1].partition('.')[0]}.*"
    )
    yield Problem(place_at_path(root, path), "spec.wrong_value", f"{quote_text(written)} is no {what}", hint)


def check_expected_call(
    root: MappingNode, path: CasePath, key: str, names: AgentNames | None, tool: str, args: object, status: object
) -> Iterator[Problem]:
    """A call: its tool, its end, its arguments. `key`: where its tool is named."""
    yield from check_tool_target(root, [*path, key] if key else path, tool, names, status)
    yield from check_code(root, [*path, "status"], status, CALL_STATUSES, "status of a call")
    if isinstance(args, dict):
        known = None if names is None or _may_have_unknown_arguments(status) else names.args_of(tool)
        for name, value in args.items():
            if known is not None and name not in known and not (is_comparison(value) and "present" in value):
                message = f"tool {quote_text(tool)} has no argument {quote_text(name)}"
                hint = did_you_mean(name, known) or known_names_hint(known)
                yield Problem(place_at_path(root, [*path, "args", name], key=True), "spec.claim", message, hint)
            yield from _check_value(root, [*path, "args", name], value)


def _may_have_unknown_arguments(status: object) -> bool:
    """Whether a call that ended so may have had arguments that its tool does not have."""
    return isinstance(status, str) and any(matches_pattern(status, f"tool.{each}") for each in _NOT_RUN)


def _check_value(root: MappingNode, path: CasePath, value: Any) -> Iterator[Problem]:
    if is_comparison(value):
        for word, operand in value.items():
            yield from _check_operand(root, [*path, word], word, operand)
        if value.get("present") is False and len(value) > 1:
            message = "what is not there cannot be compared"
            yield Problem(place_at_path(root, path), "spec.claim", message, "keep `present: false`, or the comparison")
    elif isinstance(value, dict):
        words = [word for word in value if word in COMPARISONS]
        for word in words:
            others = ", ".join(quote_text(each) for each in value if each not in COMPARISONS)
            place = place_at_path(root, [*path, word], key=True)
            hint = f"comparisons: {', '.join(sorted(COMPARISONS))}; for a mapping with such keys use `equals`"
            yield Problem(
                place, "spec.claim", f"{quote_text(word)} is a comparison, but {others} beside it is none", hint
            )
            return
        for name, inner in value.items():
            yield from _check_value(root, [*path, name], inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _check_value(root, [*path, index], inner)


def _check_operand(root: MappingNode, path: CasePath, word: str, operand: Any) -> Iterator[Problem]:
    def wrong(wanted: str, example: str) -> Problem:
        message = f"{quote_text(word)} compares with {wanted}, not with {describe_json_type(operand)}"
        return Problem(place_at_path(root, path), "spec.claim", message, f"for example {{{word}: {example}}}")

    match word:
        case "gt" | "gte" | "lt" | "lte":
            if isinstance(operand, bool) or not isinstance(operand, int | float | str):
                yield wrong("a number, or a text", "5")
        case "icontains" | "starts-with":
            if not isinstance(operand, str):
                yield wrong("a text", "late")
        case "regex":
            yield from (
                pattern_problems_at(operand, place_at_path(root, path))
                if isinstance(operand, str)
                else [wrong("a text", '"^A"')]
            )
        case "in":
            if not isinstance(operand, list) or not operand:
                yield wrong("a list of values", "[a, b]")
        case "present":
            if not isinstance(operand, bool):
                yield wrong("true or false", "true")
        case "type":
            yield from _check_type(place_at_path(root, path), operand)


def _check_type(place: SourcePlace, operand: Any) -> Iterator[Problem]:
    if operand not in COMPARISON_TYPES:
        hint = did_you_mean(operand, COMPARISON_TYPES) if isinstance(operand, str) else None
        shown = quote_text(operand) if isinstance(operand, str) else describe_json_type(operand)
        yield Problem(place, "spec.claim", f"{shown} is no type", hint or f"types: {', '.join(COMPARISON_TYPES)}")
