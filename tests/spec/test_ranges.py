"""Every range of the spec language at its edges, from both sides, in the schema and in the models alike."""

from typing import Any

import pytest

from ..documents import changed, laid_out
from ..rich import RICH
from ..schemas import Node, keys, nodes, validator
from .edges import PATTERNS, edges, models_take, put

SCHEMA_ONLY = {f"policy.rules.[].{ruling}" for ruling in ("allow", "modify", "ask", "defer", "deny", "interrupt")}
"""One target has its pattern in the schema alone (spec/v1/policy.py says why)."""

TEXT_FILES = {"instructions.file", "instructions.[].file", "input.file", "context.compaction.prompt.file"}
READ_FIRST = {key for key in keys("agent") if key.endswith(".file")} - TEXT_FILES
"""Files of parts and schemas are read before there is a model."""

_FILES = laid_out(RICH, parts=False)[0]
BASES = (RICH, _FILES, changed(_FILES, "instructions", {"file": "all.md"}), laid_out(RICH)[0])


def found() -> dict[str, tuple[Any, Node]]:
    """One place for every key, item and name that a document may have, and the document it is in."""
    places: dict[str, tuple[Any, Node]] = {}
    for base in BASES:
        for node in nodes("agent", base):
            if base is not BASES[-1] or node.key in READ_FIRST:
                places.setdefault(node.key, (base, node))
    return places


FOUND = found()


@pytest.mark.parametrize("key", sorted(FOUND))
def test_edges(key: str) -> None:
    base, node = FOUND[key]
    for value, inside in edges(node.says, node.value):
        document = put(base, node.at, value)
        shown = str(value)[:80]
        assert validator("agent").is_valid(document) is inside, f"schema: {key} = {shown}"
        if key not in READ_FIRST and not (key in SCHEMA_ONLY and isinstance(value, str)):
            assert models_take(document) is inside, f"models: {key} = {shown}"


@pytest.mark.parametrize("key", sorted(key for key in FOUND if "pattern" in FOUND[key][1].says))
def test_text_ends_where_it_ends(key: str) -> None:
    """`$` of Python's patterns also matches before a last line end, so it is the schema that must refuse it."""
    base, node = FOUND[key]
    for text in PATTERNS[node.says["pattern"]][0]:
        assert not validator("agent").is_valid(put(base, node.at, f"{text}\n"))


def test_every_key_is_tried() -> None:
    assert keys("agent") <= FOUND.keys()
    assert sum(1 for _, node in FOUND.values() for _ in edges(node.says, node.value)) > 1000


def test_planted_loose_range() -> None:
    """An edge that is one off is seen."""
    base, node = FOUND["budgets.turns"]
    loose = {**node.says, "maximum": node.says["maximum"] + 1}
    assert [value for value, inside in edges(loose, 1) if models_take(put(base, node.at, value)) is not inside] == [
        10_001
    ]
