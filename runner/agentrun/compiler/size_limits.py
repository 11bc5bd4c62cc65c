"""Size limits of specs.

Every limit is far beyond what people write. A spec beyond a limit is refused before the other checks run, so checking
an untrusted file takes at most about a second and some tens of megabytes.
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
from agentrun.spec.tree import MappingNode, Node, ScalarNode, walk

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
    """Yield the first exceeded limit of each kind."""
    keys = list(_keys(spec))
    yield from keys
    if not keys:
        yield from _globs(spec)
        yield from _templates(spec)
        yield from _conditions(spec)
        yield from pattern_weight_problems(_all_patterns(spec))
        yield from _modules(spec)


def spec_conditions(spec: Spec) -> Iterator[ScalarNode]:
    paths = [spec.at("policy", "rules", index, "when") for index in range(len(spec.agent.policy.rules))]
    paths += [spec.at("tools", name, "visible") for name in spec.agent.tools]
    yield from (node for path in paths if (node := path.scalar))


def _beyond(amounts: Iterable[tuple[SourcePlace, int]], most: int, message: str, hint: str) -> Iterator[Problem]:
    """Yield a problem at the place where the sum of the amounts exceeds a limit. The amounts after it are not read."""
    total = 0
    for place, amount in amounts:
        total += amount
        if total > most:
            yield Problem(place, "spec.too_large", message, hint)
            return


def _keys(spec: Spec) -> Iterator[Problem]:
    for key, most in MAX_KEYS.items():
        if len(getattr(spec.agent, key)) > most:
            yield spec.at(key).key_problem("spec.out_of_range", f"{quote_text(key)} must have at most {most} keys")


def _globs(spec: Spec) -> Iterator[Problem]:
    rules = [rule for rule in spec.agent.policy.rules if rule_rulings(rule)]
    globs = {target for rule in rules for target in rule_targets(rule) if "*" in target}
    if len(globs) * len(ToolTargets(spec.agent.tools).patterns) > MAX_GLOBS_TIMES_TOOLS:
        message = f"the policy has too many globs ({len(globs):,}) for this many tools"
        yield spec.at("policy").key_problem("spec.too_large", message, "use fewer globs, or name the tools")


def _templates(spec: Spec) -> Iterator[Problem]:
    nodes = [node for node, _ in spec_templates(spec, {}) if is_template(node.text)]
    if sum(len(node.text) for node in nodes) > MAX_TEMPLATE_WORDS:
        words = (
            (each.place, sum(1 for _ in islice(_word.finditer(each.text), MAX_TEMPLATE_WORDS + 1))) for each in nodes
        )
        message = f"all templates together have more than {MAX_TEMPLATE_WORDS:,} tokens"
        yield from _beyond(words, MAX_TEMPLATE_WORDS, message, "move long texts without templates to files")


def _conditions(spec: Spec) -> Iterator[Problem]:
    lengths = ((node.place, len(node.text)) for node in spec_conditions(spec))
    message = f"all conditions together are longer than {MAX_CONDITION_TEXT:,} characters"
    yield from _beyond(lengths, MAX_CONDITION_TEXT, message, "use fewer or shorter conditions")


def pattern_weight_problems(patterns: Iterable[tuple[str, SourcePlace]]) -> Iterator[Problem]:
    """Yield a problem if the patterns are too large together. A repeated pattern counts once."""
    seen: set[str] = set()

    def weights() -> Iterator[tuple[SourcePlace, int]]:
        for pattern, place in patterns:
            if pattern not in seen:
                seen.add(pattern)
                yield place, max(check_pattern(pattern).weight, _MIN_PATTERN_WEIGHT)

    hint = "use fewer or simpler patterns; \\pL and other large classes cost most"
    yield from _beyond(weights(), MAX_PATTERN_WEIGHT, "all patterns together are too large", hint)


def _all_patterns(spec: Spec) -> Iterator[tuple[str, SourcePlace]]:
    yield from patterns_in_document(spec.root)
    for condition in spec_conditions(spec):
        for pattern, _, _ in patterns_in_condition(condition.text) if "matches" in condition.text else ():
            if pattern:
                yield pattern, condition.place


def patterns_in_document(root: Node) -> Iterator[tuple[str, SourcePlace]]:
    for key, node in walk(root):
        match node:
            case ScalarNode(value=str()) if key in ("pattern", "mask"):
                yield node.text, node.place
            case MappingNode() if key == "patternProperties":
                yield from ((pattern, entry.key_place) for pattern, entry in node.entries.items())


def _modules(spec: Spec) -> Iterator[Problem]:
    paths = [spec.at("tools", name, "call") for name in spec.agent.tools]
    paths += [spec.at("hooks", index, "call") for index in range(len(spec.agent.hooks))]
    modules: dict[str, ScalarNode] = {}
    for call in (node for path in paths if (node := path.scalar)):
        modules.setdefault(call.text.partition(":")[0], call)
    words = size = 0
    for module, node in modules.items():
        try:
            text = module_source(spec.project, module).text
        except FunctionRefused:
            continue  # reported by the check of the function
        size += len(text)
        words += count_words(text)
        if words > MAX_ALL_MODULE_WORDS or size > MAX_ALL_MODULE_TEXT:
            message = "the modules of all Python tools and hooks together are too large"
            yield Problem(node.place, "spec.too_large", message, "move the functions to smaller modules")
            return
