"""Semantic checks of a spec: mistakes that its JSON Schema cannot find."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain

from msgspec import UNSET

from agentrun.compiler.build import CompiledChild
from agentrun.compiler.conditions import check_condition
from agentrun.compiler.json_schemas import check_schema, first_error, resolve_references
from agentrun.compiler.lint_policy import PolicyLint, ToolTargets, duplicate_names
from agentrun.compiler.lint_texts import lint_texts, spec_templates
from agentrun.compiler.lint_tools import (
    ToolLint,
    header_problems,
    path_problems,
    private_address_problems,
    url_problems,
)
from agentrun.compiler.lock_file import Lock
from agentrun.compiler.patterns import pattern_problems
from agentrun.compiler.python_functions import callback_problems
from agentrun.compiler.size_limits import spec_conditions
from agentrun.compiler.spec_reader import Spec, is_consequence
from agentrun.core.condition import CONDITION_VARIABLES
from agentrun.core.package import BUDGET_KINDS
from agentrun.providers.codec import CODECS
from agentrun.spec.problems import Problem, SourcePlace, did_you_mean, quote_text
from agentrun.spec.safe_text import plural
from agentrun.spec.v1.field_types import milliseconds
from agentrun.spec.yaml_parser import MAX_PROBLEMS

RESERVED_PARAMS = {
    "args": "templates of tools use this name",
    "message": "a parent agent passes its request under this name",
}


def lint_spec(
    spec: Spec, doubtful: frozenset[str], agents: Mapping[str, CompiledChild], lock: Lock | None
) -> list[Problem]:
    """Return the problems of one spec without its sub-agents, up to a hundred errors.

    `doubtful`: sections that could not be read completely. Nothing is reported as missing from them. `agents`, `lock`:
    the arguments of sub-agents and of MCP tools, as far as they are known."""
    tools = ToolLint(spec, agents, lock)
    checks = (_visible, _names, _output, _hooks, _sinks, _replay, _model, _numbers)
    found: list[Problem] = []
    errors = 0
    for problem in chain(
        tools.problems(),
        _params(spec),
        lint_texts(spec, tools.args),
        PolicyLint(spec, tools.schemas, doubtful).problems(),
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


def _params(spec: Spec) -> Iterator[Problem]:
    for name, schema in spec.agent.params.items():
        path = spec.at("params", name)
        found = check_schema(path.existing_node)
        yield from found
        if name in RESERVED_PARAMS:
            message = f"a param cannot be called {quote_text(name)}, because {RESERVED_PARAMS[name]}"
            yield path.key_problem("spec.reserved", message, "choose another name")
        if not found and "default" in schema:
            resolved = resolve_references(path.existing_node)
            if error := first_error(resolved, resolved["default"], "the default"):
                message = f"the default does not match its own schema: {error[:200]}"
                yield path.at("default").problem("spec.param_default", message)


def _unused_params(spec: Spec) -> Iterator[Problem]:
    texts = [*(node.text for node, _ in spec_templates(spec, {})), *(file.text for file in spec.templates.values())]
    code = [part for text in texts for part in _template_code(text)]
    words = set(re.findall(r"\w+", " ".join([*code, *(node.text for node in spec_conditions(spec))])))
    for name in spec.agent.params:
        if name not in words:
            message = f"param {quote_text(name)} is never used"
            hint = "use it in a template or condition, or remove it"
            yield Problem(spec.at("params", name).key_place, "spec.unused_param", message, hint, "warning")


def _template_code(text: str) -> Iterator[str]:
    """Yield the code between the braces of a template."""
    for part in re.split(r"\{\{|\{%", text)[1:] if "{" in text else ():
        yield re.split(r"\}\}|%\}", part, maxsplit=1)[0]


def _visible(spec: Spec) -> Iterator[Problem]:
    calls = None if ToolTargets(spec.agent.tools).servers else spec.agent.tools
    fields = {**CONDITION_VARIABLES, "params": spec.agent.params, "calls": calls}
    del fields["args"]
    for name in spec.agent.tools:
        if node := spec.at("tools", name, "visible").scalar:
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
                yield spec.at(key, name).key_problem("spec.look_alike", message, "choose clearer names")
    yield from duplicate_names(spec.at("policy", "rules"), "id", [rule.id for rule in spec.agent.policy.rules])
    yield from duplicate_names(spec.at("hooks"), "id", [hook.id for hook in spec.agent.hooks])
    yield from duplicate_names(spec.at("replay", "redact"), "name", [each.name for each in spec.agent.replay.redact])


def _output(spec: Spec) -> Iterator[Problem]:
    node = spec.at("output", "schema").node
    if node is not None:
        yield from check_schema(node)
        return
    for key in ("repairs", "max_bytes", "max_depth"):
        if spec.at("output", key).node is not None:
            message = f"`{key}` has no effect without `output.schema`"
            hint = "add `output.schema`, or remove this key"
            yield spec.at("output", key).key_problem("spec.no_schema", message, hint)


def _hooks(spec: Spec) -> Iterator[Problem]:
    for index, hook in enumerate(spec.agent.hooks):
        yield from callback_problems(spec.project, hook.call, spec.at("hooks", index, "call").place, "question")
        if hook.at == "before_tool" and hook.on_failure == "continue":
            message = "the call would run if this hook fails, so `continue` is not possible at before_tool"
            path = spec.at("hooks", index, "on_failure")
            yield path.problem("spec.fails_open", message, "remove `on_failure`, or use another point")


def _sinks(spec: Spec) -> Iterator[Problem]:
    for name, sink in spec.agent.sinks.items():
        at = spec.at("sinks", name)
        if (path := getattr(sink, "path", None)) is not None:
            yield from path_problems(path, at.at("path"))
        yield from url_problems(at.at("url"))
        yield from private_address_problems(at.at("url"), allowed=getattr(sink, "private_network", False))
        yield from header_problems(at, getattr(sink, "headers", {}), getattr(sink, "auth", UNSET))


def _replay(spec: Spec) -> Iterator[Problem]:
    for index, redaction in enumerate(spec.agent.replay.redact):
        path = spec.at("replay", "redact", index)
        if redaction.path is UNSET and redaction.pattern is UNSET:
            message = "a redaction needs `path`, `pattern` or both"
            yield path.problem("spec.redact", message, 'for example {name: email, pattern: "[^ ]+@[^ ]+"}')
        if node := path.at("pattern").scalar:
            yield from pattern_problems(node)


def _model(spec: Spec) -> Iterator[Problem]:
    model = spec.agent.model
    for index, route in enumerate(model.routes):
        at = spec.at("model") if index == 0 else spec.at("model", "fallback", index - 1)
        yield from url_problems(at.at("base_url"))
        if route.provider not in CODECS:
            yield _unknown_provider(route.provider, at.at("provider").place)
    choice, path = model.tool_choice, spec.at("model", "tool_choice")
    if choice == "required" and not spec.agent.tools:
        message = "tool_choice is `required`, but the agent has no tools"
        yield path.problem("spec.unknown_tool", message, "add tools, or remove tool_choice")
    elif choice not in ("auto", "required", "none") and not ToolTargets(spec.agent.tools).matching_patterns(choice):
        hint = did_you_mean(choice, ["auto", "required", "none", *spec.agent.tools])
        yield path.problem("spec.unknown_tool", f"tool {quote_text(choice)} is not declared", hint)


def _unknown_provider(provider: str, place: SourcePlace) -> Problem:
    """A warning, because a program that runs the package may have a provider of this name."""
    names = f"known providers: {', '.join(sorted(CODECS))}; for another server, use one of them with `base_url`"
    message, hint = f"there is no provider {quote_text(provider)}", did_you_mean(provider, CODECS) or names
    return Problem(place, "spec.unknown_provider", message, hint, "warning")


def _numbers(spec: Spec) -> Iterator[Problem]:
    budgets, retry = spec.agent.budgets, spec.agent.retry
    if budgets.grace is not UNSET and budgets.grace >= budgets.turns:
        message = f"grace ({budgets.grace}) must be less than turns ({budgets.turns})"
        yield spec.at("budgets", "grace").problem("spec.out_of_range", message)
    if milliseconds(retry.first_delay) > milliseconds(retry.max_delay):
        message = f"first_delay ({retry.first_delay}) must not be longer than max_delay ({retry.max_delay})"
        yield spec.at("retry", "first_delay").problem("spec.out_of_range", message)
    if all(getattr(budgets, name) is UNSET for name in BUDGET_KINDS if name != "turns"):
        message = f"the only limit on what a run may spend is {plural(budgets.turns, 'turn')}"
        hint = "add a budget, for example budgets: {tokens: 50k, cost: 0.25, time: 2m}"
        yield Problem(spec.at("budgets").key_place, "spec.no_budget", message, hint, "warning")
