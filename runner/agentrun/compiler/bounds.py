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

from agentrun.compiler.conditions import patterns_in
from agentrun.compiler.lint_policy import rulings_of, targets_of
from agentrun.compiler.lint_texts import templates
from agentrun.compiler.patterns import judged
from agentrun.compiler.resolve import Spec
from agentrun.compiler.signatures import Refused, module_source, words_in
from agentrun.compiler.targets import Subjects
from agentrun.compiler.template import is_template
from agentrun.spec.problems import Place, Problem, quoted
from agentrun.spec.tree import Mapping, Node, Scalar, Sequence, at, place_of

MOST_KEYS = {"tools": 256, "params": 256, "sinks": 64, "profiles": 64}
TEMPLATE_WORDS = 100_000
MODULE_WORDS = 150_000
MODULE_TEXT = 4 * 1024 * 1024
CONDITION_TEXT = 128 * 1024
PATTERN_WEIGHT = 150_000
GLOBS_TIMES_TOOLS = 500_000

_LIGHTEST = 300
_word = re.compile(r"\w+|[^\w\s]")


def beyond_bounds(spec: Spec) -> Iterator[Problem]:
    """The first limit of each kind that a spec exceeds."""
    keys = list(_keys(spec))
    yield from keys
    if not keys:
        yield from _globs(spec)
        yield from _templates(spec)
        yield from _conditions(spec)
        yield from too_heavy(_all_patterns(spec))
        yield from _modules(spec)


def conditions(spec: Spec) -> Iterator[Scalar]:
    """Every condition of a spec."""
    paths: list[list[str | int]] = [["policy", "rules", index, "when"] for index in range(len(spec.agent.policy.rules))]
    paths += [["tools", name, "visible"] for name in spec.agent.tools]
    for path in paths:
        node = at(spec.root, path)
        if isinstance(node, Scalar):
            yield node


def _too_large(place: Place, message: str, hint: str) -> Problem:
    return Problem(place, "spec.too_large", message, hint)


def _keys(spec: Spec) -> Iterator[Problem]:
    for key, most in MOST_KEYS.items():
        if len(getattr(spec.agent, key)) > most:
            place = place_of(spec.root, [key], key=True)
            yield Problem(place, "spec.out_of_range", f"{quoted(key)} must have at most {most} keys")


def _globs(spec: Spec) -> Iterator[Problem]:
    rules = [rule for rule in spec.agent.policy.rules if rulings_of(rule)]
    globs = {target for rule in rules for target in targets_of(rule) if "*" in target}
    if len(globs) * len(Subjects(spec.agent.tools).patterns) > GLOBS_TIMES_TOOLS:
        message = f"the policy has too many globs ({len(globs):,}) for this many tools"
        yield _too_large(place_of(spec.root, ["policy"], key=True), message, "write fewer of them, or tools by name")


def _templates(spec: Spec) -> Iterator[Problem]:
    nodes = [node for node, _ in templates(spec, {}) if is_template(node.text)]
    if sum(len(node.text) for node in nodes) <= TEMPLATE_WORDS:
        return
    words = 0
    for node in nodes:
        words += sum(1 for _ in islice(_word.finditer(node.text), TEMPLATE_WORDS + 1))
        if words > TEMPLATE_WORDS:
            message = f"all templates together have more than {TEMPLATE_WORDS:,} words and signs"
            yield _too_large(node.place, message, "put long fixed texts into files without templates")
            return


def _conditions(spec: Spec) -> Iterator[Problem]:
    length = 0
    for node in conditions(spec):
        length += len(node.text)
        if length > CONDITION_TEXT:
            message = f"all conditions together are longer than {CONDITION_TEXT:,} characters"
            yield _too_large(node.place, message, "write fewer or shorter rules")
            return


def too_heavy(patterns: Iterable[tuple[str, Place]]) -> Iterator[Problem]:
    """Patterns that together cost too much."""
    seen: set[str] = set()
    weight = 0
    for pattern, place in patterns:
        if pattern not in seen:
            seen.add(pattern)
            weight += max(judged(pattern).weight, _LIGHTEST)
        if weight > PATTERN_WEIGHT:
            message = "all patterns together are too large"
            yield _too_large(place, message, "write fewer or simpler ones; letters of all alphabets (\\pL) weigh most")
            return


def _all_patterns(spec: Spec) -> Iterator[tuple[str, Place]]:
    yield from patterns_of(spec.root)
    for condition in conditions(spec):
        if "matches" in condition.text:
            yield from ((pattern, condition.place) for pattern, _, _ in patterns_in(condition.text) if pattern)


def patterns_of(root: Node) -> Iterator[tuple[str, Place]]:
    """All that may be a pattern in a document."""
    pending: list[tuple[str, Node]] = [("", root)]
    while pending:
        key, node = pending.pop()
        match node:
            case Scalar(value=str()) if key in ("pattern", "mask"):
                yield node.text, node.place
            case Sequence():
                pending += [(key, item) for item in node.items]
            case Mapping():
                if key == "patternProperties":
                    yield from ((pattern, entry.key_place) for pattern, entry in node.entries.items())
                pending += [(inner, entry.node) for inner, entry in node.entries.items()]


def _modules(spec: Spec) -> Iterator[Problem]:
    calls: list[list[str | int]] = [["tools", name, "call"] for name in spec.agent.tools]
    calls += [["hooks", index, "call"] for index in range(len(spec.agent.hooks))]
    seen: set[str] = set()
    words = size = 0
    for path in calls:
        node = at(spec.root, path)
        module = node.text.partition(":")[0] if isinstance(node, Scalar) else ""
        if node is None or module in seen:
            continue
        seen.add(module)
        try:
            source = module_source(spec.project, module)
        except Refused:
            continue  # told where the function is looked for
        size += len(source.text)
        words += words_in(source)
        if words > MODULE_WORDS or size > MODULE_TEXT:
            message = "the modules of all Python tools and hooks together are too large"
            yield _too_large(node.place, message, "move the functions into smaller modules")
            return
