"""`usage` and `ignore` of the assertion `journal-snapshot`: harmless changes do not change a snapshot."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from agentrun.cassette.interactions import Interaction

from .desk_project import rewrite
from .suite_project import ANOTHER, CASSETTE, HEAD, SNAPSHOT_CASE, Suite

TOTAL = re.compile(r"^- spent: .*$", re.MULTILINE)


def set_usage(suite: Suite, tokens: int) -> None:
    """Each reply of the recording read this many tokens."""

    def changed(interaction: Interaction) -> Interaction:
        body = re.sub(rb'("prompt_tokens": ?)\d+', rb"\g<1>%d" % tokens, interaction.reply.body)
        return replace(interaction, reply=replace(interaction.reply, body=body), chunks=())

    rewrite(suite.root / CASSETTE, lambda interactions: map(changed, interactions))


def snapshot(options: str = "", more: str = "") -> str:
    return f"  - {{name: default{more}, assert: [{{type: journal-snapshot{options}}}]}}\n"


def test_small_change_of_usage_does_not_change_the_snapshot(suite: Suite) -> None:
    suite.write(snapshot())
    set_usage(suite, 700)
    suite.test("--update")
    assert TOTAL.findall(suite.accepted()) == ["- spent: 2.1k tokens"]
    set_usage(suite, 705)
    assert suite.test().out == "1 passed\n"
    set_usage(suite, 730)
    ran = suite.test()
    assert ran.code == 1
    assert "spend: 2.1k tokens → 2.2k tokens" in ran.out


@pytest.mark.parametrize(
    ("file", "case", "assertion", "expected"),
    [
        ("", "", "", "rounded"),
        ("", "", ", usage: exact", "exact"),
        ("", "", ", usage: none", "none"),
        ("none", "", "", "none"),
        ("none", "", ", usage: exact", "exact"),
        ("none", ", usage: rounded", "", "rounded"),
        ("none", ", usage: rounded", ", usage: exact", "exact"),
    ],
)
def test_usage_of_the_assertion_wins_over_the_case_and_the_defaults(
    suite: Suite, file: str, case: str, assertion: str, expected: str
) -> None:
    head = HEAD.replace("cases:", f"defaults: {{usage: {file}}}\ncases:") if file else HEAD
    suite.write(snapshot(assertion, case), head=head)
    assert suite.test("--update").code == 0
    text = suite.accepted()
    found = "exact" if "usage:" in text else "rounded" if TOTAL.search(text) else "none"
    assert found == expected


def test_usage_of_a_case_wins_over_an_assertion_in_the_defaults(suite: Suite) -> None:
    """The case cannot repeat the assertion, so this is how it differs from the others."""
    head = HEAD.replace("cases:", "defaults: {assert: [{type: journal-snapshot, usage: none}]}\ncases:")
    suite.write("  - {name: default, usage: exact}\n", ANOTHER, head=head)
    assert suite.test("--update").code == 0
    assert "usage:" in suite.accepted()
    assert "usage:" not in suite.accepted("another")
    assert not TOTAL.search(suite.accepted("another"))


def test_changed_form_is_explained(suite: Suite) -> None:
    suite.write(snapshot(", usage: exact"))
    suite.test("--update")
    suite.write(snapshot())
    ran = suite.test()
    assert ran.code == 1
    assert "the usage in the journal: exact → rounded" in ran.out
    assert suite.test("--update").code == 0


def test_ignored_value_may_change(suite: Suite) -> None:
    path = "approval_answered.by"
    suite.write(snapshot(f", ignore: [{path}]"))
    suite.test("--update")
    assert 'by: "[ignored]"' in suite.accepted()
    suite.edit(CASSETTE, "--approve all", "ada")
    assert suite.test().out == "1 passed\n"
    suite.write(SNAPSHOT_CASE)
    assert "[ignored]" in suite.test().out, "the snapshot is stricter now"


def test_path_that_matches_nothing_is_reported_but_does_not_fail(suite: Suite) -> None:
    suite.write(snapshot(", ignore: [tool_finished.fault.message, approval_answered.by]"))
    ran = suite.test("--update")
    heading = "Paths of `ignore` that match nothing:\n  tool_finished.fault.message  (specs/desk.cases.yaml)\n"
    assert ran.code == 0
    assert heading in ran.out
    assert "approval_answered.by" not in ran.out
    ran = suite.test("--json")
    (found,) = ran.summary()["unmatched_paths"]
    assert found == {"file": "specs/desk.cases.yaml", "path": "tool_finished.fault.message"}
    assert ran.lines()[0]["case"]["ignored"] == {"tool_finished.fault.message": 0, "approval_answered.by": 1}


def test_path_in_the_defaults_is_reported_only_if_no_case_has_it(suite: Suite) -> None:
    path = "tool_finished.fault.message"
    head = HEAD.replace("cases:", f"defaults: {{assert: [{{type: journal-snapshot, ignore: [{path}]}}]}}\ncases:")
    fault = "faults: [{at: 'tool:refund', inject: {error: closed}}], assert: [{type: outcome, value: cassette.miss}]"
    suite.write("  - {name: default}\n", head=head)
    assert "match nothing" in suite.test("--update").out
    suite.write("  - {name: default}\n", f"  - {{name: fails, cassette: default, {fault}}}\n", head=head)
    ran = suite.test("--json")
    assert [line["case"]["ignored"] for line in ran.lines()[:2]] == [{path: 0}, {path: 1}]
    assert ran.summary()["unmatched_paths"] == []
    assert suite.test("-k", "default", "--json").summary()["unmatched_paths"] == [], "not all cases ran"


def test_misspelt_kind_of_a_fact_is_a_mistake_in_the_file(suite: Suite) -> None:
    suite.write(snapshot(", ignore: [tool_finishd.parts]"))
    ran = suite.test()
    assert ran.code == 2
    assert 'no fact of a journal is called "tool_finishd"' in ran.out
    assert 'did you mean "tool_finished"?' in ran.out
