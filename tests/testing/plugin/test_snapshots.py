"""Journal snapshots of cases: the options of syrupy work on the files of `agentrun test`."""

from __future__ import annotations

import pytest

from agentrun.testing.suite.replay import CompiledAgents, replay_case
from agentrun.testing.suite.snapshots import take_snapshot

from .projects import SNAPSHOT_ASSERTION, Project

BAD = "{type: contains, value: absent}"


def journal(project: Project, name: str) -> bytes:
    """The journal of a case, made without pytest."""
    found = next(each for each in project.found() if each.case.name == name)
    return take_snapshot(replay_case(found, CompiledAgents().for_case(found)).runs).text.encode()


def test_missing_snapshot_fails_and_is_not_written(project: Project) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["journal-snapshot: this case has no snapshot yet"])
    assert project.kept() == []


def test_update_writes_the_same_snapshot_as_the_suite(project: Project) -> None:
    project.cases(
        f"name: default, {SNAPSHOT_ASSERTION}", f"name: two-times, turns: [a, b], {SNAPSHOT_ASSERTION}", "name: plain"
    )
    result = project.run("--snapshot-update")
    result.assert_outcomes(passed=2, failed=1)  # the recording has no second run
    assert project.kept() == ["default.journal"]
    assert (project.snapshots / "default.journal").read_bytes() == journal(project, "default")
    result.stdout.fnmatch_lines(["1 snapshot generated."])
    assert project.verdicts()["default"].status == "passed"
    project.run("-k", "default").assert_outcomes(passed=1, deselected=2)


def test_update_accepts_a_changed_journal(project: Project) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update")
    before = journal(project, "default")
    project.edit("specs/__snapshots__/desk/default.journal", "late", "here")
    project.run().assert_outcomes(failed=1)
    result = project.run("--snapshot-update")
    result.stdout.fnmatch_lines(["1 snapshot updated."])
    assert (project.snapshots / "default.journal").read_bytes() == before


def test_credential_of_the_environment_does_not_change_a_journal(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update")
    before = journal(project, "default")
    monkeypatch.setenv("SHOP_TOKEN", "Where is order 1042?")
    project.run().assert_outcomes(passed=1)
    (project.snapshots / "default.journal").unlink()
    project.run("--snapshot-update")
    assert journal(project, "default") == before


@pytest.mark.parametrize(
    ("in_the_way", "said"),
    [
        (
            "__snapshots__",
            "storage.failed: specs/__snapshots__/desk/default.journal cannot be written: Not a directory",
        ),
        (
            "__snapshots__/desk/default.journal/x",
            "storage.failed: the snapshot default.journal cannot be read: it is not a regular file",
        ),
    ],
)
def test_update_that_cannot_be_written_fails(project: Project, in_the_way: str, said: str) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.write(f"specs/{in_the_way}", "something else")
    result = project.run("--snapshot-update")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([said])
    assert "agentrun/testing" not in result.stdout.str()


def test_binary_snapshot_differs_and_can_be_updated(project: Project) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.snapshots.mkdir(parents=True)
    (project.snapshots / "default.journal").write_bytes(b"\xff\xfe\0")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["journal-snapshot: the journal differs from the accepted one"])
    project.run("--snapshot-update").assert_outcomes(passed=1)
    project.run().assert_outcomes(passed=1)


def test_update_keeps_the_snapshot_of_a_failing_case(project: Project) -> None:
    """Nor is what is known to fail: both keep what was accepted."""
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update")
    project.edit("specs/__snapshots__/desk/default.journal", "late", "here")
    before = (project.snapshots / "default.journal").read_bytes()
    project.cases(f"name: default, assert: [{{type: journal-snapshot}}, {BAD}]")
    project.run("--snapshot-update").assert_outcomes(failed=1)
    assert (project.snapshots / "default.journal").read_bytes() == before
    project.cases(f"name: default, xfail: later, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update").assert_outcomes(xfailed=1)
    assert (project.snapshots / "default.journal").read_bytes() == before


def test_update_new_only_writes_missing_snapshots(project: Project) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}", f"name: other, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update", "-k", "default")
    project.edit("specs/__snapshots__/desk/default.journal", "late", "here")
    project.run("--snapshot-update-new-only").assert_outcomes(failed=1, passed=1)
    assert project.kept() == ["default.journal", "other.journal"]


def test_not_journal_snapshot_is_never_updated(project: Project) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update")
    project.cases("name: default, assert: [{type: not-journal-snapshot}]")
    project.run("--snapshot-update").assert_outcomes(failed=1)
    project.edit("specs/__snapshots__/desk/default.journal", "late", "here")
    before = (project.snapshots / "default.journal").read_bytes()
    project.run("--snapshot-update").assert_outcomes(passed=1)
    assert (project.snapshots / "default.journal").read_bytes() == before


def with_unused_snapshots(project: Project) -> None:
    """Of three snapshots two are not used any more: one case is gone, the other does not keep its journal."""
    project.cases(
        f"name: late, {SNAPSHOT_ASSERTION}",
        f"name: late-order, {SNAPSHOT_ASSERTION}",
        f"name: gone, {SNAPSHOT_ASSERTION}",
    )
    project.run("--snapshot-update").assert_outcomes(passed=3)
    project.cases(f"name: late, {SNAPSHOT_ASSERTION}", "name: late-order")


