"""Several accepted journals of one case: `agentrun test --update --add NAME`."""

from __future__ import annotations

import pytest

from .desk_project import TURNS
from .suite_project import ANOTHER, DEFAULT_CASE, SNAPSHOT_CASE, Suite

BOTH = ANOTHER.replace("}", ", assert: [{type: journal-snapshot}]}")


def rename_rule(suite: Suite, old: str, new: str) -> None:
    """The journal is another one, and the recording still matches."""
    suite.edit("specs/desk.yaml", f"id: {old}", f"id: {new}")


def files(suite: Suite) -> list[str]:
    return sorted(path.name for path in suite.snapshots.iterdir())


def accept_two(suite: Suite) -> None:
    """`default.journal` is of the rule `reads`, `default.b.journal` of the rule `lookups`."""
    suite.write(SNAPSHOT_CASE)
    suite.test("--update")
    rename_rule(suite, "reads", "lookups")
    ran = suite.test("--update", "--add", "b")
    assert ran.code == 0
    assert "new      specs/__snapshots__/desk/default.b.journal" in ran.out


def test_run_passes_if_it_equals_one_and_the_report_says_which(suite: Suite) -> None:
    accept_two(suite)
    assert files(suite) == ["default.b.journal", "default.journal"]
    told = "Cases with several accepted journals:\n  specs/desk.cases.yaml::default  equals {}, not {}\n\n1 passed\n"
    ran = suite.test()
    assert (ran.code, ran.out) == (0, told.format("default.b.journal", "default.journal"))
    rename_rule(suite, "lookups", "reads")
    ran = suite.test()
    assert (ran.code, ran.out) == (0, told.format("default.journal", "default.b.journal"))
    case = suite.test("--json").lines()[0]["case"]
    assert case["snapshot"] == {"equals": "default.journal", "others": ["default.b.journal"]}


def test_failure_shows_the_difference_from_the_nearest_one(suite: Suite) -> None:
    accept_two(suite)
    suite.edit("specs/__snapshots__/desk/default.journal", "A person signs off.", "Nobody signs.")
    rename_rule(suite, "lookups", "finds")
    ran = suite.test()
    assert ran.code == 1
    assert "the journal differs from all 2 accepted ones; the nearest is default.b.journal" in ran.out
    assert "--update (replaces default.b.journal), or --update --add NAME" in ran.out
    assert "lookups" in ran.out
    assert "Nobody signs." not in ran.out
    assert "several accepted" not in ran.out


def test_update_replaces_the_nearest_one_and_keeps_the_others(suite: Suite) -> None:
    accept_two(suite)
    suite.edit("specs/__snapshots__/desk/default.journal", "A person signs off.", "Nobody signs.")
    before = suite.accepted()
    rename_rule(suite, "lookups", "finds")
    ran = suite.test("--update")
    assert "changed  specs/__snapshots__/desk/default.b.journal" in ran.out
    assert suite.accepted() == before
    assert "finds" in suite.accepted("default.b")
    assert suite.test().code == 0


def test_add_of_an_equal_journal_writes_nothing(suite: Suite) -> None:
    accept_two(suite)
    ran = suite.test("--update", "--add", "c")
    assert (ran.code, files(suite)) == (0, ["default.b.journal", "default.journal"])
    assert "equals default.b.journal" in ran.out


def test_add_of_a_name_that_exists_replaces_that_journal(suite: Suite) -> None:
    accept_two(suite)
    rename_rule(suite, "lookups", "finds")
    ran = suite.test("--update", "--add", "b")
    assert "changed  specs/__snapshots__/desk/default.b.journal" in ran.out
    assert "reads" in suite.accepted()


def test_add_applies_to_every_selected_case_that_differs(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE, BOTH)
    suite.test("--update", "-k", "default", "specs/desk.cases.yaml::default")
    rename_rule(suite, "reads", "lookups")
    assert suite.test("--update", "--add", "b", "-n", "2").code == 0
    assert files(suite) == ["another.b.journal", "default.b.journal", "default.journal"]
    assert suite.test().code == 0


