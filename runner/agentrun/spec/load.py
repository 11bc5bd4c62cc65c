"""One document: from its text to a tree that its schema accepts."""

from __future__ import annotations

from msgspec import Struct, structs

from agentrun.spec.check import Fault, faults
from agentrun.spec.document import parse
from agentrun.spec.problems import DocumentError, Problem, Source
from agentrun.spec.tree import Entry, Mapping, Scalar
from agentrun.spec.versions import LATEST, upgraded


class Document(Struct, frozen=True):
    """A document as far as it could be read, with everything wrong in it."""

    source: Source
    root: Mapping | None
    """The tree in the latest version; None when there is none to speak of."""
    problems: tuple[Problem, ...] = ()
    faults: tuple[Fault, ...] = ()
    """Those of the problems that the schema found, with their paths."""


def load(source: Source, kind: str) -> Document:
    """Reads a document of a kind: agent, tools, policy, budgets, cases or provider."""
    try:
        root = parse(source)
    except DocumentError as error:
        return Document(source, None, tuple(error.problems))
    if not isinstance(root, Mapping):
        message = f"{_KINDS[kind]} must be a mapping of keys"
        return Document(source, None, (Problem(root.place, "spec.wrong_type", message),))
    if kind == "agent" and "agentrun" not in root.entries and root.entries.keys() >= _PACKAGE:
        message = "this is a package, not a spec"
        hint = "run the spec that it was compiled from, or use agentrun.run(package) from Python"
        return Document(source, None, (Problem(root.place, "spec.wrong_type", message, hint),))
    current = upgraded(root)
    wrong = (current,) if isinstance(current, Problem) else ()
    meant = _with_version(root) if isinstance(current, Problem) else current
    if meant is None:
        return Document(source, None, wrong)
    found = tuple(faults(meant, kind))
    return Document(source, meant, (*wrong, *(fault.problem for fault in found)), found)


def _with_version(root: Mapping) -> Mapping | None:
    """The document as it was meant, if only the quotes around its version are missing."""
    entry = root.entries.get("agentrun")
    if entry is None or not isinstance(entry.node, Scalar) or entry.node.text != LATEST:
        return None
    version = structs.replace(entry.node, value=LATEST)
    return Mapping({**root.entries, "agentrun": Entry(entry.key_place, version)}, root.place)


_PACKAGE = {"agent", "fingerprint", "sections"}
"""Keys that only a compiled agent has at its top."""
_KINDS = {
    "agent": "an agent",
    "tools": "a file of tools",
    "policy": "a policy",
    "budgets": "a file of budgets",
    "cases": "a file of cases",
    "provider": "a script of a provider",
}
