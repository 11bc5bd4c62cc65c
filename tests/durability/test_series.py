"""The long series: what they print, how they end, and that `make test-long` runs all of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from . import series
from .series import Case, CaseMissed, run_series

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("[!t]*.py") if "return run_series(" in path.read_text(encoding="utf-8"))


def pass_case(worker: int) -> None: ...


def fail_case(worker: int) -> None:
    raise AssertionError("something happened twice")


def miss_case(worker: int) -> None:
    raise CaseMissed


def test_series_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_series("crash", [Case("one", pass_case)] * 5, 7, least=5) == 0
    assert capsys.readouterr() == ("crash: 5 cases, 0 violations, seed 7\n", "")


def test_violation_is_printed_and_fails_the_series(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_series("crash", [Case("one", pass_case), Case("two", fail_case)], 7) == 1
    out, err = capsys.readouterr()
    assert out == "crash: 2 cases, 1 violations, seed 7\n"
    assert err == "crash: two: AssertionError: something happened twice\n"


def test_case_that_did_not_happen_is_not_counted_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_series("faults", [Case("one", pass_case), Case("two", miss_case)], 7, least=2) == 1
    assert capsys.readouterr().out == "faults: 1 cases, 0 violations, seed 7, 1 missed\n"


def test_too_few_cases_fail_the_series(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MINUTES", 0)
    assert run_series("crash", [Case("one", pass_case)] * 5, 7, least=5) == 1
    assert capsys.readouterr().out == "crash: 0 cases, 0 violations, seed 7\n"


def test_every_series_is_a_target_that_the_long_tests_run() -> None:
    assert NAMES == ["crash", "faults", "races"]
    for target in ("test-long", *NAMES):
        command = ["make", "--dry-run", "--no-print-directory", "-C", str(HERE.parents[1]), "TESTS=", target]
        recipe = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name in NAMES if target == "test-long" else [target]:
            assert f"-m tests.durability.{name}\n" in recipe
