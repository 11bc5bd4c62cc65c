"""What stands in texts: templates, references to the environment, literal secrets.

Rule 1  Jinja `{{ }}` stands in texts; `${NAME}` stands where a credential or an endpoint is named; never both in one,
        but for the address of an HTTP tool: it may begin with `${NAME}`, and what is filled in behind that is encoded.
Rule 2  Templates see the params and, in tools, `args`.
Rule 3  A literal secret is one wherever it stands: in a value, a key, a prompt, a comment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from collections.abc import Mapping as MappingOf
from itertools import islice

from agentrun.compiler.spec_reader import Spec
from agentrun.compiler.template import check_template, is_template
from agentrun.secret import find_secrets, mask_spans
from agentrun.spec.problems import Problem, Source, SourcePlace, place_at, quote_text
from agentrun.spec.tree import MappingNode, Node, ScalarNode, SequenceNode, node_at
from agentrun.spec.v1.tools import HttpToolSpec

TemplateScope = MappingOf[str, Collection[str] | None]
KeyPath = tuple[str, ...]

PROMPT_PATHS: tuple[KeyPath, ...] = (
    ("instructions",),
    ("input",),
    ("context", "compaction", "prompt"),
    ("guards", "nudge"),
)
"""Templates that see the params."""

TOOL_TEMPLATE_KEYS = {"http": ("url", "query", "headers", "body"), "shell": ("argv", "stdin")}
"""Templates of tools, which see `args` too."""

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
"""Where `${NAME}` may stand, besides the keys that hold nothing else."""

NO_ENV_PATHS: tuple[KeyPath, ...] = (
    ("model", "options"),
    ("model", "fallback", "*", "options"),
    *(("tools", "*", key) for key in ("argv", "stdin", "query", "body", "cwd", "command", "params")),
    ("sinks", "*", "path"),
    ("policy", "rules", "*", "set"),
)
"""Where a writer may hope for it in vain."""

MAX_SECRETS = 20
"""Literal secrets told of one spec: a file with more is not a spec."""

MIN_SECRET_KEY_LENGTH = 15
"""A mapping's key that is shorter cannot have the shape of a secret; nearly all are."""
_AROUND = 200
"""How much of a line tells whether a secret in it is masked."""

_ENV = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def spec_templates(
    spec: Spec, tool_args: MappingOf[str, Collection[str] | None]
) -> Iterator[tuple[ScalarNode, TemplateScope]]:
    """All templates with the names they see. `tool_args`: the arguments of each tool; None: not known."""
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


def lint_texts(spec: Spec, tool_args: MappingOf[str, Collection[str] | None]) -> Iterator[Problem]:
    """Problems of all texts."""
    for node, names in spec_templates(spec, tool_args):
        yield from template_problems(node, names)
    yield from _env_problems(spec)
    yield from islice(secrets_in_node(spec.root, ""), MAX_SECRETS)
    for source in (spec.source, *spec.files):
        yield from islice(secrets_in_source(source), MAX_SECRETS)


def template_problems(node: ScalarNode, names: TemplateScope) -> Iterator[Problem]:
    for fault in check_template(node.text, names) if is_template(node.text) else ():
        place = node.place_at_line(fault.line, fault.column, fault.width)
        yield Problem(place, f"spec.{fault.code}", fault.message, fault.hint)


def _scalars(node: Node | None) -> Iterator[ScalarNode]:
    """The texts in a node."""
    match node:
        case ScalarNode() if isinstance(node.value, str):
            yield node
        case SequenceNode():
            for item in node.items:
                yield from _scalars(item)
        case MappingNode():
            for entry in node.entries.values():
                yield from _scalars(entry.node)


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
                hint = "pass the value as an argument or a param, or read it in the tool itself"
                yield _env_not_allowed(node, match, hint)
    for path in PROMPT_PATHS:
        for node in _matching(spec.root, path):
            for match in _ENV.finditer(node.text):
                if match[1].strip() in spec.agent.params:
                    yield _env_not_allowed(node, match, f"write {{{{ {match[1].strip()} }}}} for the param")


def _env_not_allowed(node: ScalarNode, match: re.Match[str], hint: str) -> Problem:
    place = node.place_at(match.start(), len(match[0]))
    return Problem(place, "spec.env_here", f"{quote_text(match[0])} is not filled in here", hint)


def _env_field(node: ScalarNode, *, may_mix: bool) -> Iterator[Problem]:
    for match in _ENV.finditer(node.text):
        if not _NAME.fullmatch(match[1]):
            place = node.place_at(match.start(), len(match[0]))
            message = f"{quote_text(match[0])} does not name an environment variable"
            yield Problem(place, "spec.env_name", message, "write ${NAME}, with letters, digits and _")
    left = _ENV.sub(lambda match: " " * len(match[0]), node.text)
    if "${" in left:
        place = node.place_at(left.index("${"), 2)
        yield Problem(place, "spec.env_name", "${ is not closed", "write ${NAME}")
    if left != node.text and is_template(left) and not may_mix:
        message = "a text has either ${NAME} or {{ }}, never both"
        yield Problem(node.place, "spec.mixed", message, "put the part from the environment into a field of its own")


def _matching(node: Node | None, path: KeyPath) -> Iterator[ScalarNode]:
    """The texts at a path, and below it; `*` stands for every key and item."""
    if not path:
        yield from _scalars(node)
    elif isinstance(node, MappingNode):
        for key in node.entries if path[0] == "*" else path[:1]:
            yield from _matching(node.get(key), path[1:])
    elif isinstance(node, SequenceNode) and path[0] == "*":
        for item in node.items:
            yield from _matching(item, path[1:])


def secrets_in_node(node: Node, key: str) -> Iterator[Problem]:
    """Literal secrets in values and keys."""
    match node:
        case ScalarNode(value=str(text)):
            for start, end, kind in find_secrets(text, key or None):
                yield _secret_problem(node.place_at(start, end - start), kind)
        case SequenceNode():
            for item in node.items:
                yield from secrets_in_node(item, key)
        case MappingNode():
            for inner, entry in node.entries.items():
                for _, _, kind in find_secrets(inner) if len(inner) >= MIN_SECRET_KEY_LENGTH else ():
                    yield _secret_problem(entry.key_place, kind)
                yield from secrets_in_node(entry.node, inner)


def secrets_in_source(source: Source) -> Iterator[Problem]:
    """Secrets anywhere in the text of a file, comments included, as far as their shape tells."""
    for start, end, kind in find_secrets(source.text):
        yield _secret_problem(place_at(source, start, end - start), kind)


def _secret_problem(place: SourcePlace, kind: str) -> Problem:
    """The line is shown only if it would be masked: with escapes in it, a secret does not look like one."""
    hint = "put it into the environment and name it as ${NAME} where a credential belongs"
    source, line = place.source, place.source.line(place.line) or ""
    start = place.column - 1
    end = min(start + place.width, len(line))
    first = max(0, start - _AROUND)
    if not any(first + a <= start and end <= first + b for a, b in mask_spans(line[first : end + _AROUND])):
        place = SourcePlace(Source(source.path, source.display_name, ""), place.line, place.column)
    return Problem(place, "spec.secret", f"this looks like a literal secret ({kind})", hint)
