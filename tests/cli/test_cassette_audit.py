"""`agentrun cassette audit`: every kind of finding, and a good cassette without findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from agentrun.cassette.audit import FAILING_KINDS, FINDING_KINDS
from agentrun.wire import HttpReply

from .command import agentrun
from .desk_project import (
    CASSETTE,
    NOW,
    add_cases,
    cassette,
    copy_cassette,
    edit,
    make_foreign,
    replace_in_replies,
    rewrite,
)

KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0"


def damaged(desk: Path) -> None:
    path = desk / CASSETTE
    path.write_text(path.read_text().replace("    method: CALL\n", "    methode: CALL\n", 1))


def secret(desk: Path) -> None:
    replace_in_replies(desk / CASSETTE, "Done, 20.50", f"{KEY} is")


def miss(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "before you answer", "before you say anything")


def unused(desk: Path) -> None:
    rewrite(desk / CASSETTE, lambda interactions: [*interactions, interactions[1]])


def stale(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "turns: 8", "turns: 7")


def orphan(desk: Path) -> None:
    copy_cassette(desk, "orphan")


def model(desk: Path) -> None:
    replace_in_replies(desk / CASSETTE, '"model":"gpt-4.1-mini"', '"model":"gpt-4o-2024-08-06"')


def old(desk: Path) -> None:
    rewrite(desk / CASSETTE, lambda interactions: interactions, recorded_at="2025-10-31T12:00:00Z")


def foreign(desk: Path) -> None:
    make_foreign(desk / CASSETTE)


GOLDEN: dict[Callable[[Path], None], str] = {
    damaged: """\
cassettes/desk/default.yaml:134  damaged  this is not a cassette: 'method' is missing or has the wrong type
  → restore the file or record it again
""",
    secret: """\
cassettes/desk/default.yaml:304  secret  a credential (openai key) is in interaction 7, reply body
  → revoke it, then record again; use `replay.redact` to keep other values out of cassettes
""",
    miss: """\
cassettes/desk/default.yaml:35  miss  its case no longer replays: instructions line 1 is \
"Look an order up before you say anything.", but the cassette has "Look an order up before you answer.", \
from specs/desk.yaml line 4, because the template changed; the spec's section instructions changed since the recording
  → agentrun specs/desk.yaml --case default --record new
cassettes/desk/default.yaml:1  stale  instructions of specs/desk.yaml changed since the recording
  → agentrun specs/desk.yaml --case default --record new
""",
    unused: """\
cassettes/desk/default.yaml:370  unused  its case does not play 1 of 8 interactions: 8
  → agentrun cassette prune removes them
""",
    stale: """\
cassettes/desk/default.yaml:1  stale  budgets of specs/desk.yaml changed since the recording
  → none needed while it replays; to update it: agentrun specs/desk.yaml --case default --record new
""",
    orphan: """\
cassettes/desk/orphan.yaml:1  orphan  no case uses it
  → agentrun cassette prune removes it
""",
    model: """\
cassettes/desk/default.yaml:35  model  gpt-4.1-mini was requested, but gpt-4o-2024-08-06 answered (interaction 1)
  → check the model name and the address that the request was sent to
""",
    old: """\
cassettes/desk/default.yaml:1  old  it is 102 days old; the limit is 90 days
  → record it again to see whether the model still answers the same
""",
    foreign: """\
cassettes/desk/default.yaml:1  foreign  another program recorded it, so agentrun cannot check whether it is out of date
  → none needed; record it with agentrun to enable the check
