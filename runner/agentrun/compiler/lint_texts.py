"""Checks of texts: templates, environment variables, literal secrets.

Rule 1  Texts can have Jinja's `{{ }}`. Credentials and endpoints can have `${NAME}`. No text can have both, except the
        URL of an HTTP tool: it may begin with `${NAME}`, and the values filled in after it are encoded.
Rule 2  Templates can use the params and, in tools, `args`.
Rule 3  A literal secret is reported wherever it is: in a value, a key, a prompt or a comment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from agentrun.compiler import template
from agentrun.compiler.spec_reader import Spec
from agentrun.compiler.template import TOO_MANY_TOKENS, bundle_template, compile_bundle
from agentrun.compiler.template_sandbox import TOO_MUCH_CODE
from agentrun.secret import find_secrets, mask_spans
from agentrun.spec.problems import Problem, Source, SourcePlace, place_at, quote_text
from agentrun.spec.tree import MappingNode, Node, ScalarNode, SequenceNode, node_at, walk
from agentrun.spec.v1.tools import TOOL_TEMPLATE_KEYS, HttpToolSpec

TemplateScope = Mapping[str, Collection[str] | None]
KeyPath = tuple[str, ...]

PROMPT_PATHS: tuple[KeyPath, ...] = (
    ("instructions",),
    ("input",),
    ("context", "compaction", "prompt"),
    ("guards", "nudge"),
)
"""Templates that can use the params."""

ENV_PATHS: tuple[KeyPath, ...] = (
    ("model", "base_url"),
    ("model", "headers"),
    ("model", "fallback", "*", "base_url"),
    ("model", "fallback", "*", "headers"),
    ("tools", "*", "url"),
    ("tools", "*", "headers"),
    ("tools", "*", "env"),
    ("sinks", "*", "url"),
    ("sinks", "*", "headers"),
)
"""Where `${NAME}` is allowed, in addition to the keys that must be a `${NAME}`."""

NO_ENV_PATHS: tuple[KeyPath, ...] = (
    ("model", "options"),
    ("model", "fallback", "*", "options"),
    *(("tools", "*", key) for key in ("argv", "stdin", "query", "body", "cwd", "command", "params")),
    ("sinks", "*", "path"),
    ("policy", "rules", "*", "set"),
)
"""Where `${NAME}` is not replaced, but an author may expect it."""

MAX_SECRETS = 20

MIN_SECRET_KEY_LENGTH = 15
"""A shorter key cannot be a secret. Nearly all keys are shorter."""
_AROUND = 200
"""How many characters around a secret are needed to decide whether it will be masked."""

_ENV = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def spec_templates(
    spec: Spec, tool_args: Mapping[str, Collection[str] | None]
) -> Iterator[tuple[ScalarNode, TemplateScope]]:
    """Yield all templates with the names they can use. `tool_args`: the arguments of each tool; None: unknown."""
    params: TemplateScope = dict.fromkeys(spec.agent.params)
    for path in PROMPT_PATHS:
        for node in _scalars(node_at(spec.root, path)):
            yield node, params
    tools = spec.root.get("tools")
    for name, entry in tools.entries.items() if isinstance(tools, MappingNode) else ():
        names: TemplateScope = {**params, "args": tool_args.get(name, ())}
        for key in TOOL_TEMPLATE_KEYS.get(str(spec.agent.tools[name].__struct_config__.tag), ()):
            for node in _scalars(node_at(entry.node, [key])):
                yield node, names


def lint_texts(spec: Spec, tool_args: Mapping[str, Collection[str] | None]) -> Iterator[Problem]:
    included: template.IncludedNames = {}
    for node, names in spec_templates(spec, tool_args):
        found: template.IncludedNames = {}
        yield from template_problems(node, names, found)
        _narrow(included, found)
    yield from _included_problems(spec, included)
    yield from _bundle_problems(spec)
    yield from _env_problems(spec)
    yield from islice(secrets_in_node(spec.root), MAX_SECRETS)
    for source in (spec.source, *spec.files):
        yield from islice(secrets_in_source(source), MAX_SECRETS)


def _narrow(known: template.IncludedNames, found: template.IncludedNames) -> set[str]:
    """Keep only the names that are known in every place; return the files for which that is new."""
    narrowed = {name: sees & known.get(name, sees) for name, sees in found.items()}
    changed = {name for name, sees in narrowed.items() if known.get(name) != sees}
    known.update(narrowed)
    return changed


def _included_problems(spec: Spec, included: template.IncludedNames) -> Iterator[Problem]:
    """Check the included files. A name must be known in every place that includes the file."""
    problems: dict[str, list[Problem]] = {}
    pending = set(included)
    while pending:
        found: template.IncludedNames = {}
        for name in sorted(pending & spec.templates.keys()):
            source = spec.templates[name]
            node = ScalarNode(source.text, source.text, SourcePlace(source, 1, 1), "file", 0, len(source.text))
            own: template.IncludedNames = {}
            problems[name] = [*template_problems(node, dict.fromkeys(included[name]), own)]
            _narrow(found, own)
        pending = _narrow(included, found)
    yield from (problem for each in problems.values() for problem in each)


def _bundle_problems(spec: Spec) -> Iterator[Problem]:
    files = {name: source.text for name, source in spec.templates.items()}
    for node in [node for node, names in spec_templates(spec, {}) if "args" not in names] if files else ():
        try:
            compile_bundle(bundle_template(node.text, files))
        except template.TemplateRenderError as refused:
            if refused.message in (TOO_MANY_TOKENS, TOO_MUCH_CODE):  # the others are found in their file
                yield Problem(node.place, "spec.template_syntax", refused.message, "move parts of the text to a tool")


def template_problems(
    node: ScalarNode, names: TemplateScope, included: template.IncludedNames | None = None
) -> Iterator[Problem]:
    """Yield the problems of one template. `included`: gets the files that it includes."""
    for name, offset in template.included_files(node.text) if "args" in names else ():
        message = "the template of a tool cannot include a file"
        yield Problem(node.place_at(offset, len(name) + 2), "spec.template_forbidden", message, "write it out")
    for each in template.check_template(node.text, names, included) if template.is_template(node.text) else ():
        place = node.place_at_line(each.line, each.column, each.width)
        yield Problem(place, f"spec.{each.code}", each.message, each.hint)


def default_render_problems(spec: Spec, fixed: Mapping[str, Any]) -> Iterator[Problem]:
    """Render each prompt once with the default params, if all params have one. A run would stop in the same way.

    `fixed`: the values that a parent agent gives."""
    params = {**spec.agent.params, **{name: {"default": value} for name, value in fixed.items()}}
    files = {name: source.text for name, source in spec.templates.items()}
    if all("default" in schema for schema in params.values()):
        values = {name: schema["default"] for name, schema in params.items()}
        for node in [node for node, names in spec_templates(spec, {}) if "args" not in names]:
            try:
                template.render_template(bundle_template(node.text, files), values)
            except template.TemplateRenderError as stopped:
                place = node.place_at_line(stopped.line, stopped.column)
                if stopped.file:
                    place = SourcePlace(spec.templates[stopped.file], stopped.line, stopped.column)
                message = f"with the default params this prompt cannot be rendered: {stopped.message}"
                yield Problem(place, "spec.template_render", message, "change the template or a default")


def _scalars(node: Node | None) -> Iterator[ScalarNode]:
    for _, each in walk(node) if node is not None else ():
        if isinstance(each, ScalarNode) and isinstance(each.value, str):
            yield each


def _env_problems(spec: Spec) -> Iterator[Problem]:
    addresses = [
        node_at(spec.root, ["tools", name, "url"])
        for name, tool in spec.agent.tools.items()
        if isinstance(tool, HttpToolSpec)
    ]
    for path in ENV_PATHS:
        for node in _matching(spec.root, path):
            yield from _env_field(node, may_mix=any(node is each for each in addresses))
    for path in NO_ENV_PATHS:
        for node in _matching(spec.root, path):
            for match in _ENV.finditer(node.text):
                hint = "pass the value as an argument or a param, or read the variable in the tool"
                yield _env_not_allowed(node, match, hint)
    for path in PROMPT_PATHS:
        for node in _matching(spec.root, path):
            for match in _ENV.finditer(node.text):
                if match[1].strip() in spec.agent.params:
                    yield _env_not_allowed(node, match, f"to use the param write {{{{ {match[1].strip()} }}}}")


def _env_not_allowed(node: ScalarNode, match: re.Match[str], hint: str) -> Problem:
    place = node.place_at(match.start(), len(match[0]))
    return Problem(place, "spec.env_here", f"{quote_text(match[0])} is not replaced here", hint)


def _env_field(node: ScalarNode, *, may_mix: bool) -> Iterator[Problem]:
    for match in _ENV.finditer(node.text):
        if not _NAME.fullmatch(match[1]):
            place = node.place_at(match.start(), len(match[0]))
            message = f"{quote_text(match[0])} does not name an environment variable"
            yield Problem(place, "spec.env_name", message, "write ${NAME} with letters, digits and _")
    left = _ENV.sub(lambda match: " " * len(match[0]), node.text)
    if "${" in left:
        place = node.place_at(left.index("${"), 2)
        yield Problem(place, "spec.env_name", "${ is not closed", "write ${NAME}")
    if left != node.text and template.is_template(left) and not may_mix:
        message = "a text cannot have both ${NAME} and {{ }}"
        yield Problem(node.place, "spec.mixed", message, "move the part with ${NAME} to another field")


def _matching(node: Node | None, path: KeyPath) -> Iterator[ScalarNode]:
    """Yield the texts at a path and below it; `*` matches every key and item."""
    if not path:
        yield from _scalars(node)
    elif isinstance(node, MappingNode):
        for key in node.entries if path[0] == "*" else path[:1]:
            yield from _matching(node.get(key), path[1:])
    elif isinstance(node, SequenceNode) and path[0] == "*":
        for item in node.items:
            yield from _matching(item, path[1:])


def secrets_in_node(root: Node) -> Iterator[Problem]:
    for key, node in walk(root):
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            for start, end, kind in find_secrets(node.value, key or None):
                yield _secret_problem(node.place_at(start, end - start), kind)
        elif isinstance(node, MappingNode):
            for name, entry in node.entries.items():
                for _, _, kind in find_secrets(name) if len(name) >= MIN_SECRET_KEY_LENGTH else ():
                    yield _secret_problem(entry.key_place, kind)


def secrets_in_source(source: Source) -> Iterator[Problem]:
    """Find text in a file that looks like a secret. Comments count."""
    for start, end, kind in find_secrets(source.text):
        yield _secret_problem(place_at(source, start, end - start), kind)


def _secret_problem(place: SourcePlace, kind: str) -> Problem:
    """Show the line only if the secret in it would be masked. A secret with escapes may not be recognised."""
    hint = "put it into an environment variable and write ${NAME} where a credential is expected"
    source, line = place.source, place.source.line(place.line) or ""
    start = place.column - 1
    end = min(start + place.width, len(line))
    first = max(0, start - _AROUND)
    if not any(first + a <= start and end <= first + b for a, b in mask_spans(line[first : end + _AROUND])):
        place = SourcePlace(Source(source.path, source.display_name, ""), place.line, place.column)
    return Problem(place, "spec.secret", f"this looks like a literal secret ({kind})", hint)
