"""`agentrun test --lf`, `-x` and `--list`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentrun.testing.suite.selection import CaseFilter, remember_failures, select_cases

from .suite_project import ANOTHER, CASES, DEFAULT_CASE, FAILS, HEAD, MISSES, Suite

MEMORY = ".agentrun/last-failed.json"
ALL = "--lf: none of these cases failed last time, so all are selected\n"


def failed(suite: Suite) -> list[str]:
    data: dict[str, list[str]] = json.loads((suite.root / MEMORY).read_text(encoding="utf-8"))
    return data["failed"]


def test_last_failed_runs_only_what_did_not_pass(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS, MISSES, ANOTHER)
    suite.test()
    assert failed(suite) == [f"{CASES}::fails", f"{CASES}::misses"]
    ran = suite.test("--lf", "--json")
    assert ran.statuses() == {"fails": "failed", "misses": "missed"}
    assert ran.summary()["cases"] == 2


def test_case_that_passes_is_forgotten_and_others_stay(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS, MISSES)
    suite.test()
    suite.write(DEFAULT_CASE, FAILS.replace("nowhere", "paid back"), MISSES)
    assert suite.test("-k", "fails").code == 0
    assert failed(suite) == [f"{CASES}::misses"]
    assert suite.test("--lf", "--json").statuses() == {"misses": "missed"}


def test_without_failures_all_cases_run(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, ANOTHER)
    ran = suite.test("--lf")
    assert (ran.code, ran.out) == (0, "2 passed\n")
    assert ran.err.startswith(ALL)
    assert suite.test("--lf", "-q").err == ""


def test_failures_elsewhere_do_not_matter_for_the_selected_cases(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    suite.test()
    ran = suite.test("--lf", f"{CASES}::default")
    assert (ran.out, ran.err.startswith(ALL)) == ("1 passed\n", True)


def test_suite_that_passes_writes_nothing(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    suite.test()
    assert not (suite.root / MEMORY).exists()


def test_memory_is_ignored_by_git_and_readable_from_every_folder(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    suite.test()
    assert (suite.root / ".agentrun/.gitignore").read_text(encoding="utf-8") == "*\n"
    monkeypatch.chdir(suite.root / "specs")
    assert suite.test("--lf", "--json").statuses() == {"fails": "failed"}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"failed": 5}', '{"failed": [1]}', "\udcff", "{}"])
def test_damaged_memory_means_no_failures_and_is_written_again(suite: Suite, content: str) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    suite.test()
    (suite.root / MEMORY).write_bytes(content.encode(errors="surrogateescape"))
    assert suite.test("--lf", "--json").statuses() == {"default": "passed", "fails": "failed"}
    assert failed(suite) == [f"{CASES}::fails"]


def test_memory_that_is_no_file_is_not_read(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    suite.test()
    (suite.root / MEMORY).unlink()
    os.mkfifo(suite.root / MEMORY)
    ran = suite.test("--lf")
    assert ran.code == 1, "the verdict counts, also if it cannot be remembered"
    assert "--lf will not know these results: .agentrun/last-failed.json cannot be " in ran.err


def test_memory_is_not_written_through_a_link(suite: Suite, tmp_path: Path) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    suite.test()
    (tmp_path / "elsewhere").write_text("mine", encoding="utf-8")
    (suite.root / MEMORY).unlink()
    (suite.root / MEMORY).symlink_to(tmp_path / "elsewhere")
    ran = suite.test()
    assert "symbolic link" in ran.err
    assert (tmp_path / "elsewhere").read_text(encoding="utf-8") == "mine"


def test_removed_cases_are_not_selected(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    suite.test()
    suite.write(DEFAULT_CASE, ANOTHER)
    assert suite.test("--lf").out == "2 passed\n"


def test_case_of_a_spec_that_does_not_compile_is_remembered(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, ANOTHER)
    suite.edit("specs/desk.yaml", "shop:refund", "shop:refun")
    suite.test("-k", "another")
    suite.edit("specs/desk.yaml", "shop:refun", "shop:refund")
    assert suite.test("--lf", "--json").statuses() == {"another": "passed"}
    assert failed(suite) == []


def test_project_with_invalid_settings_remembers_nothing(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    found = select_cases(["."], CaseFilter())
    (suite.root / "pyproject.toml").write_text("[tool.agentrun]\nwrong = 1\n", encoding="utf-8")
    assert remember_failures(found.cases, []) == []


def test_x_stops_at_the_first_failure(suite: Suite) -> None:
    suite.write(FAILS, DEFAULT_CASE)
    ran = suite.test("-x")
    assert ran.out.endswith("1 failed, 1 not run\n")
    assert failed(suite) == [f"{CASES}::fails"]


def test_list_prints_ids_and_runs_nothing(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS, ANOTHER)
    ran = suite.test("--list", "-k", "not fails")
    assert (ran.code, ran.out, ran.err) == (0, f"{CASES}::default\n{CASES}::another\n", "")
    assert not (suite.root / MEMORY).exists()


def test_list_as_json_has_one_object_per_line(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, ANOTHER)
    assert suite.test("--list", "--json").lines() == [
        {"case": {"id": f"{CASES}::default", "file": CASES, "line": 3, "tags": []}},
        {"case": {"id": f"{CASES}::another", "file": CASES, "line": 4, "tags": ["net"]}},
    ]


def test_list_of_the_last_failures(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    suite.test()
    assert suite.test("--list", "--lf").out == f"{CASES}::fails\n"


def test_list_reports_unreadable_files(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    (suite.root / "specs/bad.cases.yaml").write_text(HEAD + "  - {nam: x}\n", encoding="utf-8")
    ran = suite.test("--list")
    assert (ran.code, ran.out) == (2, f"{CASES}::default\n")
    assert "specs/bad.cases.yaml:3:" in ran.err
    as_json = suite.test("--list", "--json")
    assert (as_json.code, as_json.lines()[1]["case"]["status"]) == (2, "unreadable")


@pytest.mark.parametrize(
    "option",
    [
        ("--update",),
        ("--record", "new"),
        ("--live-tools",),
        ("--live-model",),
        ("--sweep",),
        ("--coverage",),
        ("--coverage-min", "5"),
        ("--junit", "x.xml"),
        ("--repeat", "2"),
        ("-n", "2"),
        ("-x",),
        ("-v",),
    ],
    ids=" ".join,
)
def test_list_refuses_options_that_run_cases(suite: Suite, option: tuple[str, ...]) -> None:
    suite.write(DEFAULT_CASE)
    ran = suite.test("--list", *option)
    assert ran.code == 2
    assert f"--list cannot be combined with {option[0]}: it prints ids and runs no case" in ran.err
