"""Checks of assertions before a run: find those that can never be evaluated, or can never pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from agentrun.compiler.agent_names import AgentNames
from agentrun.compiler.conditions import (
    ASSERTION_VARIABLES,
    check_condition,
    compile_assertion_expression,
    near_or_known_hint,
)
from agentrun.compiler.jmespath import jmespath_problems
from agentrun.compiler.json_schemas import check_schema
from agentrun.compiler.patterns import pattern_problems, pattern_problems_at
from agentrun.compiler.python_functions import callback_problems, find_function
from agentrun.core.facts import FACT_KINDS
from agentrun.core.package import matches_pattern
from agentrun.errors import ERROR_CODES, TOOL_RESULT_CODES
from agentrun.spec.problems import Problem, did_you_mean, quote_text
from agentrun.spec.project import Project
from agentrun.spec.schema_check import describe_json_type
from agentrun.spec.tree import DocumentPath, ScalarNode
from agentrun.spec.v1 import assertions as types
from agentrun.spec.v1.assertions import COMPARISON_TYPES, COMPARISONS, Assertion, is_comparison
from agentrun.spec.v1.field_types import milliseconds, parse_count

_EXAMPLES: dict[type, str] = {
    types.ToolCalls: "{type: tool-calls, max: 5}",
    types.TokensAssertion: "{type: tokens, max: 2k}",
    types.CostAssertion: "{type: cost, max: 0.01}",
    types.TurnsAssertion: "{type: turns, max: 3}",
    types.TimeAssertion: "{type: time, max: 30s}",
}
RUN_OUTCOMES = ("completed", "suspended", *(code for code in ERROR_CODES if code != "spec"))
CALL_STATUSES = ("ok", "open", *TOOL_RESULT_CODES, *(code for code in ERROR_CODES if code.startswith("tool.")))
_NOT_RUN = ("unknown", "hidden", "invalid_arguments", "missing_field", "invalid_call")


def assertion_problems(
    path: DocumentPath, assertion: Assertion, names: AgentNames | None, project: Project | None
) -> Iterator[Problem]:
    """Yield the problems of an assertion. `names`: the names of the agent, if known."""
    value = path.at("value")
    node = value.node
    match assertion:
        case types.Regex() if isinstance(node, ScalarNode):
            yield from pattern_problems(node)
        case types.JsonSchemaAssertion() | types.IsJson():
            yield from check_schema(node) if node is not None else ()
        case types.JmespathAssertion() if isinstance(node, ScalarNode):
            yield from jmespath_problems(node, "the answer")
        case types.CelAssertion() if isinstance(node, ScalarNode):
            yield from _cel(node, names)
        case types.PythonAssertion() if project is not None:
            yield from _python(value, assertion, project)
        case types.ToolsExact() | types.ToolsInOrder() | types.ToolsAnyOrder():
            for index, step in enumerate(assertion.value):
                if isinstance(step, str):
                    yield from check_tool_target(value.at(index), step, names)
                else:
                    yield from _expected_call(value.at(index), "tool", names, step.tool, step.args, step.status)
        case types.ToolCalled():
            yield from _expected_call(path, "value", names, assertion.value, assertion.args, assertion.status)
        case types.StepStatus():
            yield from check_tool_target(path.at("tool"), assertion.tool, names, assertion.value)
            yield from _code(value, assertion.value, CALL_STATUSES, "call status")
        case types.RulingIs() | types.ApprovalIs() if names is not None:
            yield from _gate(path, assertion, names)
        case types.ToolCalls():
            if assertion.tool != "*":
                yield from check_tool_target(path.at("tool"), assertion.tool, names)
            yield from _range(path, assertion)
        case types.TokensAssertion() | types.CostAssertion() | types.TurnsAssertion() | types.TimeAssertion():
            yield from _range(path, assertion)
        case types.OutcomeIs():
            yield from _code(value, assertion.value, RUN_OUTCOMES, "run outcome")
        case types.JournalSnapshot():
            for index, written in enumerate(assertion.ignore):
                yield from _ignored_path(path.at("ignore", index), written)


def _ignored_path(path: DocumentPath, written: str) -> Iterator[Problem]:
    """Check that a path of `ignore` begins with the kind of a fact."""
    kind = written.partition(".")[0]
    if not any(fnmatchcase(each, kind) for each in FACT_KINDS):
        message = f"no fact of a journal is called {quote_text(kind)}"
        hint = did_you_mean(kind, FACT_KINDS) or "for example model_replied.reply.model"
        yield path.problem("spec.wrong_value", message, hint)


def _gate(path: DocumentPath, assertion: types.PolicyAssertion, names: AgentNames) -> Iterator[Problem]:
    if assertion.target != "*" and not names.has_target(assertion.target):
        message = f"there is no tool, sink or stage {quote_text(assertion.target)}"
        hint = near_or_known_hint(assertion.target, names.targets())
        yield path.at("target").problem("spec.unknown_tool", message, hint)
    rule = assertion.rule if isinstance(assertion, types.RulingIs) else UNSET
    if isinstance(rule, str) and not names.any_agent(lambda each: rule in each.rules):
        message = f"the policy has no rule {quote_text(rule)}"
        hint = near_or_known_hint(rule, names.rules)
        yield path.at("rule").problem("spec.assertion", message, hint)


def _range(path: DocumentPath, assertion: types.ToolCalls | types.SpendAssertion) -> Iterator[Problem]:
    """Check that there is a limit, that `value` is alone, and that `min` is not more than `max`."""
    keys = [key for key in ("value", "min", "max") if hasattr(assertion, key)]
    used = [key for key in keys if getattr(assertion, key) is not UNSET]
    if not used:
        message = f"this assertion needs {' or '.join(f'`{key}`' for key in keys)}"
        yield path.problem("spec.assertion", message, f"for example {_EXAMPLES[type(assertion)]}")
    elif used[0] == "value" and len(used) > 1:
        message = f"`value` is the exact number, so `{used[1]}` has no effect"
        yield path.at(used[1]).key_problem("spec.assertion", message, "remove one of the two")
    elif _amount(assertion, assertion.min) > _amount(assertion, assertion.max, float("inf")):
        message = f"min ({assertion.min}) is more than max ({assertion.max})"
        yield path.at("min").problem("spec.out_of_range", message, "swap them")


def _python(path: DocumentPath, assertion: types.PythonAssertion, project: Project) -> Iterator[Problem]:
    found = list(callback_problems(project, assertion.value, path.place, "run"))
    yield from found
    if not found and find_function(project, assertion.value).is_async:
        message = f"{quote_text(assertion.value)} cannot be async"
        yield path.problem("spec.python", message, "write it as a plain function")


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


def check_tool_target(
    path: DocumentPath, target: str, names: AgentNames | None, status: object = UNSET, *, key: bool = False
) -> Iterator[Problem]:
    """Check that the agent has a tool. A call with the status `tool.unknown` may name any tool."""
    if names is None or names.has_tool(target) or (isinstance(status, str) and matches_pattern(status, "tool.unknown")):
        return
    what = f"{quote_text(target)} matches no tool" if "*" in target else f"tool {quote_text(target)} is not declared"
    place = path.key_place if key else path.place
    yield Problem(place, "spec.unknown_tool", what, near_or_known_hint(target, names.tool_names))


def _code(path: DocumentPath, written: object, known: tuple[str, ...], what: str) -> Iterator[Problem]:
    """Check a code, or a pattern for codes."""
    if not isinstance(written, str) or any(matches_pattern(written, each) for each in known):
        return
    examples = f"{', '.join(known[:2])}, {known[-1]}, {known[-1].partition('.')[0]}.*"
    hint = did_you_mean(written, known) or f"for example {examples}"
    yield path.problem("spec.wrong_value", f"{quote_text(written)} is not a {what}", hint)


def _expected_call(
    path: DocumentPath, key: str, names: AgentNames | None, tool: str, args: object, status: object
) -> Iterator[Problem]:
    """Check an expected call: its tool, status and arguments. `key`: the key with the name of the tool."""
    yield from check_tool_target(path.at(key), tool, names, status)
    yield from _code(path.at("status"), status, CALL_STATUSES, "call status")
    did_not_run = isinstance(status, str) and any(matches_pattern(status, f"tool.{each}") for each in _NOT_RUN)
    known = None if names is None or did_not_run else names.args_of(tool)  # a call that did not run may have any
    for name, value in args.items() if isinstance(args, dict) else ():
        argument = path.at("args", name)
        if known is not None and name not in known and not (is_comparison(value) and "present" in value):
            message = f"tool {quote_text(tool)} has no argument {quote_text(name)}"
            yield argument.key_problem("spec.assertion", message, near_or_known_hint(name, known))
        yield from _check_value(argument, value)


def _check_value(path: DocumentPath, value: Any) -> Iterator[Problem]:
    if is_comparison(value):
        for word, operand in value.items():
            yield from _check_operand(path.at(word), word, operand)
        if value.get("present") is False and len(value) > 1:
            message = "an argument that is not present cannot be compared"
            yield path.problem("spec.assertion", message, "keep `present: false` or the comparison")
    elif isinstance(value, dict):
        if word := next((word for word in value if word in COMPARISONS), None):
            others = ", ".join(quote_text(each) for each in value if each not in COMPARISONS)
            message = f"{quote_text(word)} is a comparison, but {others} is not"
            hint = f"comparisons: {', '.join(sorted(COMPARISONS))}; for a mapping with such keys use `equals`"
            yield path.at(word).key_problem("spec.assertion", message, hint)
            return
        for name, inner in value.items():
            yield from _check_value(path.at(name), inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _check_value(path.at(index), inner)


def _is_text(operand: Any) -> bool:
    return isinstance(operand, str)


def _is_number_or_text(operand: Any) -> bool:
    return type(operand) in (int, float, str)


_OPERANDS: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    **dict.fromkeys(("gt", "gte", "lt", "lte"), (_is_number_or_text, "a number or text", "5")),
    **dict.fromkeys(("icontains", "starts-with"), (_is_text, "text", "late")),
    "regex": (_is_text, "text", '"^A"'),
    "in": (lambda operand: isinstance(operand, list) and bool(operand), "a list of values", "[a, b]"),
    "present": (lambda operand: isinstance(operand, bool), "true or false", "true"),
}
"""For each comparison: whether an operand is valid, what it must be, and an example."""


def _check_operand(path: DocumentPath, word: str, operand: Any) -> Iterator[Problem]:
    is_valid, wanted, example = _OPERANDS.get(word, (lambda _: True, "", ""))
    if not is_valid(operand):
        message = f"{quote_text(word)} compares with {wanted}, not with {describe_json_type(operand)}"
        yield path.problem("spec.assertion", message, f"for example {{{word}: {example}}}")
    elif word == "regex":
        yield from pattern_problems_at(operand, path.place)
    elif word == "type" and operand not in COMPARISON_TYPES:
        hint = did_you_mean(operand, COMPARISON_TYPES) if isinstance(operand, str) else None
        shown = quote_text(operand) if isinstance(operand, str) else describe_json_type(operand)
        yield path.problem(
            "spec.assertion", f"{shown} is not a JSON type", hint or f"types: {', '.join(COMPARISON_TYPES)}"
        )
