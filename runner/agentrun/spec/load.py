"""One document: from its text to a tree that its schema accepts."""

from __future__ import annotations

from msgspec import Struct

from agentrun.spec.check import check
from agentrun.spec.document import parse
from agentrun.spec.problems import DocumentError, Problem, Source
from agentrun.spec.tree import Mapping
from agentrun.spec.versions import upgraded


class Document(Struct, frozen=True):
    """A document as far as it could be read, with everything wrong in it."""

    source: Source
    root: Mapping | None
    """The tree in the latest version; None when there is none to speak of."""
    problems: tuple[Problem, ...] = ()


def load(source: Source, kind: str) -> Document:
    """Reads a document of a kind: agent, tools, policy, budgets or cases."""
    try:
        root = parse(source)
    except DocumentError as error:
        return Document(source, None, tuple(error.problems))
    if not isinstance(root, Mapping):
        wrong = Problem(root.place, "spec.wrong_type", f"a document of kind {kind} must be a mapping of keys")
        return Document(source, None, (wrong,))
    current = upgraded(root)
    if isinstance(current, Problem):
        return Document(source, None, (current,))
    return Document(source, current, tuple(check(current, kind)))
