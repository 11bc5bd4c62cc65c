"""`agentrun cassette ls`: which recordings there are, and in which state each is."""

from __future__ import annotations

from pathlib import Path

import pytest

from .agent import ROOT, agentrun
from .desk import NOW, TAPE, add_cases, cassette, copied, edit, in_replies, make_foreign

LISTED = """\
cassettes/desk/brief.yaml    4 model, 2 tool, 1 other  10 days      gpt-4.1-mini           stale
cassettes/desk/broken.yaml                                                                 damaged
cassettes/desk/default.yaml  4 model, 2 tool, 1 other  10 days      gpt-4.1-mini → gpt-4o  stale
cassettes/desk/orphan.yaml   4 model, 2 tool, 1 other  today        gpt-4.1-mini           orphan
cassettes/desk/other.yaml    4 model, 2 tool, 1 other  age unknown  gpt-4.1-mini           foreign
cassettes/desk/short.yaml    4 model, 2 tool, 1 other  10 days      gpt-4.1-mini           fresh
"""


@pytest.fixture
def full(desk: Path) -> Path:
    """A project with a recording in every state."""
    copied(desk, "orphan", recorded_at=NOW)
    copied(desk, "brief")
    copied(desk, "short")
    make_foreign(copied(desk, "other"))
    (desk / TAPE).with_name("broken.yaml").write_text("version: 1\ninteractions: 7\n")
    in_replies(desk / TAPE, '"model":"gpt-4.1-mini"', '"model":"gpt-4o"')
    add_cases(desk, "name: broken", "name: other", "{name: brief, profile: three}", "{name: short, profile: eight}")
    edit(desk / "specs/desk.yaml", "turns: 8", "turns: 7")
    with (desk / "specs/desk.yaml").open("a") as spec:
        spec.write("profiles: {three: {budgets: {turns: 3}}, eight: {budgets: {turns: 8}}}\n")
    return desk


def test_every_state(full: Path) -> None:
    done = cassette(full, "ls")
    assert (done.code, done.out, done.err) == (0, LISTED, "")


def test_the_bare_noun_lists(full: Path) -> None:
    assert cassette(full).out == LISTED
    assert cassette(full, "--json").out == cassette(full, "ls", "--json").out
    assert cassette(full, "cassettes").out == LISTED
    assert cassette(full, "lss").code == 2


def test_json(full: Path) -> None:
    lines = {line["file"]: line for line in cassette(full, "ls", "--json").lines()}
    assert [line["state"] for line in lines.values()] == ["stale", "damaged", "stale", "orphan", "foreign", "fresh"]
    assert lines[TAPE] == {
        "file": TAPE,
        "state": "stale",
        "why": "budgets of specs/desk.yaml changed since the recording",
        "interactions": {"model": 4, "tool": 2, "http": 0, "other": 1},
        "recorded_at": 1_769_860_800_000,
        "days": 10,
        "models": ["gpt-4.1-mini → gpt-4o"],
        "spec": "specs/desk.yaml",
        "case": "default",
    }
    assert "'interactions' is missing or has the wrong type" in lines["cassettes/desk/broken.yaml"]["why"]


def test_nothing_found(full: Path) -> None:
    done = cassette(full, "ls", "python")
    assert (done.code, done.out, done.err) == (0, "", "no cassettes found\n")


def test_from_anywhere(full: Path) -> None:
    below = agentrun("cassette", "ls", cwd=full / "specs", AGENTRUN_NOW=NOW)
    assert below.out == LISTED
    above = agentrun("cassette", "ls", full / "specs", cwd=full.parent, AGENTRUN_NOW=NOW)
    assert above.out.splitlines()[0].startswith("desk/cassettes/desk/brief.yaml")


def test_a_path_that_is_not_there(full: Path) -> None:
    assert cassette(full, "ls", "cassettes/none.yaml").code == 2


def test_a_spec_that_cannot_be_read_is_said(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "name: desk\n", "name: [\n")
    (line,) = cassette(desk, "ls", "--json").lines()
    assert (line["state"], line["why"]) == ("orphan", "specs/desk.yaml cannot be read")


def test_a_spec_that_does_not_compile_is_stale(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "allow: lookup_order", "allow: lookup_ordr")
    (line,) = cassette(desk, "ls", "--json").lines()
    assert line["state"] == "stale"
    assert "specs/desk.yaml does not compile" in line["why"]


def test_the_shipped_recordings() -> None:
    lines = agentrun("cassette", "--json", cwd=ROOT).lines()
    assert "cassettes/triage/default.yaml" in [line["file"] for line in lines]
    assert {line["state"] for line in lines} <= {"fresh", "stale"}


def test_nothing_heavy_for_help() -> None:
    for args in ([], ["ls"], ["show"], ["audit"], ["prune"]):
        done = agentrun("cassette", *args, "--help")
        assert done.code == 0
        assert "Examples:" in done.out
