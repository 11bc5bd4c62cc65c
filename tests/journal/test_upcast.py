"""Journals of earlier releases are read as today's facts, and checked by the rules they were written under."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.core.facts import RULES_VERSION, Fact
from agentrun.errors import StorageError
from agentrun.journal.canonical import canonical
from agentrun.journal.records import GENESIS_HASH, read_records
from agentrun.journal.storage import read_journal_file
from agentrun.journal.upcast import UPCASTS, upcast

from .journals import GOLDEN, KINDS

OLD = sorted((GOLDEN / "v1").glob("*.jsonl"))
"""Written by the first release, with a scripted model."""


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def fact_of_line(line: bytes) -> dict[str, Any]:
    fact: dict[str, Any] = msgspec.json.decode(line)["fact"]
    return fact


def common_part(now: Any, then: Any) -> Any:
    """As much of a value as an older one speaks of."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {key: common_part(now[key], then[key]) for key in then}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [common_part(*pair) for pair in zip(now, then, strict=True)]
    return now


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_old_journal_keeps_all_its_values(path: Path) -> None:
    records = tuple(read_journal_file(path))
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    for record, line in zip(records, lines(path), strict=True):
        now, then = fact_of_line(sorted_json(record)), fact_of_line(line)
        assert common_part(now, then) == then, "what was said is still said"


def test_golden_journals_cover_every_upcast_of_version_1() -> None:
    seen = {fact_of_line(line)["type"] for path in OLD for line in lines(path)}
    assert {(kind, 1) for kind in seen} == {step for step in UPCASTS if step[1] == 1}


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_upcast_writes_every_field(path: Path) -> None:
    """Every field of today's fact is written out by the steps, so that a new default changes no old journal."""
    kinds = {kind.__struct_config__.tag: kind for kind in KINDS}
    for line in lines(path):
        made = upcast(fact_of_line(line), 1)
        fact: Fact = msgspec.convert(made, kinds[made["type"]])
        assert sorted_json(fact) == sorted_json(made)


def test_upcast_steps_lead_to_known_fact_types() -> None:
    """A step leads to a kind that the next version knows; the last leads to today's."""
    assert {version for _, version in UPCASTS} == set(range(1, RULES_VERSION))
    today = {kind.__struct_config__.tag for kind in KINDS}
    for kind, version in UPCASTS:
        known = today if version == RULES_VERSION - 1 else {name for name, of in UPCASTS if of == version + 1}
        assert kind in known


def chained(*facts: dict[str, Any]) -> list[bytes]:
    """Lines of facts as they stand, whatever they are."""
    made: list[bytes] = []
    for seq, fact in enumerate(facts, 1):
        prev = GENESIS_HASH if not made else text_hash(made[-1])
        made.append(sorted_json({"seq": seq, "at": 0, "epoch": 1, "prev": prev, "fact": fact}))
    return made


START = fact_of_line(lines(GOLDEN / "v1" / "plain.jsonl")[0])
MODEL_ASKED = fact_of_line(lines(GOLDEN / "v1" / "plain.jsonl")[1])


def read_error(*facts: dict[str, Any]) -> tuple[str, Any]:
    with pytest.raises(StorageError) as caught:
        list(read_records(chained(*facts)))
    return caught.value.code, caught.value.fields["seq"]


@pytest.mark.parametrize(
    "fact",
    [
        {"type": "answer_reached", "label": None},
        {"type": "unheard"},
        {"type": ["model_asked"]},
        {"type": None},
        {},
        {**MODEL_ASKED, "cost": 0},
        {**MODEL_ASKED, "more": 0},
        {key: value for key, value in MODEL_ASKED.items() if key != "turn"},
        {**MODEL_ASKED, "turn": "1"},
    ],
    ids=str,
)
def test_fact_that_version_1_did_not_write_is_refused(fact: dict[str, Any]) -> None:
    assert len(list(read_records(chained(START, MODEL_ASKED)))) == 2
    assert read_error(START, fact) == ("journal.damaged", 2)


def test_format_and_chain_of_an_old_journal_are_checked() -> None:
    first, second, *rest = lines(GOLDEN / "v1" / "plain.jsonl")
    for damaged in (
        [first.replace(b'"seq":1', b'"seq": 1'), second],
        [first.replace(b'"rules":1', b'"rules":1,"rules":1'), second],
        [first, second.replace(b'"attempt":1', b'"attempt":3')],
        [first, *rest],
        [second, *rest],
    ):
        with pytest.raises(StorageError) as caught:
            list(read_records([*damaged, *rest]))
        assert caught.value.code == "journal.damaged"


def test_resumed_old_journal_continues_in_the_current_format() -> None:
    """Its records are today's, those before it are not: each is held to the form of its own owner."""
    resumed = {"type": "run_resumed", "package": "sha256:1", "rules": 2}
    today = {**MODEL_ASKED, "cost": 7, "purpose": "answer", "hidden": []}
    records = list(read_records(chained(START, resumed, today)))
    assert records[2].fact.cost == 7  # type: ignore[union-attr]  # it is a request
    assert read_error(START, resumed, MODEL_ASKED) == ("journal.damaged", 3)
    assert read_error(START, today) == ("journal.damaged", 2)


def test_old_journal_has_a_canonical_form() -> None:
    """An old journal is compared like any other."""
    text = canonical(read_journal_file(GOLDEN / "v1" / "plain.jsonl"))
    assert text.startswith("- run_started:\n    agent: triage\n    rules: 1\n")
    assert text.endswith("- run_stopped:\n    status: completed\n")
