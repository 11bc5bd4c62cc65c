"""What stands in texts: templates, references to the environment, literal secrets.

Rule 1  Jinja `{{ }}` stands in texts; `${NAME}` stands where a credential or an endpoint is named; never both in one.
Rule 2  Templates see the params and, in tools, `args`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from collections.abc import Mapping as MappingOf

from agentrun.compiler.resolve import Spec
from agentrun.compiler.template import check, is_template
from agentrun.secret import find_secrets
from agentrun.spec.problems import Problem, quoted
from agentrun.spec.tree import Mapping, Node, Scalar, Sequence, at

Names = MappingOf[str, Collection[str] | None]
Path = tuple[str | int, ...]

TEXTS = (("instructions",), ("input",), ("context", "compaction", "prompt"), ("guards", "nudge"))
"""Templates that see the params."""

TOOL_TEXTS = {"http": ("url", "query", "headers", "body"), "shell": ("argv", "stdin")}
"""Templates of tools, which see `args` too."""

ENV_TEXTS: tuple[Path, ...] = (
    ("model", "base_url"),
    ("model", "headers"),
    ("model", "fallback"),
    ("tools", "*", "url"),
    ("tools", "*", "headers"),
    ("tools", "*", "env"),
    ("sinks", "*", "url"),
    ("sinks", "*", "headers"),
)
"""Where `${NAME}` may stand, besides the keys that hold nothing else."""

ONLY_ENV = {"api_key", "secret"}

_ENV = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def lint_texts(spec: Spec, tool_args: MappingOf[str, Collection[str] | None]) -> Iterator[Problem]:
    """Problems of all texts. `tool_args`: the arguments of each tool; None: not known."""
    params: Names = dict.fromkeys(spec.agent.params)
    for path in TEXTS:
        for node in _scalars(at(spec.root, path)):
            yield from template_problems(node, params)
    tools = spec.root.get("tools")
    for name, entry in tools.entries.items() if isinstance(tools, Mapping) else ():
        names: Names = {**params, "args": tool_args.get(name, ())}
        for key in TOOL_TEXTS.get(str(spec.agent.tools[name].__struct_config__.tag), ()):
            for node in _scalars(at(entry.node, [key])):
                yield from template_problems(node, names)
    yield from _env_problems(spec.root)
    yield from secret_problems(spec.root, "")


def template_problems(node: Scalar, names: Names) -> Iterator[Problem]:
    for fault in check(node.text, names) if is_template(node.text) else ():
        place = node.place_in(fault.line, fault.column, fault.width)
        yield Problem(place, f"spec.{fault.code}", fault.message, fault.hint)


def _scalars(node: Node | None) -> Iterator[Scalar]:
    """The texts in a node."""
    match node:
        case Scalar() if isinstance(node.value, str):
            yield node
        case Sequence():
            for item in node.items:
                yield from _scalars(item)
        case Mapping():
            for entry in node.entries.values():
                yield from _scalars(entry.node)


def _env_problems(root: Mapping) -> Iterator[Problem]:
    allowed: set[int] = set()
    for path in ENV_TEXTS:
        for top in _matching(root, path):
            for node in _scalars(top):
                allowed.add(id(node))
                yield from _env_field(node)
    for key in ("tools", "sinks"):
        for node in _scalars(root.get(key)):
            match = _ENV.search(node.text)
            if match and id(node) not in allowed and not _NAME.fullmatch(node.text[2:-1]):
                hint = "pass the value as an argument or a param, or read it in the tool itself"
                message = f"{quoted(match[0])} is not filled in here"
                yield Problem(node.place_at(match.start(), len(match[0])), "spec.env_here", message, hint)


def _env_field(node: Scalar) -> Iterator[Problem]:
    for match in _ENV.finditer(node.text):
        if not _NAME.fullmatch(match[1]):
            place = node.place_at(match.start(), len(match[0]))
            yield Problem(place, "spec.env_name", f"{quoted(match[0])} does not name an environment variable")
    if _ENV.search(node.text) and is_template(node.text):
        message = "a text has either ${NAME} or {{ }}, never both"
        yield Problem(node.place, "spec.mixed", message, "put the part from the environment into a field of its own")


def _matching(node: Node | None, path: Path) -> Iterator[Node]:
    if node is None or not path:
        if node is not None:
            yield node
        return
    if isinstance(node, Mapping):
        keys = list(node.entries) if path[0] == "*" else [str(path[0])]
        for key in keys:
            yield from _matching(node.get(key), path[1:])


def secret_problems(node: Node, key: str) -> Iterator[Problem]:
    match node:
        case Scalar(value=str(text)):
            for start, end, kind in find_secrets(text, key or None):
                hint = "put it into the environment and name it as ${NAME} where a credential belongs"
                place = node.place_at(start, end - start)
                yield Problem(place, "spec.secret", f"this looks like a literal secret ({kind})", hint)
        case Sequence():
            for item in node.items:
                yield from secret_problems(item, key)
        case Mapping():
            for inner, entry in node.entries.items():
                yield from secret_problems(entry.node, inner)
