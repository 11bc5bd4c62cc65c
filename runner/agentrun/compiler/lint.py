"""Semantic checks of a spec: mistakes that its JSON Schema cannot find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from msgspec import UNSET

from agentrun.compiler.conditions import check_condition
from agentrun.compiler.json_schemas import check_schema, first_error, resolve_references
from agentrun.compiler.lint_policy import PolicyLint, ToolTargets, duplicate_names
from agentrun.compiler.lint_texts import lint_texts, spec_templates
from agentrun.compiler.lint_tools import ToolLint, header_problems, path_problems, url_problems
from agentrun.compiler.patterns import pattern_problems
from agentrun.compiler.python_functions import callback_problems
from agentrun.compiler.size_limits import spec_conditions
from agentrun.compiler.spec_reader import Spec, is_consequence
from agentrun.core.condition import CONDITION_VARIABLES
from agentrun.core.package import BUDGET_KINDS
from agentrun.spec.problems import Problem, SourcePlace, did_you_mean, quote_text
from agentrun.spec.safe_text import plural
from agentrun.spec.tree import ScalarNode, node_at, place_at_path
from agentrun.spec.v1.field_types import milliseconds
from agentrun.spec.yaml_parser import MAX_PROBLEMS

RESERVED_PARAMS = {
    "args": "templates of tools use this name",
    "message": "a parent agent passes its request under this name",
}


def lint_spec(spec: Spec, doubtful: frozenset[str] = frozenset()) -> list[Problem]:
    """Return the problems of one spec without its sub-agents, up to a hundred errors.

    `doubtful`: sections that could not be read completely. Nothing is reported as missing from them."""
    tools = ToolLint(spec)
    checks = (_visible, _names, _output, _hooks, _sinks, _replay, _model, _numbers)
    found: list[Problem] = []
    errors = 0
    for problem in chain(
        tools.problems(),
        _params(spec),
        lint_texts(spec, tools.args),
        PolicyLint(spec, tools.args, doubtful).problems(),
        *(check(spec) for check in checks),
    ):
        if is_consequence(problem, doubtful):
            continue
        found.append(problem)
        errors += problem.severity == "error"
        if errors == MAX_PROBLEMS:
            break
    # A misspelt name is reported once, not also as an unused param.
    return found if errors or doubtful else [*found, *_unused_params(spec)]


def _place(spec: Spec, *path: str | int, key: bool = False) -> SourcePlace:
    return place_at_path(spec.root, path, key=key)


def _params(spec: Spec) -> Iterator[Problem]:
    for name, schema in spec.agent.params.items():
        node = node_at(spec.root, ["params", name])
        assert node is not None
        found = check_schema(node)
        yield from found
        if name in RESERVED_PARAMS:
            message = f"a param cannot be called {quote_text(name)}, because {RESERVED_PARAMS[name]}"
            yield Problem(_place(spec, "params", name, key=True), "spec.reserved", message, "choose another name")
        if not found and "default" in schema:
            yield from _default(spec, name, resolve_references(node))


def _default(spec: Spec, name: str, schema: dict[str, Any]) -> Iterator[Problem]:
    if error := first_error(schema, schema["default"], "the default"):
        place = _place(spec, "params", name, "default")
        yield Problem(place, "spec.param_default", f"the default does not match its own schema: {error[:200]}")


def _unused_params(spec: Spec) -> Iterator[Problem]:
    code = [part for node, _ in spec_templates(spec, {}) for part in _template_code(node.text)]
    words = set(re.findall(r"\w+", " ".join([*code, *(node.text for node in spec_conditions(spec))])))
    for name in spec.agent.params:
        if name not in words:
            place = _place(spec, "params", name, key=True)
            message = f"param {quote_text(name)} is never used"
            hint = "use it in a template or condition, or remove it"
            yield Problem(place, "spec.unused_param", message, hint, "warning")


def _template_code(text: str) -> Iterator[str]:
    """Yield the code between the braces of a template."""
    for part in re.split(r"\{\{|\{%", text)[1:] if "{" in text else ():
        yield re.split(r"\}\}|%\}", part, maxsplit=1)[0]


def _visible(spec: Spec) -> Iterator[Problem]:
    fields = {**CONDITION_VARIABLES, "params": spec.agent.params}
    fields["calls"] = None if ToolTargets(spec.agent.tools).servers else tuple(spec.agent.tools)
    del fields["args"]
    for name in spec.agent.tools:
        node = node_at(spec.root, ["tools", name, "visible"])
        if isinstance(node, ScalarNode):
            yield from check_condition(node, fields)


def visual_form(name: str) -> str:
    """Return the same text for names that look alike."""
    for letters, similar in (("-", "_"), ("0", "o"), ("1", "l"), ("i", "l"), ("rn", "m"), ("vv", "w"), ("5", "s")):
        name = name.replace(letters, similar)
    return re.sub("_+", "_", name)


def _names(spec: Spec) -> Iterator[Problem]:
    for key in ("tools", "sinks", "params"):
        seen: dict[str, str] = {}
        for name in getattr(spec.agent, key):
            first = seen.setdefault(visual_form(name), name)
            if first != name:
                message = f"{quote_text(name)} looks like {quote_text(first)}; people and models will confuse them"
                yield Problem(_place(spec, key, name, key=True), "spec.look_alike", message, "choose clearer names")
    for path, ids in (
        (("policy", "rules"), [rule.id for rule in spec.agent.policy.rules]),
        (("hooks",), [hook.id for hook in spec.agent.hooks]),
        (("replay", "redact"), [redaction.name for redaction in spec.agent.replay.redact]),
    ):
        yield from duplicate_names(spec.root, path, "name" if path[-1] == "redact" else "id", ids)


def _output(spec: Spec) -> Iterator[Problem]:
    node = node_at(spec.root, ["output", "schema"])
    if node is not None:
        yield from check_schema(node)
    elif "output" in spec.root.entries:
        for key in ("repairs", "max_bytes", "max_depth"):
            if node_at(spec.root, ["output", key]) is not None:
                message = f"`{key}` has no effect without `output.schema`"
                hint = "add `output.schema`, or remove this key"
                yield Problem(_place(spec, "output", key, key=True), "spec.no_schema", message, hint)


def _hooks(spec: Spec) -> Iterator[Problem]:
    for index, hook in enumerate(spec.agent.hooks):
        yield from callback_problems(spec.project, hook.call, _place(spec, "hooks", index, "call"), "question")


def _sinks(spec: Spec) -> Iterator[Problem]:
    for name, sink in spec.agent.sinks.items():
        if (path := getattr(sink, "path", None)) is not None:
            yield from path_problems(path, _place(spec, "sinks", name, "path"))
        yield from url_problems(node_at(spec.root, ["sinks", name, "url"]))
        yield from header_problems(spec, ["sinks", name], getattr(sink, "headers", {}), getattr(sink, "auth", UNSET))


def _replay(spec: Spec) -> Iterator[Problem]:
    for index, redaction in enumerate(spec.agent.replay.redact):
        if redaction.path is UNSET and redaction.pattern is UNSET:
            message = "a redaction needs `path`, `pattern` or both"
            hint = 'for example {name: email, pattern: "[^ ]+@[^ ]+"}'
            yield Problem(_place(spec, "replay", "redact", index), "spec.redact", message, hint)
        node = node_at(spec.root, ["replay", "redact", index, "pattern"])
        if isinstance(node, ScalarNode):
            yield from pattern_problems(node)


def _model(spec: Spec) -> Iterator[Problem]:
    model = spec.agent.model
    for path in ("base_url",), *(("fallback", index, "base_url") for index in range(len(model.fallback))):
        yield from url_problems(node_at(spec.root, ["model", *path]))
    choice = model.tool_choice
    if choice == "required" and not spec.agent.tools:
        place = _place(spec, "model", "tool_choice")
        message = "tool_choice is `required`, but the agent has no tools"
        yield Problem(place, "spec.unknown_tool", message, "add tools, or remove tool_choice")
    elif choice not in ("auto", "required", "none") and not ToolTargets(spec.agent.tools).matching_patterns(choice):
        hint = did_you_mean(choice, ["auto", "required", "none", *spec.agent.tools])
        place = _place(spec, "model", "tool_choice")
        yield Problem(place, "spec.unknown_tool", f"tool {quote_text(choice)} is not declared", hint)


def _numbers(spec: Spec) -> Iterator[Problem]:
    budgets, retry = spec.agent.budgets, spec.agent.retry
    if budgets.grace is not UNSET and budgets.grace >= budgets.turns:
        message = f"grace ({budgets.grace}) must be less than turns ({budgets.turns})"
        yield Problem(_place(spec, "budgets", "grace"), "spec.out_of_range", message)
    if milliseconds(retry.first_delay) > milliseconds(retry.max_delay):
        message = f"first_delay ({retry.first_delay}) must not be longer than max_delay ({retry.max_delay})"
        yield Problem(_place(spec, "retry", "first_delay"), "spec.out_of_range", message)
    if all(getattr(budgets, name) is UNSET for name in BUDGET_KINDS if name != "turns"):
        place = place_at_path(spec.root, ["budgets"], key=True)
        message = f"the only limit on what a run may spend is {plural(budgets.turns, 'turn')}"
        hint = "add a budget, for example budgets: {tokens: 50k, cost: 0.25, time: 2m}"
        yield Problem(place, "spec.no_budget", message, hint, "warning")
