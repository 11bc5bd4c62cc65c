"""What is left of a document when its mistakes are taken out, so that one mistake does not hide the others.

Rule 1  What is taken out is a whole tool, rule, param, sink or hook, or a whole section: what remains makes sense.
Rule 2  A section that lacks something is doubtful. What may only follow from that (a tool that is not declared, because
        the file of tools could not be read) is not reported.
Rule 3  The rest is only ever looked at for more problems: it is never compiled or run.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentrun.spec.check import Fault
from agentrun.spec.problems import Place, Problem
from agentrun.spec.tree import Entry, Mapping, Node, Scalar, Sequence
from agentrun.spec.v1.agent import Agent

SECTIONS = frozenset(Agent.__struct_fields__)

_UNITS = (("tools", "*"), ("params", "*"), ("sinks", "*"), ("profiles", "*"), ("hooks", "*"))
_DEEPER_UNITS = (("policy", "rules", "*"), ("replay", "redact", "*"))

FOLLOWS: dict[str, frozenset[str]] = {
    "spec.template_unknown_name": frozenset({"params"}),
    "spec.unknown_tool": frozenset({"tools"}),
    "spec.unknown_arg": frozenset({"tools"}),
    "spec.unknown_param": frozenset({"params"}),
    "spec.no_budget": frozenset({"budgets"}),
    "spec.no_price": frozenset({"model", "budgets"}),
    "spec.no_schema": frozenset({"output"}),
    "spec.env_here": frozenset({"params"}),
}
"""Problems that may only follow from what is missing elsewhere, and the sections they are judged by. What follows in a
policy is left out where it is looked for."""


def follows(problem: Problem, doubtful: frozenset[str]) -> bool:
    """Whether a problem may be nothing but the consequence of another."""
    return not doubtful.isdisjoint(FOLLOWS.get(problem.code, frozenset()))


def salvaged(root: Mapping, faults: Iterable[Fault]) -> tuple[Mapping, frozenset[str]]:
    """The document without what is wrong in it, and the sections that lack something now."""
    doubtful: set[str] = set()
    taken: set[tuple[str | int, ...]] = set()
    for fault in faults:
        top = fault.path[0] if fault.path else None
        # A key that nobody knows, or one that is missing, may be any section under a wrong name.
        doubtful |= {top} if isinstance(top, str) and top in SECTIONS else SECTIONS
        taken.add(_unit(fault.path))
    rest = _without(root, taken, ())
    assert isinstance(rest, Mapping)
    return _completed(rest), frozenset(doubtful)


def _unit(path: tuple[str | int, ...]) -> tuple[str | int, ...]:
    for unit in (*_DEEPER_UNITS, *_UNITS):
        if path[: len(unit) - 1] == unit[:-1] and len(path) >= len(unit):
            return path[: len(unit)]
    return path[:1]


def _without(node: Node, taken: set[tuple[str | int, ...]], path: tuple[str | int, ...]) -> Node:
    if len(path) > 3:
        return node
    match node:
        case Mapping():
            kept = {
                key: Entry(entry.key_place, _without(entry.node, taken, (*path, key)))
                for key, entry in node.entries.items()
                if (*path, key) not in taken
            }
            return Mapping(kept, node.place)
        case Sequence():
            items = enumerate(node.items)
            return Sequence(
                tuple(_without(item, taken, (*path, index)) for index, item in items if (*path, index) not in taken),
                node.place,
            )
        case _:
            return node


def _completed(root: Mapping) -> Mapping:
    """With something in place of the keys that every agent has."""
    place = root.place
    model = Mapping({key: Entry(place, _text("x", place)) for key in ("provider", "name")}, place)
    stand_ins: dict[str, Node] = {
        "agentrun": _text("1", place),
        "name": _text("x", place),
        "model": model,
        "instructions": _text("x", place),
    }
    missing = {key: Entry(place, node) for key, node in stand_ins.items() if key not in root.entries}
    return Mapping({**root.entries, **missing}, place)


def _text(text: str, place: Place) -> Scalar:
    return Scalar(text, text, place, "plain", 0, 0)
