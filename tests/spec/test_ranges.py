"""Every range of the spec language at its edges, in the schema and in the models."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from agentrun.compiler.schema_files import DOCUMENT_MODELS

from ..documents import document_with, split_into_files
from ..full_cases import CASES
from ..full_provider_script import SCRIPT
from ..full_spec import BUDGETS, POLICY, RICH, TOOLS
from ..schemas import Node, keys, nodes, validator
from .schema_edges import PATTERNS, edges, models_take, with_value

SCHEMA_ONLY = {f"policy.rules.[].{ruling}" for ruling in ("allow", "modify", "ask", "defer", "deny", "interrupt")} | {
    f"{at}assert.[].<{kind}>.value.[]"
    for at in ("defaults.", "cases.[].", "cases.[].turns.[].")
    for kind in ("tools-exact", "tools-in-order", "tools-any-order")
}
"""One target has its pattern in the schema alone (spec/v1/policy.py says why)."""

TEXT_FILES = ("instructions.file", "instructions.[].file", "input.file", "context.compaction.prompt.file")
"""Other files, of parts and schemas, are read before there is a model."""

_FILES = split_into_files(RICH, parts=False)[0]
DOCUMENTS_OF: dict[str, list[Any]] = {
    "agent": [RICH, _FILES, document_with(_FILES, "instructions", {"file": "all.md"}), split_into_files(RICH)[0]],
    "tools": [{"agentrun": "1", "tools": TOOLS}],
    "policy": [{"agentrun": "1", "policy": POLICY}],
    "budgets": [{"agentrun": "1", "budgets": BUDGETS}],
    "cases": CASES,
    "provider": [SCRIPT],
}


class FoundPlace(NamedTuple):
    """A key, item or name of a document, in a document that has it."""

    kind: str
    base: Any
    node: Node

    @property
    def in_models(self) -> bool:
        return not self.node.key.endswith(".file") or self.node.key in TEXT_FILES


def find_places() -> dict[str, FoundPlace]:
    """One place for every key, item and name that a document may have."""
    places: dict[str, FoundPlace] = {}
    for kind, bases in DOCUMENTS_OF.items():
        for base in bases:
            for node in nodes(kind, base):
                one = FoundPlace(kind, base, node)
                if not isinstance(base.get("tools"), list) or not one.in_models:  # a list of parts has no model
                    places.setdefault(f"{kind}: {node.key}", one)
    return places


PLACES_BY_NAME = find_places()
SECTIONS = sorted({name.partition(".")[0] for name in PLACES_BY_NAME})


def places_in(section: str) -> Iterator[tuple[str, FoundPlace]]:
    return ((name, one) for name, one in PLACES_BY_NAME.items() if name.partition(".")[0] == section)


@pytest.mark.parametrize("section", SECTIONS)
def test_schema_and_models_agree_at_the_edges_of_a_range(section: str) -> None:
    for name, one in places_in(section):
        kind, base, node = one
        for value, inside in edges(node.says, node.value):
            document = with_value(base, node.at, value)
            shown = f"{name} = {str(value)[:80]}"
            assert validator(kind).is_valid(document) is inside, f"schema: {shown}"
            if one.in_models and not (node.key in SCHEMA_ONLY and isinstance(value, str)):
                assert models_take(document, DOCUMENT_MODELS[kind]) is inside, f"models: {shown}"


@pytest.mark.parametrize("section", SECTIONS)
def test_pattern_does_not_match_a_trailing_newline(section: str) -> None:
    """`$` of Python's patterns also matches before a last line end, so it is the schema that must refuse it."""
    for name, (kind, base, node) in places_in(section):
        for text in PATTERNS[node.says["pattern"]][0] if "pattern" in node.says else ():
            assert not validator(kind).is_valid(with_value(base, node.at, f"{text}\n")), f"{name} = {text!r}"


def test_every_key_has_a_tested_place() -> None:
    for kind in ("agent", "policy", "budgets", "cases"):
        assert {f"{kind}: {key}" for key in keys(kind)} <= PLACES_BY_NAME.keys()
    in_tools = {key for key in keys("tools") if not key.endswith(".file")}  # these are tried in an agent
    assert {f"tools: {key}" for key in in_tools} <= PLACES_BY_NAME.keys()
    assert sum(1 for one in PLACES_BY_NAME.values() for _ in edges(one.node.says, one.node.value)) > 2000


def test_planted_loose_range_is_detected() -> None:
    """An edge that is one off is seen."""
    _, base, node = PLACES_BY_NAME["agent: budgets.turns"]
    loose = {**node.says, "maximum": node.says["maximum"] + 1}
    wrong = [value for value, inside in edges(loose, 1) if models_take(with_value(base, node.at, value)) is not inside]
    assert wrong == [10_001]