def test_fifth_journal_is_accepted_and_the_sixth_is_refused(suite: Suite) -> None:
    accept_two(suite)
    for number, name in enumerate("cde"):
        rename_rule(suite, ["lookups", "c", "d"][number], name)
        assert suite.test("--update", "--add", name).code == 0
    assert len(files(suite)) == 5
    rename_rule(suite, "e", "f")
    ran = suite.test("--update", "--add", "f")
    assert ran.code == 1
    assert "a case can have at most 5 accepted journals, not 6" in ran.out
    assert (
        "remove one of default.journal, default.b.journal, default.c.journal, default.d.journal and default.e.j"
        in ran.out
    )
    assert len(files(suite)) == 5
    (suite.snapshots / "default.f.journal").write_text("by hand", encoding="utf-8")
    ran = suite.test()
    assert (ran.code, "a case can have at most 5 accepted journals, not 6" in ran.out) == (1, True)


def test_unused_journals_are_found_and_removed(suite: Suite) -> None:
    """Also those with a name that no case can have."""
    accept_two(suite)
    suite.write(SNAPSHOT_CASE, BOTH)
    rename_rule(suite, "lookups", "reads")
    suite.test("--update", "--add", "b")
    (suite.snapshots / "default.b.c.journal").write_text("x", encoding="utf-8")
    (suite.snapshots / "default.B.journal").write_text("x", encoding="utf-8")
    suite.write(SNAPSHOT_CASE)
    unused = [f"specs/__snapshots__/desk/{name}.journal" for name in ("another.b", "default.B", "default.b.c")]
    ran = suite.test("--json")
    assert (ran.code, ran.summary()["unused_snapshots"]) == (1, unused)
    assert suite.test("--update", "--json").summary()["removed"] == unused
    assert files(suite) == ["default.b.journal", "default.journal"]
    suite.write(DEFAULT_CASE)
    assert suite.test("--update", "--json").summary()["removed"] == [
        "specs/__snapshots__/desk/default.b.journal",
        "specs/__snapshots__/desk/default.journal",
    ]
    assert not suite.snapshots.exists()


def test_negated_assertion_fails_if_the_run_equals_any(suite: Suite) -> None:
    accept_two(suite)
    suite.write(SNAPSHOT_CASE.replace("journal-snapshot", "not-journal-snapshot"))
    ran = suite.test()
    assert (ran.code, "the journal equals the accepted one, default.b.journal" in ran.out) == (1, True)
    rename_rule(suite, "lookups", "finds")
    assert suite.test().code == 0


def test_miss_is_explained_by_the_nearest_journal(suite: Suite) -> None:
    accept_two(suite)
    suite.edit("specs/__snapshots__/desk/default.journal", "A person signs off.", "Nobody signs.")
    suite.edit("specs/desk.yaml", "Look an order up", "Look the order up")
    ran = suite.test()
    assert ran.code == 3
    assert "Nobody signs." not in ran.out


def test_case_with_a_dot_in_its_name_is_refused(suite: Suite) -> None:
    """So `a.b.journal` is always the journal b of case a."""
    suite.write(SNAPSHOT_CASE.replace("default", "default.b"))
    ran = suite.test()
    assert ran.code == 2
    assert "a name of at most 64 lowercase letters, digits, - and _" in ran.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--add", "b"], "--add needs --update"),
        (["--update", "--add", "a.b"], "'a.b' is not a name of at most 64 lowercase letters"),
        (["--update", "--add", "B"], "'B' is not a name"),
        (["--update", "--add", "../x"], "'../x' is not a name"),
        (["--update", "--add", ""], "'' is not a name"),
    ],
)
def test_wrong_name_is_refused_before_any_case_runs(suite: Suite, args: list[str], said: str) -> None:
    suite.write(SNAPSHOT_CASE)
    ran = suite.test(*args)
    assert (ran.code, said in ran.err) == (2, True)
    assert not suite.snapshots.exists()


def test_model_that_answers_in_two_ways_passes_with_both(suite: Suite) -> None:
    """The case is recorded three times. Only the second answer is new, and only it has to be accepted."""
    suite.write(SNAPSHOT_CASE)
    suite.test("--update")
    record = ("--record", "all", "--yes", "--approve", "all")
    other = TURNS.replace("Done, 20.50 is paid back.", "You get 20.50 back.")
    with suite.provider(other):
        ran = suite.test(*record, "--update", "--add", "short")
    assert (ran.code, files(suite)) == (0, ["default.journal", "default.short.journal"])
    assert "equals default.short.journal, not default.journal" in suite.test().out
    with suite.provider(TURNS):
        ran = suite.test(*record)
    assert "equals default.journal, not default.short.journal" in ran.out
    assert "CHANGED" not in ran.out
    assert suite.test().code == 0