def test_unused_snapshots_fail_the_session(project: Project) -> None:
    with_unused_snapshots(project)
    result = project.run("--snapshot-details")
    assert result.ret == 1
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 snapshot passed. 2 snapshots unused.", "Unused gone (specs/__snapshots__/desk/*"])
    assert len(project.kept()) == 3


def test_unused_snapshots_only_warn_with_the_option(project: Project) -> None:
    with_unused_snapshots(project)
    result = project.run("--snapshot-warn-unused")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["1 snapshot passed. 2 snapshots unused."])


def test_update_removes_unused_snapshots(project: Project) -> None:
    with_unused_snapshots(project)
    (project.snapshots / "notes.txt").write_text("mine", encoding="utf-8")
    result = project.run("--snapshot-update")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["1 snapshot passed. 2 unused snapshots deleted."])
    assert project.kept() == ["late.journal", "notes.txt"]


def test_removing_the_last_snapshot_removes_the_folder(project: Project) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update")
    project.cases("name: default")
    project.run("--snapshot-update").stdout.fnmatch_lines(["1 unused snapshot deleted."])
    assert not project.snapshots.exists()


@pytest.mark.parametrize(
    "args",
    [["specs/desk.cases.yaml::late-order"], ["-k", "order"], ["-m", "picked"], ["specs/desk.cases.yaml"], []],
    ids=["id", "word", "mark", "file", "all"],
)
def test_snapshot_of_a_case_that_was_not_run_is_kept(project: Project, args: list[str]) -> None:
    """A case may be left out, skipped, not fit its recording, or have a name that begins like another's."""
    names = ("late", "late-order", "late-order-2")
    project.cases(*(f"name: {name}, {SNAPSHOT_ASSERTION}" for name in names))
    project.run("--snapshot-update").assert_outcomes(passed=3)
    project.cases(
        f"name: late, skip: closed, {SNAPSHOT_ASSERTION}",
        f"name: late-order, tags: [picked], {SNAPSHOT_ASSERTION}",
        f"name: late-order-2, cassette: other, {SNAPSHOT_ASSERTION}",
    )
    project.write("specs/test_own.py", "def test_own(snapshot): assert 1 == snapshot\n")
    for update in ([], ["--snapshot-update"]):
        result = project.run(*args, *update)
        assert "unused" not in result.stdout.str()
        assert sorted(project.kept()) == sorted(f"{name}.journal" for name in names)


@pytest.mark.parametrize("args", [[], ["specs"]], ids=["all", "folder"])
def test_syrupy_tests_do_not_remove_case_snapshots(project: Project, args: list[str]) -> None:
    """They look through the same folder, and take for remains what nobody asked for: such as the journal of a case that
    could not be run, is known to fail, or must be another."""
    names = ("broken", "known", "other")
    project.cases(*(f"name: {name}, {SNAPSHOT_ASSERTION}" for name in names))
    project.run("--snapshot-update").assert_outcomes(passed=3)
    project.edit("specs/__snapshots__/desk/known.journal", "late", "here")
    project.edit("specs/__snapshots__/desk/other.journal", "late", "here")
    project.cases(
        f"name: broken, cassette: other, {SNAPSHOT_ASSERTION}",
        f"name: known, xfail: later, {SNAPSHOT_ASSERTION}",
        "name: other, assert: [{type: not-journal-snapshot}]",
    )
    project.write("specs/test_own.py", "def test_own(snapshot): assert 1 == snapshot\n")
    for update in (["--snapshot-update"], []):
        project.run(*args, *update).assert_outcomes(passed=2, failed=1, xfailed=1)
        assert project.kept() == [f"{name}.journal" for name in names]


def test_snapshots_are_compared_without_syrupy(project: Project) -> None:
    """Cases are compared with what was accepted; only accepting needs syrupy, or `agentrun test --update`."""
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update")
    project.run("-p", "no:syrupy").assert_outcomes(passed=1)
    project.edit("specs/__snapshots__/desk/default.journal", "late", "here")
    result = project.run("-p", "no:syrupy")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["journal-snapshot: the journal differs from the accepted one"])


def test_unreadable_snapshot_fails_without_a_traceback(project: Project) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.snapshots.mkdir(parents=True)
    (project.snapshots / "default.journal").write_bytes(b"\xff\xfe")
    result = project.run()
    result.assert_outcomes(failed=1)
    said = result.stdout.str()
    assert "Traceback" not in said
    assert "agentrun/testing" not in said


def test_no_snapshot_is_written_in_ci(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of a case nor of a Python test; snapshots of others are none of our business."""
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.write(
        "tests/test_own.py",
        'def test_own(agentrun, journal_snapshot): assert agentrun("specs/desk.yaml") == journal_snapshot\n'
        "def test_other(snapshot): assert 1 == snapshot\n",
    )
    monkeypatch.setenv("CI", "true")
    project.run("--snapshot-update").assert_outcomes(passed=1, failed=2)
    assert project.kept() == []
    monkeypatch.setenv("CI", "false")
    project.run("--snapshot-update").assert_outcomes(passed=3)
    assert project.kept() == ["default.journal"]


def test_no_snapshot_is_removed_in_ci(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}", f"name: other, cassette: default, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update").assert_outcomes(passed=2)
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    monkeypatch.setenv("CI", "true")
    project.run("--snapshot-update")
    assert project.kept() == ["default.journal", "other.journal"]
    monkeypatch.setenv("CI", "false")
    project.run("--snapshot-update")
    assert project.kept() == ["default.journal"]
