"""`agentrun test`: which cases it runs, and what it refuses before any case runs."""

from __future__ import annotations

import pytest

from .suite_project import ANOTHER, CASES, DEFAULT_CASE, FAILS, MISSES, SNAPSHOT_CASE, Suite

INVALID_CASES = 'agentrun: "1"\ncases:\n  - {nam: x}\n'


def test_all_cases_of_the_project_run_without_arguments(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, ANOTHER)
    ran = suite.test()
    assert (ran.code, ran.out) == (0, "2 passed\n")
    assert ran.err == f"{CASES} .. [100%]\n"


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["specs/desk.yaml"], {"default", "another"}),
        ([CASES], {"default", "another"}),
        (["specs"], {"default", "another"}),
        ([f"{CASES}::another"], {"another"}),
        (["-k", "another"], {"another"}),
        (["-k", "NET"], {"another"}),
        (["-k", "not net and desk"], {"default"}),
        (["-k", ""], {"default", "another"}),
        (["--tag", "net"], {"another"}),
        (["--tag", "net", "--tag", "other"], {"another"}),
    ],
)
def test_paths_keywords_and_tags_select_cases(suite: Suite, args: list[str], wanted: set[str]) -> None:
    suite.write(DEFAULT_CASE, ANOTHER)
    ran = suite.test("--json", *args)
    assert ran.code == 0
    assert set(ran.statuses()) == wanted


def test_shards_are_disjoint_and_together_all(suite: Suite) -> None:
    names = [f"case-{number}" for number in range(6)]
    suite.write(*(f"  - {{name: {name}, skip: later}}\n" for name in names))
    parts = [suite.test("--json", "--shard", f"{part}/2").statuses() for part in (1, 2)]
    assert sorted([*parts[0], *parts[1]]) == names
    assert parts[0]
    assert parts[1]


def test_empty_shard_passes(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    codes = [suite.test("--shard", f"{part}/3") for part in (1, 2, 3)]
    assert [ran.code for ran in codes] == [0, 0, 0]
    assert sorted(ran.out for ran in codes) == ["1 passed\n", "no cases\n", "no cases\n"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere"], "there is no file or folder"),
        (["python"], "has no cases"),
        ([f"{CASES}::defualt"], 'did you mean "default"?'),
        (["-k", "nothing"], "no case matches -k nothing; without it 1 case would run"),
        (["--tag", "nothing"], "no case matches --tag nothing; without it 1 case would run"),
        (["-k", "a b"], "-k: column 3"),
        (["-n", "0"], "from 1 to 256"),
        (["-n", "x"], "from 1 to 256"),
        (["-n", "257"], "from 1 to 256"),
        (["--shard", "0/2"], "I from 1 to N"),
        (["--shard", "3/2"], "I from 1 to N"),
        (["--shard", "2"], "I from 1 to N"),
        (["--repeat", "0"], "from 1 to"),
        (["--record", "from:0"], "from:N"),
        (["--record", "some"], "from:N"),
        (["--coverage-min", "101"], "from 0 to 100"),
        (["--coverage-min", "-1"], "from 0 to 100"),
        (["--approve", "all"], "--approve"),
        (["--record", "all", "--approve", "nowhere.yaml"], "there is no file nowhere.yaml"),
        (["--record", "all", "--approve", "ask"], "needs a terminal"),
        (["--live-tools", "--live-model"], "cannot be combined with"),
        (["--record", "all", "--live-tools"], "cannot be combined with"),
        (["--record", "all", "-n", "2"], "cannot be combined with -n"),
        (["--record", "all", "--repeat", "2"], "--repeat"),
        (["--record", "all", "--sweep"], "--sweep"),
        (["--live-tools", "--update"], "--update"),
        (["--junit", "specs"], "is a directory"),
    ],
)
def test_invalid_arguments_are_refused_before_any_case_runs(suite: Suite, args: list[str], words: str) -> None:
    suite.write(DEFAULT_CASE)
    ran = suite.test(*args)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert "%]" not in ran.err


@pytest.mark.parametrize("option", [["--update"], ["--record", "all"], ["--record", "new"]])
@pytest.mark.parametrize(("value", "refused"), [("true", True), ("1", True), ("", False), ("false", False)])
def test_update_and_record_are_refused_in_ci(suite: Suite, option: list[str], value: str, refused: bool) -> None:
    suite.write("  - {name: default, skip: later, assert: [{type: journal-snapshot}]}\n")
    suite.setenv(CI=value)
    ran = suite.test(*option)
    assert (ran.code == 2) is refused
    assert ("is not allowed in CI" in ran.err) is refused


def test_unreadable_cases_file_is_reported_and_other_cases_run(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    (suite.root / "specs/bad.cases.yaml").write_text(INVALID_CASES, encoding="utf-8")
    ran = suite.test()
    assert ran.code == 2
    assert "1 passed, 1 unreadable" in ran.out
    assert "specs/bad.cases.yaml:3" in ran.out
    assert "nam" in ran.out


def test_spec_that_does_not_compile_is_reported_once(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, ANOTHER, "  - {name: third, cassette: default}\n")
    suite.edit("specs/desk.yaml", "shop:refund", "shop:refun")
    ran = suite.test()
    assert ran.code == 2
    assert ran.out.startswith('3 cases: spec.python: specs/desk.yaml:8:32: python/shop.py has no function "refun"\n')
    assert ran.out.count("has no function") == ran.out.count('did you mean "refund"') == 1
    assert "3 unreadable" in ran.out
    verbose = suite.test("-v").out
    assert verbose.count("UNREADABLE") == 1
    assert "2 more cases could not be run for the same reason" in verbose


@pytest.mark.parametrize(
    ("cases", "code"),
    [
        ([DEFAULT_CASE], 0),
        ([DEFAULT_CASE, FAILS], 1),
        ([DEFAULT_CASE, MISSES], 3),
        ([MISSES, FAILS], 1),
        (["  - {name: default, skip: later}\n"], 0),
        (["  - {name: default, xfail: known, assert: [{type: contains, value: nowhere}]}\n"], 0),
        (["  - {name: default, xfail: known}\n"], 1),
        ([SNAPSHOT_CASE], 1),
    ],
    ids=["passed", "failed", "missed", "failed-and-missed", "skipped", "xfailed", "xpassed", "no-snapshot"],
)
def test_verdicts_decide_the_exit_code(suite: Suite, cases: list[str], code: int) -> None:
    suite.write(*cases)
    ran = suite.test("--json")
    assert ran.code == code
    assert ran.summary()["exit"] == code


def test_fail_fast_stops_after_the_first_failure(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS, ANOTHER, MISSES)
    assert suite.test("--json", "--fail-fast").statuses() == {"default": "passed", "fails": "failed"}
    ran = suite.test("--fail-fast")
    assert "1 passed, 1 failed, 2 not run" in ran.out
    assert ran.code == 1


def test_require_tier_exact_misses_a_looser_match(suite: Suite) -> None:
    suite.edit("specs/desk.yaml", "budgets:", "replay: {volatile: [body.temperature]}\nbudgets:")
    suite.write(DEFAULT_CASE)
    assert suite.test().code == 0
    suite.edit("specs/desk.yaml", "temperature: 0", "temperature: 1")
    assert suite.test().code == 0
    assert suite.test("--require-tier", "exact").code == 3
