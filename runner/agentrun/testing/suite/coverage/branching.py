"""The templates of a spec that have more than one way through them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from agentrun.compiler.lint_texts import TEXTS, TOOL_TEXTS
from agentrun.compiler.resolve import Spec
from agentrun.compiler.template import is_template
from agentrun.compiler.template_language.branches import Branch, branches_of
from agentrun.spec.tree import Mapping, Node, Scalar, Sequence, at


class Branching(Struct, frozen=True):
    """A template, and its ways."""

    where: str
    """Its path in the spec: `instructions/0`, `tools/fetch/url`."""
    node: Scalar
    branches: tuple[Branch, ...]

    @property
    def tool(self) -> str | None:
        """The tool that it belongs to."""
        first, _, rest = self.where.partition("/")
        return rest.partition("/")[0] if first == "tools" else None

    def mark(self, way: str) -> str:
        """The name of one of its ways, within the spec."""
        return f"{self.where}@{way}"


def branching(spec: Spec) -> tuple[Branching, ...]:
    """Such templates, in the order of the spec's keys."""
    found = []
    for where, node in _templates(spec):
        if is_template(node.text) and (branches := branches_of(node.text)):
            found.append(Branching(where, node, tuple(branches)))
    return tuple(found)


def _templates(spec: Spec) -> Iterator[tuple[str, Scalar]]:
    for path in TEXTS:
        yield from _scalars("/".join(path), at(spec.root, path))
    for name, tool in spec.agent.tools.items():
        for key in TOOL_TEXTS.get(str(tool.__struct_config__.tag), ()):
            yield from _scalars(f"tools/{name}/{key}", at(spec.root, ["tools", name, key]))


def _scalars(where: str, node: Node | None) -> Iterator[tuple[str, Scalar]]:
    match node:
        case Scalar() if isinstance(node.value, str):
            yield where, node
        case Sequence():
            for index, item in enumerate(node.items):
                yield from _scalars(f"{where}/{index}", item)
        case Mapping():
            for key, entry in node.entries.items():
                yield from _scalars(f"{where}/{key}", entry.node)
