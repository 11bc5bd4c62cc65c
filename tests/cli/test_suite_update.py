"""`agentrun test --update` accepts journals and removes unused snapshots."""

from __future__ import annotations

import pytest

from .suite_project import ANOTHER, DEFAULT_CASE, FAILS, MISSES, SNAPSHOT_CASE, Suite

ASSERTION = "assert: [{type: journal-snapshot}]"


def change_journal(suite: Suite) -> None:
    """The journal of the case is another one, and its recording still fits."""
    suite.edit("specs/desk.yaml", "id: reads", "id: lookups")


def test_missing_snapshot_fails_and_suggests_update(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    ran = suite.test()
    assert ran.code == 1
    assert "this case has no snapshot yet" in ran.out
    assert "agentrun test specs/desk.cases.yaml::default --update" in ran.out
    assert not suite.snapshots.exists()


def test_update_writes_a_missing_snapshot_once(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    ran = suite.test("--update")
    assert ran.code == 0
    assert "new      specs/__snapshots__/desk/default.journal" in ran.out
    text = suite.accepted()
    assert text.startswith("- run_started:")
    again = suite.test("--update")
    assert (again.code, again.out) == (0, "1 passed\n")
    assert suite.test().out == "1 passed\n"
    assert suite.accepted() == text
    assert [path.name for path in suite.snapshots.iterdir()] == ["default.journal"]


def test_changed_journal_is_shown_before_update_accepts_it(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    suite.test("--update")
    before = suite.accepted()
    change_journal(suite)
    ran = suite.test()
    assert ran.code == 1
    assert ran.out.startswith("1 case: the ruling on lookup_order is still allow, now by lookups; was by reads")
    assert suite.accepted() == before
    ran = suite.test("--update")
    assert ran.code == 0
    assert ran.out.index("lookups") < ran.out.index("changed  specs/__snapshots__/desk/default.journal")
    assert suite.accepted() != before
    assert suite.test().code == 0


def test_credential_of_the_environment_does_not_change_a_journal(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    suite.test("--update")
    before = suite.accepted()
    suite.setenv(SHOP_API_KEY="Please refund 20 of order 1042.")
    assert suite.test().code == 0
    (suite.snapshots / "default.journal").unlink()
    assert suite.test("--update").code == 0
    assert suite.accepted() == before


def test_update_writes_no_snapshot_without_the_assertion(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    assert suite.test("--update").out == "1 passed\n"
    assert not suite.snapshots.exists()


def test_journal_of_a_failing_case_is_not_accepted(suite: Suite) -> None:
    suite.write(FAILS.replace("nowhere}", "nowhere}, {type: journal-snapshot}"))
    assert "--update" not in suite.test().out.rpartition("1 failed")[2], "it would not accept the journal"
    ran = suite.test("--update")
    assert ran.code == 1
    assert not suite.snapshots.exists()
    path = "specs/__snapshots__/desk/fails.journal"
    assert f"Snapshots:\n  not written: {path}, because contains failed\n" in ran.out
    assert suite.test("--update", "--json").summary()["unwritten"] == [{"path": path, "why": "contains failed"}]


def test_update_of_a_missed_case_reports_that_nothing_was_written(suite: Suite) -> None:
    suite.write(
        DEFAULT_CASE, MISSES.replace("cassette: default", "cassette: default, assert: [{type: journal-snapshot}]")
    )
    ran = suite.test("--update")
    assert ran.code == 3
    path = "specs/__snapshots__/desk/misses.journal"
    assert f"  not written: {path}, because the cassette does not match\n" in ran.out


def test_update_of_a_failing_case_with_an_accepted_journal_reports_nothing(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    suite.test("--update")
    suite.write(SNAPSHOT_CASE.replace("assert: [", "assert: [{type: contains, value: nowhere}, "))
    assert "not written" not in suite.test("--update").out


def test_xfail_case_keeps_its_snapshot(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    suite.test("--update")
    before = suite.accepted()
    change_journal(suite)
    suite.write(SNAPSHOT_CASE.replace("name: default", "name: default, xfail: the rule has another name"))
    assert suite.test("--update", "--json").statuses() == {"default": "xfailed"}
    assert suite.accepted() == before


def test_snapshot_of_a_negated_assertion_is_not_written(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    suite.test("--update")
    before = suite.accepted()
    change_journal(suite)
    suite.write(SNAPSHOT_CASE.replace("journal-snapshot", "not-journal-snapshot"))
    assert suite.test("--update").code == 0
    assert suite.accepted() == before


def test_unused_snapshot_fails_and_update_removes_it(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE, ANOTHER.replace("}", f", {ASSERTION}}}"))
    suite.test("--update")
    suite.write(SNAPSHOT_CASE)
    ran = suite.test()
    assert ran.code == 1
    assert "Snapshots that no case uses:\n  specs/__snapshots__/desk/another.journal" in ran.out
    assert "remove the unused snapshots: agentrun test . --update" in ran.out
    assert suite.test("--json").summary()["unused_snapshots"] == ["specs/__snapshots__/desk/another.journal"]
    ran = suite.test("--update")
    assert ran.code == 0
    assert "removed  specs/__snapshots__/desk/another.journal" in ran.out
    assert [path.name for path in suite.snapshots.iterdir()] == ["default.journal"]


def test_removing_the_last_snapshot_removes_its_folder(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    suite.test("--update")
    suite.write(DEFAULT_CASE)
    assert suite.test("--update").code == 0
    assert not suite.snapshots.exists()


@pytest.mark.parametrize("args", [["-k", "default"], ["specs/desk.cases.yaml::default"], ["--tag", "here"]])
def test_unused_snapshots_are_kept_when_cases_are_selected(suite: Suite, args: list[str]) -> None:
    own = SNAPSHOT_CASE.replace("name: default", "name: default, tags: [here]")
    suite.write(own, ANOTHER, ANOTHER.replace("another", "gone").replace("}", f", {ASSERTION}}}"))
    suite.test("--update")
    suite.write(own, ANOTHER)
    assert suite.test("--update", *args).code == 0
    assert suite.test(*args).code == 0
    assert (suite.snapshots / "gone.journal").exists()


def test_other_files_among_snapshots_are_left_alone(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    suite.test("--update")
    (suite.snapshots / "notes.txt").write_text("mine", encoding="utf-8")
    assert suite.test().code == 0
    assert suite.test("--update").code == 0
    assert (suite.snapshots / "notes.txt").exists()


def test_snapshot_that_cannot_be_written_fails_its_case(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE, ANOTHER)
    suite.snapshots.parent.mkdir()
    suite.snapshots.write_text("a file where the folder would be", encoding="utf-8")
    ran = suite.test("--update")
    assert ran.code == 1
    assert "storage.failed: specs/__snapshots__/desk/default.journal cannot be written" in ran.out
    assert "1 passed, 1 failed" in ran.out


def test_binary_snapshot_counts_as_changed(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    suite.snapshots.mkdir(parents=True)
    (suite.snapshots / "default.journal").write_bytes(b"\xff\xfe")
    assert suite.test().code == 1
    assert suite.test("--update").code == 0
