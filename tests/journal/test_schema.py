"""schemas/journal.schema.json accepts every journal line that was ever written and refuses damaged ones."""

import copy
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given

from agentrun.compiler.schema_files import JOURNAL_FIELD_DESCRIPTIONS, field_descriptions
from agentrun.core.facts import Fact

from ..schemas import shipped, validator
from .journals import ANY_FACT, GOLDEN, JOURNAL, LINES, journal

FILES = sorted(GOLDEN.glob("v*/*.jsonl"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden_lines_are_valid(path: Path) -> None:
    for line in path.read_bytes().splitlines():
        validator("journal").validate(msgspec.json.decode(line))


@given(ANY_FACT)
def test_any_fact_is_valid(fact: Fact) -> None:
    validator("journal").validate(msgspec.json.decode(journal(fact).text()))


def damaged() -> list[Any]:
    """A record with one thing wrong, for every thing that it says."""
    whole = msgspec.json.decode(LINES[0])
    wrong = []
    for place in ((), ("fact",), ("fact", "input"), ("fact", "input", "parts", 0)):
        inside = whole
        for step in place:
            inside = inside[step]
        for key in inside:
            changed = copy.deepcopy(whole)
            at = changed
            for step in place:
                at = at[step]
            at[key] = 1.5
            wrong.append(pytest.param(changed, id=".".join(map(str, (*place, key)))))
        more = copy.deepcopy(whole)
        at = more
        for step in place:
            at = at[step]
        at["more"] = None
        wrong.append(pytest.param(more, id=".".join(map(str, (*place, "more")))))
    return wrong


@pytest.mark.parametrize("line", damaged())
def test_damaged_record_is_invalid(line: Any) -> None:
    assert validator("journal").is_valid(msgspec.json.decode(LINES[0]))
    assert not validator("journal").is_valid(line)


@pytest.mark.parametrize("key", ["seq", "at", "epoch", "prev", "fact"])
def test_record_with_a_missing_key_is_invalid(key: str) -> None:
    for line in LINES:
        whole = msgspec.json.decode(line)
        del whole[key]
        assert not validator("journal").is_valid(whole)


def test_unknown_fact_type_is_reported_at_its_place() -> None:
    whole = msgspec.json.decode(LINES[1])
    whole["fact"]["type"] = "model_teased"
    (error,) = validator("journal").iter_errors(whole)
    assert error.instance_path == ["fact", "type"]


def test_schema_lists_exactly_the_fact_types() -> None:
    kinds = {str(kind.__struct_config__.tag) for kind in get_args(Fact)}
    assert set(shipped("journal")["properties"]["fact"]["else"]["properties"]["type"]["enum"]) == kinds
    assert {record.fact.__struct_config__.tag for record in JOURNAL.records()} < kinds


def test_field_descriptions_are_needed_and_used() -> None:
    """A text in the table is one that no field says itself, for at least one field."""
    needed = set()
    for kind in _structs():
        texts = field_descriptions(kind)
        for name in kind.__struct_fields__:
            if name not in texts:
                own = f"{kind.__name__}.{name}"
                needed.add(own if own in JOURNAL_FIELD_DESCRIPTIONS else name)
    assert needed == JOURNAL_FIELD_DESCRIPTIONS.keys()


def _structs() -> list[Any]:
    names = {*shipped("journal")["$defs"], "Record"}
    seen = {}
    waiting: list[Any] = list(msgspec.Struct.__subclasses__())
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if cls.__name__ in names and cls.__module__.startswith("agentrun.core.") and "package" not in cls.__module__:
            seen[cls.__name__] = cls
    assert seen.keys() == names
    return list(seen.values())
