"""What one spec may ask of the checks.

Rule 1  Every limit is far beyond what people write. Past one the spec is refused before anything is worked out, so that
        no file that somebody else wrote takes more than a second and some tens of megabytes to look at.
Rule 2  What is counted is what costs: the words of templates and Python modules, the programs of patterns, the length
        of conditions, the globs of a policy times the tools they may name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from agentrun.compiler.conditions import patterns_in_condition
from agentrun.compiler.lint_policy import ToolTargets, rule_rulings, rule_targets
from agentrun.compiler.lint_texts import spec_templates
from agentrun.compiler.patterns import check_pattern
from agentrun.compiler.python_functions import FunctionRefused, count_words, module_source
from agentrun.compiler.spec_reader import Spec
from agentrun.compiler.template import is_template
from agentrun.spec.problems import Problem, SourcePlace, quote_text
from agentrun.spec.tree import MappingNode, Node, ScalarNode, SequenceNode, node_at, place_at_path

MAX_KEYS = {"tools": 256, "params": 256, "sinks": 64, "profiles": 64}
MAX_TEMPLATE_WORDS = 100_000
MAX_ALL_MODULE_WORDS = 150_000
MAX_ALL_MODULE_TEXT = 4 * 1024 * 1024
MAX_CONDITION_TEXT = 128 * 1024
MAX_PATTERN_WEIGHT = 150_000
MAX_GLOBS_TIMES_TOOLS = 500_000

_MIN_PATTERN_WEIGHT = 300
_word = re.compile(r"\w+|[^\w\s]")


def exceeded_limits(spec: Spec) -> Iterator[Problem]:
    """The first limit of each kind that a spec exceeds."""
    keys = list(_keys(spec))
    yield from keys
    if not keys:
        yield from _globs(spec)
        yield from _templates(spec)
        yield from _conditions(spec)
        yield from pattern_weight_problems(_all_patterns(spec))
        yield from _modules(spec)


def spec_conditions(spec: Spec) -> Iterator[ScalarNode]:
    """Every condition of a spec."""
    paths: list[list[str | int]] = [["policy", "rules", index, "when"] for index in range(len(spec.agent.policy.rules))]
    paths += [["tools", name, "visible"] for name in spec.agent.tools]
    for path in paths:
        node = node_at(spec.root, path)
        if isinstance(node, ScalarNode):
            yield node


def _too_large(place: SourcePlace, message: str, hint: str) -> Problem:
    return Problem(place, "spec.too_large", message, hint)


def _keys(spec: Spec) -> Iterator[Problem]:
    for key, most in MAX_KEYS.items():
        if len(getattr(spec.agent, key)) > most:
            place = place_at_path(spec.root, [key], key=True)
            yield Problem(place, "spec.out_of_range", f"{quote_text(key)} must have at most {most} keys")


def _globs(spec: Spec) -> Iterator[Problem]:
    rules = [rule for rule in spec.agent.policy.rules if rule_rulings(rule)]
    globs = {target for rule in rules for target in rule_targets(rule) if "*" in target}
    if len(globs) * len(ToolTargets(spec.agent.tools).patterns) > MAX_GLOBS_TIMES_TOOLS:
        message = f"the policy has too many globs ({len(globs):,}) for this many tools"
        yield _too_large(
            place_at_path(spec.root, ["policy"], key=True), message, "write fewer of them, or tools by name"
        )


def _templates(spec: Spec) -> Iterator[Problem]:
    nodes = [node for node, _ in spec_templates(spec, {}) if is_template(node.text)]
    if sum(len(node.text) for node in nodes) <= MAX_TEMPLATE_WORDS:
        return
    words = 0
    for node in nodes:
        words += sum(1 for _ in islice(_word.finditer(node.text), MAX_TEMPLATE_WORDS + 1))
        if words > MAX_TEMPLATE_WORDS:
            message = f"all templates together have more than {MAX_TEMPLATE_WORDS:,} words and signs"
            yield _too_large(node.place, message, "put long fixed texts into files without templates")
            return


def _conditions(spec: Spec) -> Iterator[Problem]:
    length = 0
    for node in spec_conditions(spec):
        length += len(node.text)
        if length > MAX_CONDITION_TEXT:
            message = f"all conditions together are longer than {MAX_CONDITION_TEXT:,} characters"
            yield _too_large(node.place, message, "write fewer or shorter rules")
            return


def pattern_weight_problems(patterns: Iterable[tuple[str, SourcePlace]]) -> Iterator[Problem]:
    """Patterns that together cost too much."""
    seen: set[str] = set()
    weight = 0
    for pattern, place in patterns:
        if pattern not in seen:
            seen.add(pattern)
            weight += max(check_pattern(pattern).weight, _MIN_PATTERN_WEIGHT)
        if weight > MAX_PATTERN_WEIGHT:
            message = "all patterns together are too large"
            yield _too_large(place, message, "write fewer or simpler ones; letters of all alphabets (\\pL) weigh most")
            return


def _all_patterns(spec: Spec) -> Iterator[tuple[str, SourcePlace]]:
    yield from patterns_in_document(spec.root)
    for condition in spec_conditions(spec):
        if "matches" in condition.text:
            yield from (
                (pattern, condition.place) for pattern, _, _ in patterns_in_condition(condition.text) if pattern
            )


def patterns_in_document(root: Node) -> Iterator[tuple[str, SourcePlace]]:
    """All that may be a pattern in a document."""
    pending: list[tuple[str, Node]] = [("", root)]
    while pending:
        key, node = pending.pop()
        match node:
            case ScalarNode(value=str()) if key in ("pattern", "mask"):
                yield node.text, node.place
            case SequenceNode():
                pending += [(key, item) for item in node.items]
            case MappingNode():
                if key == "patternProperties":
                    yield from ((pattern, entry.key_place) for pattern, entry in node.entries.items())
                pending += [(inner, entry.node) for inner, entry in node.entries.items()]


def _modules(spec: Spec) -> Iterator[Problem]:
    calls: list[list[str | int]] = [["tools", name, "call"] for name in spec.agent.tools]
    calls += [["hooks", index, "call"] for index in range(len(spec.agent.hooks))]
    seen: set[str] = set()
    words = size = 0
    for path in calls:
        node = node_at(spec.root, path)
        module = node.text.partition(":")[0] if isinstance(node, ScalarNode) else ""
        if node is None or module in seen:
            continue
        seen.add(module)
        try:
            source = module_source(spec.project, module)
        except FunctionRefused:
            continue  # told where the function is looked for
        size += len(source.text)
        words += count_words(source)
        if words > MAX_ALL_MODULE_WORDS or size > MAX_ALL_MODULE_TEXT:
            message = "the modules of all Python tools and hooks together are too large"
            yield _too_large(node.place, message, "move the functions into smaller modules")
            return
