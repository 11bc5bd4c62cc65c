"""The commands that `agentrun test` and the audit suggest after a change work and run no tool twice."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from agentrun.cli.group import run_command

from .desk_project import TURNS
from .suite_project import Suite

CASES = """\
  - name: default
    approvals: {refund: approved}
  - name: talk
    approvals: {refund: approved}
    turns: [Please refund 20 of order 1042., Thanks.]
"""
CONVERSATION = TURNS + "  - text: You are welcome.\n"
CHANGES = {
    "a prompt line": ("specs/desk.yaml", "Look an order up before", "Always look an order up before"),
    "another model": ("specs/desk.yaml", "name: gpt-4.1-mini", "name: gpt-4.1"),
    "other answers": ("specs/desk.cases.yaml", "refund: approved", "refund: denied"),
}


@pytest.fixture
def ledger(suite: Suite) -> Path:
    """Where the real refunds are written. The cases are recorded, and the ledger is empty again."""
    path = suite.root / "ledger.txt"
    doc = '"""Pays an amount of an order back."""\n'
    suite.edit("python/shop.py", doc, f"{doc}    with open({str(path)!r}, 'a') as file: file.write('paid\\n')\n")
    suite.write(CASES)
    with suite.provider(CONVERSATION):
        assert suite.test("--record", "all", "--yes").code == 0
    assert path.read_text(encoding="utf-8") == "paid\n" * 2
    assert suite.test().code == 0
    path.unlink()
    return path


@pytest.mark.parametrize("change", CHANGES)
def test_record_command_of_the_summary_works_and_runs_no_tool_twice(suite: Suite, ledger: Path, change: str) -> None:
    suite.edit(*CHANGES[change])
    missed = suite.test()
    assert missed.code == 3
    (advice,) = [line for line in missed.out.splitlines() if "record again: " in line]
    words = shlex.split(advice.partition(": ")[2])
    assert words[-2:] == ["--record", "new"]
    with suite.provider(CONVERSATION):
        assert suite.test(*words[2:], "--yes").code == 0
    assert not ledger.exists(), "nothing is paid twice"
    assert suite.test().code == 0


def test_record_command_of_each_case_works_and_runs_no_tool_twice(suite: Suite, ledger: Path) -> None:
    suite.edit(*CHANGES["a prompt line"])
    prefix = "    to accept it: "
    hints = [line.removeprefix(prefix) for line in suite.test("-v").out.splitlines() if line.startswith(prefix)]
    assert hints == [
        "agentrun specs/desk.yaml --case default --record new",
        "agentrun test specs/desk.cases.yaml::talk --record new",
    ]
    with suite.provider(CONVERSATION):
        for hint in hints:
            assert run_command([*shlex.split(hint)[1:], "--yes"]) == 0
    assert not ledger.exists()
    assert suite.test().code == 0


def test_case_without_a_cassette_suggests_record_new(suite: Suite, ledger: Path) -> None:
    (suite.root / "cassettes/desk/default.yaml").unlink()
    out = suite.test().out
    assert "record it: agentrun specs/desk.yaml --case default --record new" in out
    assert "record again: agentrun test specs/desk.cases.yaml::default --record new" in out


def test_unreadable_cassette_suggests_record_all(suite: Suite, ledger: Path) -> None:
    """`new` would have to read it."""
    (suite.root / "cassettes/desk/default.yaml").write_text("interactions: 5\n", encoding="utf-8")
    missed = suite.test()
    assert "record again: agentrun test specs/desk.cases.yaml::default --record all" in missed.out
    with suite.provider(CONVERSATION):
        assert suite.test("specs/desk.cases.yaml::default", "--record", "all", "--yes").code == 0
    assert suite.test().code == 0


def test_suite_recording_needs_consent_once_and_reports_its_spend(suite: Suite, ledger: Path) -> None:
    suite.edit(*CHANGES["a prompt line"])
    with suite.provider(CONVERSATION) as server:
        refused = suite.test("--record", "new")
        assert (refused.code, refused.out, len(server.requests)) == (2, "", 0)
        assert "this recording may run tools without `effect: read` (refund)" in refused.err
        assert "tools that may run" not in refused.err
        done = suite.test("--record", "new", "--yes", "--json")
        shown = suite.test("--record", "new", "--yes").err
    assert shown.count("tools that may run: lookup_order, refund (only calls") == 1
    assert "approvals answered by: 2 cases, then the cassette\n" in shown
    assert "estimated cost: about 7 requests, 105 tokens" in shown
    summary = done.summary()["recorded"]
    assert summary["spent"] == {"requests": 7, "tokens": 105, "cost": 0, "unpriced": 7}
    assert [case["is_saved"] for case in summary["cases"]] == [True, True]


def test_failed_calls_are_listed(suite: Suite) -> None:
    suite.write("  - {name: fresh, approvals: {refund: approved}}\n")
    suite.edit("python/shop.py", '    return {"id": id', '    raise LookupError(id)\n    return {"id": id')
    with suite.provider(TURNS):
        done = suite.test("--record", "all", "--yes")
    assert "  failed call  specs/desk.cases.yaml::fresh  lookup_order (tool.execution)\n" in done.out
    assert "1 tool call failed: lookup_order (tool.execution)" in done.err


def test_record_command_of_the_audit_makes_a_stale_cassette_fresh(
    suite: Suite, ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cassette = "cassettes/desk/default.yaml"
    suite.edit("specs/desk.yaml", "turns: 8", "turns: 9")
    run_command(["cassette", "audit", cassette])
    (advice,) = [line for line in capsys.readouterr().out.splitlines() if line.endswith("--record new")]
    with suite.provider(CONVERSATION) as server:
        assert run_command([*shlex.split(advice[advice.index("agentrun ") :])[1:], "--yes"]) == 0
        assert len(server.requests) == 0
    assert not ledger.exists()
    capsys.readouterr()
    run_command(["cassette", "audit", cassette])
    assert "stale" not in capsys.readouterr().out
