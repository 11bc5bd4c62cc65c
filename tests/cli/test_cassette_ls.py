"""`agentrun cassette ls`: the cassettes of a project and the state of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from .command import ROOT, agentrun
from .desk_project import CASSETTE, NOW, add_cases, cassette, copy_cassette, edit, make_foreign, replace_in_replies

LISTING = """\
cassettes/desk/brief.yaml    4 model, 2 tool, 1 other  10 days      gpt-4.1-mini           stale
cassettes/desk/broken.yaml                                                                 damaged
cassettes/desk/default.yaml  4 model, 2 tool, 1 other  10 days      gpt-4.1-mini → gpt-4o  stale
cassettes/desk/orphan.yaml   4 model, 2 tool, 1 other  today        gpt-4.1-mini           orphan
cassettes/desk/other.yaml    4 model, 2 tool, 1 other  age unknown  gpt-4.1-mini           foreign
cassettes/desk/short.yaml    4 model, 2 tool, 1 other  10 days      gpt-4.1-mini           fresh
"""


@pytest.fixture
def desk_with_every_state(desk: Path) -> Path:
    """A project with a recording in every state."""
    copy_cassette(desk, "orphan", recorded_at=NOW)
    copy_cassette(desk, "brief")
    copy_cassette(desk, "short")
    make_foreign(copy_cassette(desk, "other"))
    (desk / CASSETTE).with_name("broken.yaml").write_text("version: 1\ninteractions: 7\n")
    replace_in_replies(desk / CASSETTE, '"model":"gpt-4.1-mini"', '"model":"gpt-4o"')
    add_cases(desk, "name: broken", "name: other", "{name: brief, profile: three}", "{name: short, profile: eight}")
    edit(desk / "specs/desk.yaml", "turns: 8", "turns: 7")
    with (desk / "specs/desk.yaml").open("a") as spec:
        spec.write("profiles: {three: {budgets: {turns: 3}}, eight: {budgets: {turns: 8}}}\n")
    return desk


def test_ls_shows_every_state(desk_with_every_state: Path) -> None:
    done = cassette(desk_with_every_state, "ls")
    assert (done.code, done.out, done.err) == (0, LISTING, "")


def test_cassette_without_a_subcommand_lists(desk_with_every_state: Path) -> None:
    assert cassette(desk_with_every_state).out == LISTING
    assert cassette(desk_with_every_state, "--json").out == cassette(desk_with_every_state, "ls", "--json").out
    assert cassette(desk_with_every_state, "cassettes").out == LISTING
    assert cassette(desk_with_every_state, "lss").code == 2


def test_json_has_state_counts_and_models(desk_with_every_state: Path) -> None:
    lines = {line["file"]: line for line in cassette(desk_with_every_state, "ls", "--json").lines()}
    assert [line["state"] for line in lines.values()] == ["stale", "damaged", "stale", "orphan", "foreign", "fresh"]
    assert lines[CASSETTE] == {
        "file": CASSETTE,
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


def test_folder_without_cassettes_says_none_found(desk_with_every_state: Path) -> None:
    done = cassette(desk_with_every_state, "ls", "python")
    assert (done.code, done.out, done.err) == (0, "", "no cassettes found\n")


def test_ls_works_from_any_directory(desk_with_every_state: Path) -> None:
    below = agentrun("cassette", "ls", cwd=desk_with_every_state / "specs", AGENTRUN_NOW=NOW)
    assert below.out == LISTING
    above = agentrun(
        "cassette", "ls", desk_with_every_state / "specs", cwd=desk_with_every_state.parent, AGENTRUN_NOW=NOW
    )
    assert above.out.splitlines()[0].startswith("desk/cassettes/desk/brief.yaml")


def test_missing_path_is_refused(desk_with_every_state: Path) -> None:
    assert cassette(desk_with_every_state, "ls", "cassettes/none.yaml").code == 2


def test_unreadable_spec_is_given_as_the_reason(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "name: desk\n", "name: [\n")
    (line,) = cassette(desk, "ls", "--json").lines()
    assert (line["state"], line["why"]) == ("orphan", "specs/desk.yaml cannot be read")


def test_a_spec_that_does_not_compile_is_stale(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "allow: lookup_order", "allow: lookup_ordr")
    (line,) = cassette(desk, "ls", "--json").lines()
    assert line["state"] == "stale"
    assert "specs/desk.yaml does not compile" in line["why"]


def test_shipped_cassettes_are_fresh_or_stale() -> None:
    lines = agentrun("cassette", "--json", cwd=ROOT).lines()
    assert "cassettes/triage/default.yaml" in [line["file"] for line in lines]
    assert {line["state"] for line in lines} <= {"fresh", "stale"}


def test_help_of_every_subcommand_has_examples() -> None:
    for args in ([], ["ls"], ["show"], ["audit"], ["prune"]):
        done = agentrun("cassette", *args, "--help")
        assert done.code == 0
        assert "Examples:" in done.out
