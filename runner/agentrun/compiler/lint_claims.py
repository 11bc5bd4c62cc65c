"""Assertions before a run: everything that can never be judged, or never hold, is told with its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from agentrun.compiler.case_names import Names
from agentrun.compiler.claim_conditions import VARIABLES, compiled
from agentrun.compiler.conditions import check_condition, known_names
from agentrun.compiler.contracts import check_schema
from agentrun.compiler.lint_case_steps import OUTCOMES, STATUSES, Path, check_step, check_tool, check_word
from agentrun.compiler.patterns import pattern_problems
from agentrun.compiler.picks import Unusable, check_pick
from agentrun.compiler.quantities import count, milliseconds
from agentrun.compiler.signatures import Refused, find_function
from agentrun.spec.problems import Problem, did_you_mean, quoted
from agentrun.spec.project import Project
from agentrun.spec.tree import Mapping, Scalar, at, place_of
from agentrun.spec.v1 import assertions as types
from agentrun.spec.v1.assertions import Assertion


class ClaimLint:
    """Checks the assertions of one file."""

    def __init__(self, root: Mapping, project: Project | None) -> None:
        self._root = root
        self._project = project
        self._functions: dict[str, Refused | str | None] = {}

    def problems(self, path: Path, claim: Assertion, names: Names | None) -> Iterator[Problem]:
        """What is wrong with an assertion. `path`: where it stands. `names`: what there is, if that is known."""
        node = at(self._root, [*path, "value"])
        match claim:
            case types.Regex() if isinstance(node, Scalar):
                yield from pattern_problems(node)
            case types.FitsSchema() | types.IsJson():
                yield from check_schema(node) if node is not None else ()
            case types.Jmespath() if isinstance(node, Scalar):
                yield from _jmespath(node)
            case types.Cel() if isinstance(node, Scalar):
                yield from _cel(node, names)
            case types.Python():
                yield from self._python(path, claim)
            case types.ToolsExact() | types.ToolsInOrder() | types.ToolsAnyOrder():
                yield from self._steps(path, claim.value, names)
            case types.ToolCalled():
                yield from check_step(self._root, path, "value", names, claim.value, claim.args, claim.status)
            case types.ToolCalls():
                yield from check_tool(self._root, [*path, "tool"], claim.tool, names) if claim.tool != "*" else ()
                yield from self._range(path, claim)
            case types.StepStatus():
                yield from check_tool(self._root, [*path, "tool"], claim.tool, names, claim.value)
                yield from check_word(self._root, [*path, "value"], claim.value, STATUSES, "status of a call")
            case types.RulingIs() | types.ApprovalIs():
                yield from self._gate(path, claim, names)
            case types.Tokens() | types.Cost() | types.Turns() | types.Time():
                yield from self._range(path, claim)
            case types.OutcomeIs():
                yield from check_word(self._root, [*path, "value"], claim.value, OUTCOMES, "outcome of a run")

    def _steps(self, path: Path, steps: list[types.AStep], names: Names | None) -> Iterator[Problem]:
        for index, step in enumerate(steps):
            place: Path = [*path, "value", index]
            if isinstance(step, str):
                yield from check_tool(self._root, place, step, names)
            else:
                yield from check_step(self._root, place, "tool", names, step.tool, step.args, step.status)

    def _gate(self, path: Path, claim: types.RulingIs | types.ApprovalIs, names: Names | None) -> Iterator[Problem]:
        if names is None:
            return
        if claim.target != "*" and not names.has_target(claim.target):
            hint = did_you_mean(claim.target, names.targets) or known_names(names.targets)
            message = f"no tool, sink or stage is called {quoted(claim.target)}"
            yield Problem(place_of(self._root, [*path, "target"]), "spec.unknown_tool", message, hint)
        rule = claim.rule if isinstance(claim, types.RulingIs) else UNSET
        if isinstance(rule, str) and not names.anywhere(lambda each: each.has_rule(rule)):
            known = [each.id for each in names.spec.agent.policy.rules]
            hint = did_you_mean(rule, known) or known_names(known)
            message = f"the policy has no rule {quoted(rule)}"
            yield Problem(place_of(self._root, [*path, "rule"]), "spec.claim", message, hint)

    def _range(self, path: Path, claim: Any) -> Iterator[Problem]:
        """At least one limit; one that says exactly how many alone; the lower not above the upper."""
        exactly = getattr(claim, "value", UNSET)
        keys = [key for key in ("value", "min", "max") if hasattr(claim, key)]
        given = [key for key in keys if getattr(claim, key) is not UNSET]
        if not given:
            message = f"it does not say how much: give {' or '.join(f'`{key}`' for key in keys)}"
            yield Problem(place_of(self._root, path), "spec.claim", message, f"for example {_EXAMPLES[type(claim)]}")
        elif exactly is not UNSET and len(given) > 1:
            message = f"`value` says exactly how many, so `{given[1]}` says nothing"
            yield Problem(place_of(self._root, [*path, given[1]], key=True), "spec.claim", message, "keep one of them")
        elif _amount(claim, claim.min) > _amount(claim, claim.max, float("inf")):
            message = f"min ({claim.min}) is more than max ({claim.max})"
            yield Problem(place_of(self._root, [*path, "min"]), "spec.out_of_range", message, "exchange them")

    def _python(self, path: Path, claim: types.Python) -> Iterator[Problem]:
        if self._project is None:
            return
        place = place_of(self._root, [*path, "value"])
        try:
            function = find_function(self._project, claim.value)
        except Refused as refused:
            yield Problem(place, refused.code, refused.message, refused.hint)
            return
        if function.is_async:
            hint = "write it as a plain function"
            yield Problem(place, "spec.python", f"{quoted(claim.value)} is async", hint)
        elif not function.takes_one:
            message = f"{quoted(claim.value)} cannot be called with one argument, as assertions are"
            yield Problem(place, "spec.python", message, f"write it as def {function.name}(run)")


_EXAMPLES: dict[type, str] = {
    types.ToolCalls: "{type: tool-calls, max: 5}",
    types.Tokens: "{type: tokens, max: 2k}",
    types.Cost: "{type: cost, max: 0.01}",
    types.Turns: "{type: turns, max: 3}",
    types.Time: "{type: time, max: 30s}",
}


def _amount(claim: Assertion, limit: Any, absent: float = 0) -> float:
    if isinstance(limit, UnsetType):
        return absent
    return milliseconds(limit) if isinstance(claim, types.Time) else count(limit) if isinstance(limit, str) else limit


def _jmespath(node: Scalar) -> Iterator[Problem]:
    try:
        check_pick(node.text)
    except Unusable as unusable:
        hint = unusable.hint or "for example items[*].name; a text of it is in single quotes"
        message = unusable.message.replace("the reply", "the answer")
        yield Problem(node.place_at(unusable.offset, 1), "spec.jmespath", message, hint)


def _cel(node: Scalar, names: Names | None) -> Iterator[Problem]:
    params = None if names is None else names.spec.agent.params
    fields = {**VARIABLES, "params": params, "args": None, "session": None}
    for problem in check_condition(node, fields, compiled, VARIABLES):
        hint = problem.hint and problem.hint.replace("several rules", "several assertions")
        yield replace(problem, hint=hint)
