"""`agentrun test`: its text and JSON output."""

from __future__ import annotations

import json
import re

import pytest

from .suite_project import ANOTHER, CASES, DEFAULT_CASE, FAILS, MISSES, SNAPSHOT_CASE, Suite

KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"


def test_failure_shows_the_assertion_the_line_and_the_run(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    ran = suite.test()
    assert f"FAILED  {CASES}::fails  ({CASES}:4)" in ran.out
    assert "contains:" in ran.out
    assert "nowhere" in ran.out
    assert "lookup_order" in ran.out
    assert ran.out.endswith("1 passed, 1 failed\n")
    assert ran.err == f"{CASES} .F [100%]\n"


def test_miss_shows_the_change_and_the_record_command(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, ANOTHER)
    suite.edit("specs/desk.yaml", "Look an order up", "Look every order up")
    ran = suite.test()
    assert ran.code == 3
    both = f"agentrun test {CASES}::default {CASES}::another"
    assert ran.out == (
        "2 cases: instructions line 1 changed  (specs/desk.yaml:4)\n"
        "  recorded: Look an order up before you answer.\n"
        "  now:      Look every order up before you answer.\n"
        f"  {CASES}: default, another\n"
        "\n"
        "2 missed\n"
        f"  → record again: {both} --record new\n"
        f"  → details of each case: {both} -v\n"
    )


def test_many_cases_with_one_change_are_counted(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, *(ANOTHER.replace("another", f"another-{number}") for number in range(3)))
    suite.edit("specs/desk.yaml", "Look an order up", "Look every order up")
    out = suite.test().out
    assert out.startswith("4 cases: instructions line 1 changed")
    assert "agentrun test . --record new" in out


def test_reasons_of_skipped_and_xfailed_cases_are_shown(suite: Suite) -> None:
    suite.write("  - {name: default, skip: not today}\n", FAILS.replace("{name", "{xfail: known bug, name"))
    ran = suite.test()
    assert f"skipped  {CASES}::default  (not today)" in ran.out
    assert f"xfailed  {CASES}::fails  (known bug)" in ran.out
    assert ran.err == f"{CASES} sx [100%]\n"
    assert suite.test("-q").out == "1 skipped, 1 xfailed\n"


def test_quiet_has_no_progress(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    ran = suite.test("--quiet")
    assert ran.err == ""
    assert "FAILED" in ran.out


def test_output_is_the_same_every_time(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS, MISSES, SNAPSHOT_CASE.replace("default", "kept, cassette: default"))
    first, again = suite.test(), suite.test()
    assert (first.out, first.err) == (again.out, again.err)


def test_no_colours_in_a_pipe(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    ran = suite.test()
    assert "\x1b" not in ran.out + ran.err


def test_json_has_one_object_per_case_and_a_summary(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS, "  - {name: later, skip: not today}\n")
    ran = suite.test("--json")
    assert ran.err == ""
    first, second, third, last = ran.lines()
    assert first["case"]["id"] == f"{CASES}::default"
    assert {"file": CASES, "line": 3, "status": "passed", "tier": "exact"}.items() <= first["case"].items()
    assert first["case"]["spent"]["turns"] == 3
    assert [wrong["assertion"] for wrong in second["case"]["failures"]] == ["contains"]
    assert third["case"]["reason"] == "not today"
    summary = last["summary"]
    assert (summary["exit"], summary["cases"], summary["failed"], summary["passed"], summary["skipped"]) == (
        1,
        3,
        1,
        1,
        1,
    )


def test_usage_error_with_json_is_a_json_object(suite: Suite) -> None:
    ran = suite.test("--json", "nowhere")
    assert ran.code == 2
    assert json.loads(ran.out)["error"]["exit"] == 2


def test_json_lists_the_written_snapshots(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    ran = suite.test("--update", "--json")
    assert ran.lines()[0]["case"]["written"]["how"] == "new"
    assert ran.summary()["written"] == [
        {"path": "specs/__snapshots__/desk/default.journal", "how": "new", "changes": []}
    ]


def test_failure_shows_the_answer_of_the_run(suite: Suite) -> None:
    """Whatever the assertion is, the report of a failure shows what the agent said."""
    suite.write("  - {name: default, assert: [{type: turns, min: 9}]}\n")
    assert "    turn 3\n      Done, 20.50 is paid back.\n" in suite.test().out


@pytest.mark.parametrize("args", [[], ["--json"], ["--junit", "-"]], ids=["text", "json", "junit"])
def test_environment_does_not_change_the_output(suite: Suite, args: list[str]) -> None:
    wanted = f"correct-horse-battery {KEY}"
    suite.write(
        f"  - {{name: default, assert: [{{type: contains, value: {wanted}}}]}}\n",
        "  - {name: later, cassette: default, skip: correct-horse-battery}\n",
    )
    ran = suite.test(*args)
    suite.setenv(SHOP_API_KEY="correct-horse-battery")
    again = suite.test(*args)
    assert ran.code == again.code == 1
    assert without_times(ran.out) == without_times(again.out)
    assert "battery" in ran.out
    assert KEY not in ran.out


def without_times(text: str) -> str:
    return re.sub(r'(seconds": ?|time="|in )[0-9.]+', r"\1", text)


@pytest.mark.parametrize("times", ["2", "5"])
def test_repeat_passes_a_deterministic_case(suite: Suite, times: str) -> None:
    suite.write(SNAPSHOT_CASE)
    suite.test("--update")
    assert suite.test("--repeat", times).out == "1 passed\n"


def test_repeat_fails_a_case_with_changing_verdicts(suite: Suite) -> None:
    check = "from itertools import count\nnumbers = count()\ndef check(run):\n    return next(numbers) < 4\n"
    (suite.root / "python/flaky.py").write_text(check, encoding="utf-8")
    suite.write("  - {name: default, assert: [{type: python, value: 'flaky:check'}]}\n")
    assert suite.test("--repeat", "2").code == 0
    ran = suite.test("--repeat", "3")
    assert ran.code == 1
    assert "repeat: " in ran.out


def test_sweep_reports_the_injected_faults(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    ran = suite.test("--sweep")
    assert ran.code == 0
    assert "Sweep: " in ran.out
    assert "provider.rate_limited" in ran.out
    swept = suite.test("--sweep", "--json")
    assert swept.lines()[0]["case"]["swept"]["tried"] == swept.summary()["sweep"]["tried"] > 10


def test_coverage_below_the_minimum_fails(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    ran = suite.test("--coverage")
    assert ran.code == 0
    assert "specs/desk.yaml" in ran.out
    percent = suite.test("--coverage", "--json").summary()["coverage"]["percent"]
    assert 0 < percent < 100
    assert suite.test("--coverage-min", str(percent)).code == 0
    ran = suite.test("--coverage-min", str(percent + 1))
    assert ran.code == 1
    assert f"the coverage is {percent:g} %, less than --coverage-min {percent + 1:g}" in ran.out


def test_help_lists_all_options(suite: Suite) -> None:
    text = suite.test("--help").out
    for option in ("-k", "--tag", "-n", "--shard", "--repeat", "--update", "--record", "--junit", "--json"):
        assert f" {option} " in text
    for option in ("-x,", "-v,", "--lf", "--list", "--watch"):
        assert f" {option} " in text
        assert f"agentrun test {option.rstrip(',')} " in text, "each has an example"
    for option in ("--fail-fast", "--sweep", "--coverage", "--coverage-min", "--require-tier", "--live-tools"):
        assert f" {option} " in text
