"""The diff of two cassettes: interactions aligned by call, requests and replies compared by content."""

import shutil
from pathlib import Path

import pytest

from agentrun.cassette.conversion import converted_text
from agentrun.cassette.file import load_cassette
from agentrun.cassette.parsed_interaction import parse_cassette
from agentrun.report.cassette_diff import compare_cassettes

from ..cli.diff_inputs import CASSETTES, edited_copy

SIGNS = {"new": "+", "gone": "-", "changed": "~", "moved": "~"}


def compare(a: Path, b: Path) -> list[str]:
    changes = compare_cassettes(parse_cassette(load_cassette(a)), parse_cassette(load_cassette(b)))
    return [f"{SIGNS[change.how]} {change.text}" for change in changes]


@pytest.fixture
def cassette_file(tmp_path: Path) -> Path:
    shutil.copy(CASSETTES / "support" / "default.yaml", tmp_path / "a.yaml")
    return tmp_path / "a.yaml"


# What becomes what everywhere in the file, and all changes that are reported.
CHANGES: dict[str, tuple[str, str, list[str]]] = {
    "prompt": (
        "three days ago",
        "four days ago",
        [
            (
                "~ interaction 1: instructions line 5: “- An order is late when it was due more than three days ago.” →"
                " “- An order is late when it was due more than four days ago.”"
            )
        ],
    ),
    "tool": (
        '"description": "Pays an amount of',
        '"description": "Gives an amount of',
        [
            (
                "~ interaction 1: the tool refund: description “Pays an amount of an order back to the customer. Cannot"
                " be undone.” → “Gives an amount of an order back to the customer. Cannot be undone.”"
            )
        ],
    ),
    "setting": (
        '"max_completion_tokens": 1000',
        '"max_completion_tokens": 900',
        ["~ interaction 1: max_completion_tokens 1000 → 900"],
    ),
    "reply": (
        '{"content":"I loo',
        '{"content":"I pee',
        ["~ interaction 1: the reply: “I look at the order first.” → “I peek at the order first.”"],
    ),
    "call": (
        '"arguments":":39.9,',
        '"arguments":":29.9,',
        ["~ interaction 5: the call of refund: amount 39.9 → 29.9"],
    ),
    "model": (
        '"model":"gpt-4.1-mini"',
        '"model":"gpt-4.2-mini"',
        ["~ interaction 1: the model that answered: “gpt-4.1-mini” → “gpt-4.2-mini”"],
    ),
    "result": (
        '"state":"in transit","total":39.9}\'',
        '"state":"in transit","total":49.9}\'',
        ["~ interaction 2: the result of lookup_order changed: total 39.9 → 49.9"],
    ),
    "argument": (
        '        "number": "PX-1042-1"\n',
        '        "number": "PX-1042-2"\n',
        ["~ interaction 4: the call of track_parcel: number “PX-1042-1” → “PX-1042-2”"],
    ),
    "metadata": (
        "    policy: sha256:",
        "    policy: sha256:0",
        ["~ the section policy of the spec changed"],
    ),
    "params": ("  params:\n    order_id: '1042'", "  params:\n    order_id: '7'", ["~ params.order_id “1042” → “7”"]),
    "time": ("\n      end: ", "\n      end: 9", []),
    "when": ("  recorded_at: '2026-", "  recorded_at: '2027-", []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_reported_once(cassette_file: Path, name: str) -> None:
    old, new, lines = CHANGES[name]
    assert compare(cassette_file, edited_copy(cassette_file, old, new)) == lines


def test_removed_interaction_does_not_move_the_others(cassette_file: Path) -> None:
    """The tool call of turn 2 with the question before it."""
    # expanded: nothing refers to the interaction that is removed
    text = converted_text(cassette_file.read_text(encoding="utf-8"), packed=False)
    head, *interactions = text.split("\n- request:\n")
    assert len(interactions) == 7
    less = cassette_file.with_name("b.yaml")
    less.write_text("\n- request:\n".join([head, *interactions[:3], *interactions[4:]]), encoding="utf-8")
    gone = 'tool track_parcel(number="PX-1042-1") → {"at":"2026-01-08","event":"sent to the wrong region",'
    assert [line.startswith(f"- interaction 4: it is gone: {gone}") for line in compare(cassette_file, less)] == [True]
    assert [line.startswith(f"+ interaction 4: it is new: {gone}") for line in compare(less, cassette_file)] == [True]


def test_changed_call_with_a_wire_name_is_reported_once(tmp_path: Path) -> None:
    """The model calls `library__search`, and `library.search` is run."""
    cassette_file = tmp_path / "a.yaml"
    shutil.copy(CASSETTES / "researcher" / "retry.yaml", cassette_file)
    text = cassette_file.read_text(encoding="utf-8")
    assert text.count("wall raising") > 2
    assert compare(cassette_file, edited_copy(cassette_file, "wall raising", "wall rising")) == [
        "~ interaction 1: the call of library.search: words “wall raising” → “wall rising”"
    ]