""",
}


def test_good_cassette_has_no_findings(desk: Path) -> None:
    done = cassette(desk, "audit", "--fail-on", "any", "--max-age", "90d")
    assert (done.code, done.out, done.err) == (0, "", "1 cassette, 0 findings\n")
    assert cassette(desk, "audit", "--json").out == ""


@pytest.mark.parametrize("plant", GOLDEN, ids=lambda plant: plant.__name__)
def test_audit_reports_each_kind_of_finding(desk: Path, plant: Callable[[Path], None]) -> None:
    plant(desk)
    done = cassette(desk, "audit", "--max-age", "90d")
    assert done.out == GOLDEN[plant]
    assert done.code == int(plant.__name__ in FAILING_KINDS)


def test_every_kind_of_finding_is_tested() -> None:
    assert {plant.__name__ for plant in GOLDEN} == set(FINDING_KINDS)


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [("none", 0), ("any", 1), ("model", 1), ("old, model", 1), ("secret,damaged", 0), ("modle", 2), ("", 2)],
)
def test_fail_on_decides_the_exit_code(desk: Path, fail_on: str, code: int) -> None:
    model(desk)
    done = cassette(desk, "audit", "--fail-on", fail_on)
    assert done.code == code
    if code != 2:
        fails = ", 1 of a kind in --fail-on" if code else ""
        assert done.err == f"1 cassette, 1 finding{fails}\n"


@pytest.mark.parametrize(("limit", "code"), [("10d", 0), ("9d", 1), ("2w", 0), ("1w", 1), ("239h", 1), ("240h", 0)])
def test_max_age_reports_only_older_cassettes(desk: Path, limit: str, code: int) -> None:
    """The recording is exactly ten days old."""
    assert cassette(desk, "audit", "--max-age", limit, "--fail-on", "old").code == code


@pytest.mark.parametrize("limit", ["", "0d", "10", "-1d", "ten days", "1y"])
def test_invalid_max_age_is_refused(desk: Path, limit: str) -> None:
    assert cassette(desk, "audit", "--max-age", limit).code == 2


def test_json_has_one_object_per_finding(desk: Path) -> None:
    secret(desk)
    done = cassette(desk, "audit", "--json")
    (line,) = done.lines()
    assert (done.code, done.err, line["kind"], line["line"], line["fails"]) == (1, "", "secret", 304, True)
    assert line.keys() == {"file", "line", "kind", "message", "fix", "fails"}


def test_one_bad_file_does_not_hide_the_others(desk: Path) -> None:
    add_cases(desk, "name: a", "name: z")
    for name in "az":
        copy_cassette(desk, name)
    for name, text in (("b", "[" * 100_000), ("c", "\x00"), ("d", "a: &a [*a]"), ("e", "")):
        (desk / CASSETTE).with_name(f"{name}.yaml").write_text(text)
    unused(desk)
    done = cassette(desk, "audit", "--fail-on", "none", "--json")
    kinds = {(Path(line["file"]).stem, line["kind"]) for line in done.lines()}
    assert kinds == {*((name, kind) for name in "bcde" for kind in ("damaged", "orphan")), ("default", "unused")}
    assert cassette(desk, "audit").err.startswith("7 cassettes, 9 findings")


# --- secrets ------------------------------------------------------------------------------------------------------


def test_environment_secret_in_a_cassette_is_found_and_not_shown(desk: Path) -> None:
    """It has no shape: only the environment knows that it is one."""
    replace_in_replies(desk / CASSETTE, "Done, 20.50", "correct horse battery")
    done = cassette(desk, "audit", SHOP_TOKEN="correct horse battery")
    assert "the value of SHOP_TOKEN is in interaction 7, reply body" in done.out
    assert (done.code, "horse" in done.out + done.err) == (1, False)
    assert cassette(desk, "audit").code == 0  # the twin: nobody knows it


@pytest.mark.parametrize(
    ("name", "value"),
    [("authorization", "Bearer 9f8a7b6c5d4e3f2a1b0c"), ("set-cookie", "s=9f8a7b6c5d4e3f2a1b0c; Path=/")],
)
def test_credential_headers_of_other_recorders_are_found(desk: Path, name: str, value: str) -> None:
    """We write none of these, but vcrpy does."""
    edit(desk / CASSETTE, "      accept:\n", f"      {name}:\n      - {value}\n      accept:\n")
    done = cassette(desk, "audit")
    assert "a credential" in done.out
    assert "9f8a7b" not in done.out


# --- replays ------------------------------------------------------------------------------------------------------


def test_changed_budget_is_named_as_the_reason_for_unused_interactions(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "turns: 8", "turns: 1")
    done = cassette(desk, "audit", "--fail-on", "unused")
    assert done.code == 1
    assert "because it now ends with budget.turns" in done.out


def test_a_spec_that_does_not_compile_is_a_miss(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "allow: lookup_order", "allow: lookup_ordr")
    lines = cassette(desk, "audit", "--json").lines()
    assert [line["kind"] for line in lines] == ["miss", "stale"]
    assert "its case cannot be replayed: spec.unknown_tool" in lines[0]["message"]


def test_invalid_recorded_answer_is_damaged(desk: Path) -> None:
    replace_in_replies(desk / CASSETTE, '"answer": "approved"', '"answer": "perhaps"')
    assert "damaged  the cassette is damaged, perhaps because it was edited" in cassette(desk, "audit").out


def test_recorded_failure_is_no_miss(desk: Path) -> None:
    """It replays to the same failure."""
    fatal = HttpReply(401, (("content-type", "application/json"),), b'{"error": {"message": "no"}}')
    rewrite(desk / CASSETTE, lambda interactions: [replace(interactions[0], reply=fatal, chunks=())])
    assert cassette(desk, "audit", "--fail-on", "any").out == ""


def test_changed_approvals_of_a_case_are_a_miss(desk: Path) -> None:
    edit(desk / "specs/desk.cases.yaml", "name: default", "{name: default, approvals: {refund: denied}}")
    assert "miss" in cassette(desk, "audit").out


def test_dated_build_of_the_model_is_no_finding(desk: Path) -> None:
    replace_in_replies(desk / CASSETTE, '"model":"gpt-4.1-mini"', '"model":"gpt-4.1-mini-2025-04-14"')
    assert cassette(desk, "audit", "--fail-on", "any").out == ""


def test_control_characters_in_a_cassette_are_escaped(desk: Path) -> None:
    replace_in_replies(desk / CASSETTE, '"model":"gpt-4.1-mini"', '"model":"\\u001b]52;c;eA==\\u0007\\u202e"')
    done = cassette(desk, "audit")
    assert "\\x1b]52" in done.out
    assert not {"\x1b", "\x07", "\u202e"} & set(done.out)


def test_orphan_with_an_unreadable_cases_file_suggests_validate(desk: Path) -> None:
    edit(desk / "specs/desk.cases.yaml", "cases:", "caes:")
    done = cassette(desk, "audit")
    assert "but specs/desk.cases.yaml cannot be read" in done.out
    assert "agentrun validate specs/desk.cases.yaml" in done.out


def test_ls_audit_and_prune_write_nothing(desk: Path) -> None:
    stale(desk)
    before = {path: path.read_bytes() for path in desk.rglob("*") if path.is_file()}
    for command in ("ls", "audit", "prune"):
        assert cassette(desk, command).code == 0
    assert {path: path.read_bytes() for path in desk.rglob("*") if path.is_file()} == before


def test_shipped_cassettes_pass_the_audit() -> None:
    done = agentrun("cassette", "audit", AGENTRUN_NOW=NOW)
    assert done.code == 0, done.out
