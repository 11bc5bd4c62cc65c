"""`agentrun diff` for recordings: interactions aligned by call, requests and replies by what they mean."""

import shutil
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from .agent import agentrun
from .sides import TAPES, diff, edited


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    shutil.copy(TAPES / "support" / "default.yaml", tmp_path / "a.yaml")
    return tmp_path / "a.yaml"


@pytest.mark.parametrize("pair", ["default approval", "approval denial", "default retry"])
def test_shipped_recordings(pair: str, snapshot: SnapshotAssertion) -> None:
    one, two = pair.split()
    told = diff(TAPES / "support" / f"{one}.yaml", TAPES / "support" / f"{two}.yaml")
    assert told.code == 1
    assert told.out == snapshot


# What becomes what everywhere in the file, and all that is told of it.
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
    "time": ("      start: 65\n", "      start: 66\n", []),
    "when": ("  recorded_at: '2026-", "  recorded_at: '2027-", []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_thing_is_told_once_and_as_what_it_is(tape: Path, name: str) -> None:
    old, new, lines = CHANGES[name]
    told = diff(tape, edited(tape, old, new))
    assert told.out.splitlines() == lines
    assert told.code == bool(lines)


def test_one_that_is_gone_does_not_move_the_others(tape: Path) -> None:
    """The tool call of turn 2 with the question before it."""
    text = tape.read_text(encoding="utf-8")
    head, *interactions = text.split("\n- request:\n")
    assert len(interactions) == 7
    less = tape.with_name("b.yaml")
    less.write_text("\n- request:\n".join([head, *interactions[:3], *interactions[4:]]), encoding="utf-8")
    gone = 'tool track_parcel(number="PX-1042-1") → {"at":"2026-01-08","event":"sent to the wrong region",'
    assert [line.startswith(f"- interaction 4: it is gone: {gone}") for line in diff(tape, less).out.splitlines()] == [
        True
    ]
    assert [line.startswith(f"+ interaction 4: it is new: {gone}") for line in diff(less, tape).out.splitlines()] == [
        True
    ]


def test_sub_agents(tmp_path: Path) -> None:
    shutil.copy(TAPES / "researcher" / "default.yaml", tmp_path / "a.yaml")
    told = diff(
        tmp_path / "a.yaml", edited(tmp_path / "a.yaml", "Spring tides reach 4.6", "Spring tides reach 4.7"), "--json"
    )
    (change,) = told.data["changes"]
    assert (change["kind"], change["path"]) == ("result", "c2.0")
    assert change["text"].startswith("interaction 5 (in c2.0): the result of library.read changed: line 3: “…")


def test_a_call_is_told_once_also_when_its_tool_has_another_name_on_the_wire(tmp_path: Path) -> None:
    """The model calls `library__search`, and `library.search` is run."""
    tape = tmp_path / "a.yaml"
    shutil.copy(TAPES / "researcher" / "retry.yaml", tape)
    text = tape.read_text(encoding="utf-8")
    assert text.count("wall raising") > 2
    told = diff(tape, edited(tape, "wall raising", "wall rising"))
    assert told.out.splitlines() == [
        "~ interaction 1: the call of library.search: words “wall raising” → “wall rising”"
    ]


def test_credentials_of_the_environment(tape: Path) -> None:
    cut = "x" * 62  # a value that is shown up to its middle is found by nobody
    other = edited(tape, '"event":"sent to the wrong region"', f'"event":"sent to {cut}correct-horse-battery"')
    for form in ((), ("--json",)):
        done = agentrun("diff", tape, other, *form, cwd=tape.parent, ANTHROPIC_API_KEY="correct-horse-battery")
        assert done.code == 1
        assert "xxxx" in done.out
        assert "corre" not in done.out


def test_a_damaged_recording_cannot_be_compared(tape: Path) -> None:
    told = diff(tape, edited(tape, "version: 1", "version: 2"))
    assert (told.code, told.out) == (2, "")
    assert "cassette.damaged" in told.err


def test_folders_of_recordings(tmp_path: Path) -> None:
    for folder, spec, names in (("a", "support", ("default", "retry")), ("b", "triage", ("default", "denial"))):
        (tmp_path / folder).mkdir()
        for name in names:
            shutil.copy(TAPES / spec / f"{name}.yaml", tmp_path / folder)
    told = diff(tmp_path / "a", tmp_path / "b", "--json")
    assert [(each["file"], each["changes"][0]["how"]) for each in told.data["files"]] == [
        ("default.yaml", "changed"),
        ("denial.yaml", "new"),
        ("retry.yaml", "gone"),
    ]
    assert diff(tmp_path / "a", tmp_path / "a").code == 0
