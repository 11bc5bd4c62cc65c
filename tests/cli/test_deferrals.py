"""Deferred calls on the command line: how long a run waits, `resume`, `runs --due` and `resume --due`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from .command import CommandResult, agentrun
from .cut_runs import SPEC, Bank, wait_until
from .shop_project import Project

RULE = "{id: money, ask: refund, reason: money}"
LATER = "{id: pays, allow: refund}\n    - {id: money, defer: refund, reason: month end, until: %s}"


def shop_that_defers(root: Path, until: str) -> Project:
    shop = Project(root)
    shop.edit("shop.yaml", RULE, LATER % until)
    return shop


def journal(shop: Project, run: str) -> str:
    return (shop.root / ".agentrun" / "runs" / run / "journal.jsonl").read_text(encoding="utf-8")


def stored(shop: Project) -> list[str]:
    return sorted(path.name for path in (shop.root / ".agentrun" / "runs").iterdir())


def due(shop: Project, **env: Any) -> list[str]:
    done = agentrun("runs", "--due", "--json", cwd=shop.root, **env)
    assert done.code == 0, done.err
    return [line["run"] for line in done.lines()]


def command(shop: Project, *args: str, **env: Any) -> CommandResult:
    return agentrun(*args, cwd=shop.root, **env)


def resume(shop: Project, *args: str, **env: Any) -> CommandResult:
    return command(shop, "resume", *args, **env)


def refunds(shop: Project) -> int:
    return len([line for line in shop.traces() if line.startswith("refund")])


def test_resume_before_the_time_says_until_when_the_run_waits_and_does_nothing(tmp_path: Path) -> None:
    shop = shop_that_defers(tmp_path, "2099-12-24T08:00:00+01:00")
    with shop.provider() as (_, environment):
        done = shop.run("--mode", "live", **environment)
    (run,) = stored(shop)
    waits = "suspended: the run waits for refund (c2.0), which a rule deferred until 2099-12-24 07:00:00 UTC"
    assert (done.code, done.err.splitlines()[-2:]) == (8, [waits, f"  → agentrun resume {run}"])
    assert "refund: deferred until 2099-12-24 07:00:00 UTC (by money: month end)" in done.err
    before = journal(shop, run)
    again = resume(shop, run)  # without a key or a provider
    assert (again.code, again.out, again.err) == (8, "", f"{waits}\n  → agentrun resume {run}\n")
    assert journal(shop, run) == before
    assert (due(shop), refunds(shop)) == ([], 0)
    assert due(shop, AGENTRUN_NOW="2099-12-24T06:59:59.999Z") == []
    assert due(shop, AGENTRUN_NOW="2099-12-24T07:00:00Z") == [run]
    (listed,) = agentrun("runs", "--json", cwd=tmp_path).lines()
    until = "2099-12-24T07:00:00.000Z"
    assert listed["waits_for"] == [{"kind": "deferral", "subject": "c2.0", "tool": "refund", "until": until}]
    assert "refund (c2.0) is deferred until 2099-12-24 07:00:00 UTC" in agentrun("runs", cwd=tmp_path).out
    shown = agentrun("show", run, cwd=tmp_path)
    assert "a rule deferred refund (c2.0) until 2099-12-24 07:00:00 UTC" in shown.out + shown.err
    (line,) = resume(shop, run, "--json").lines()
    assert line["suspended"]["until"] == 4_101_778_800_000


def test_resume_after_the_time_asks_the_rules_again_and_runs_the_call_once(tmp_path: Path) -> None:
    shop = shop_that_defers(tmp_path, "1ms")
    with shop.provider() as (_, environment):
        assert shop.run("--mode", "live", **environment).code == 8
        (run,) = stored(shop)
        assert (due(shop), refunds(shop)) == ([run], 0)
        done = resume(shop, run, **environment)
    assert (done.code, done.out, refunds(shop)) == (0, "Done.\n", 1), done.err
    assert due(shop) == []
    assert agentrun("audit", run, cwd=tmp_path).code == 0


def test_resume_due_continues_what_it_can_and_a_failure_does_not_stop_it(tmp_path: Path) -> None:
    shop = shop_that_defers(tmp_path, "1ms")
    with shop.provider() as (_, environment):
        shop.edit("shop.yaml", "desk:refund", "till:refund")
        (tmp_path / "till.py").write_text((tmp_path / "desk.py").read_text())
        first = shop.run("--mode", "live", **environment)
        (broken,) = stored(shop)
        (tmp_path / "till.py").unlink()
        shop.edit("shop.yaml", "till:refund", "desk:refund")
        second = shop.run("--mode", "live", **environment)
        (good,) = {*stored(shop)} - {broken}
        shop.edit("shop.yaml", "until: 1ms", "until: 7d")
        third = shop.run("--mode", "live", **environment)
        (late,) = {*stored(shop)} - {broken, good}
        assert (first.code, second.code, third.code) == (8, 8, 8), third.err
        assert sorted(due(shop)) == sorted([broken, good])
        kept = journal(shop, late)
        done = resume(shop, "--due", **environment)
    assert done.code == 6, "that of the run that failed"
    assert "tool.drift: " in done.err
    assert done.out.startswith(f"{good} of shop: completed in 3 turns, ")
    assert done.out.count("\n") == 1, "one line for each run, without its answer"
    assert (refunds(shop), journal(shop, late)) == (1, kept)
    with shop.provider() as (_, environment):
        again = resume(shop, "--due", "--json", **environment)
    assert [(line["run"], line["error"]["code"]) for line in again.lines()] == [(broken, "tool.drift")]


def test_signal_ends_resume_due_and_the_runs_after_it_are_left_alone(tmp_path: Path) -> None:
    rules = "policy: {default: allow, rules: [{id: later, defer: pay, until: 1ms}]}"
    bank = Bank(tmp_path, SPEC.replace("policy: {default: allow}", rules))
    with bank.provider():
        assert [bank.command("bank.yaml").code for _ in range(2)] == [8, 8]
        first, second = bank.run_ids()
        bank.hold("pay")
        with bank.started("resume", "--due", "--grace", "0") as resumed:
            wait_until(bank.traces)
            resumed.send_signal(signal.SIGTERM)
            out, _ = resumed.communicate(timeout=60)
    assert (resumed.returncode, out.decode().count("\n")) == (8, 1)
    assert out.decode().startswith(f"{first} of bank: parked after record ")
    assert ("run_resumed" in bank.kinds(first), "run_resumed" in bank.kinds(second)) == (True, False)
    assert bank.traces() == ["pay one"]


def test_resume_due_exits_with_0_if_a_run_only_waits_again_or_none_is_due(tmp_path: Path) -> None:
    shop = shop_that_defers(tmp_path, "1ms")
    shop.edit("shop.yaml", "allow: refund", "defer: refund, until: person")
    with shop.provider() as (_, environment):
        assert shop.run("--mode", "live", **environment).code == 8
        (run,) = stored(shop)
        (tmp_path / ".agentrun" / "runs" / "notes").write_text("a file, and no run")
        done = resume(shop, "--due", **environment)
        waits = f"{run} of shop: suspended: the run waits for an approval of refund (c2.0), which a rule deferred\n"
        assert (done.code, done.out) == (0, waits)
        again = resume(shop, "--due", **environment)
    assert (again.code, again.out, again.err) == (0, "", "no run is due\n")
    assert agentrun("runs", "--due", cwd=tmp_path).err == "no runs found\n"


@pytest.mark.parametrize(("answer", "ran"), [("approve", 1), ("deny", 0)])
def test_person_ends_a_deferral_from_another_terminal(tmp_path: Path, answer: str, ran: int) -> None:
    shop = shop_that_defers(tmp_path, "person")
    with shop.provider() as (_, environment):
        done = shop.run("--mode", "live", "--approve", "all", **environment)
        (run,) = stored(shop)
        assert (done.code, refunds(shop)) == (8, 0), "--approve is not the answer of a person"
        assert "the run waits for an approval of refund (c2.0), which a rule deferred" in done.err
        assert f"  → agentrun approve {run} c2.0\n" in done.err
        before = journal(shop, run)
        again = resume(shop, run)
        assert (again.code, journal(shop, run), due(shop)) == (8, before, [])
        (waits,) = agentrun("approvals", "--json", cwd=tmp_path).lines()
        assert (waits["run"], waits["call"], waits["tool"], waits["reason"]) == (run, "c2.0", "refund", "month end")
        ended = command(shop, answer, run, "c2.0", "--by", "Ada", **environment)
    assert (ended.code, ended.out, refunds(shop)) == (0, "Done.\n", ran), ended.err
    assert agentrun("audit", run, cwd=tmp_path).code == 0
    twice = agentrun(answer, run, "c2.0", cwd=tmp_path)
    assert twice.code == 2, twice.err


@pytest.mark.parametrize(("answer", "ran"), [("approved", 1), ("denied", 0)])
def test_approvals_of_a_case_answer_for_the_person_while_it_is_recorded(tmp_path: Path, answer: str, ran: int) -> None:
    shop = shop_that_defers(tmp_path, "person")
    cases = f'agentrun: "1"\ncases: [{{name: default, approvals: {{refund: {answer}}}}}]\n'
    (tmp_path / "shop.cases.yaml").write_text(cases, encoding="utf-8")
    with shop.provider() as (_, environment):
        recorded = shop.run("--mode", "record", "--case", "default", "--yes", **environment)
    assert (recorded.code, recorded.out, refunds(shop)) == (0, "Done.\n", ran), recorded.err
    replayed = shop.run("--mode", "replay")
    assert (replayed.code, replayed.out, refunds(shop)) == (0, "Done.\n", ran), replayed.err


def test_recording_does_not_wait_for_a_person_or_a_time(tmp_path: Path) -> None:
    shop = shop_that_defers(tmp_path, "person")
    with shop.provider() as (_, environment):
        denied = shop.run("--mode", "record", "--yes", **environment)
        assert (denied.code, refunds(shop)) == (0, 0), denied.err
        assert "no one can answer the approval" in denied.err
        shop.edit("shop.yaml", "until: person", "until: 7d")
        waits = shop.run("--mode", "record", "--yes", "--case", "later", **environment)
    assert (waits.code, refunds(shop)) == (8, 0), waits.err
    assert "not recorded yet:" in waits.err


def test_deferral_until_a_time_is_not_ended_by_a_person(tmp_path: Path) -> None:
    shop = shop_that_defers(tmp_path, "2099-12-24T08:00:00Z")
    with shop.provider() as (_, environment):
        shop.run("--mode", "live", **environment)
        (run,) = stored(shop)
        done = command(shop, "approve", run, "c2.0", **environment)
    assert (done.code, refunds(shop)) == (2, 0)
    message = 'no person is asked about "refund" (c2.0): a rule deferred it until 2099-12-24 08:00:00 UTC'
    assert done.err == f"run.invalid_state: {message}\n  → agentrun resume {run} asks the rule again\n"


def test_rule_without_until_is_asked_again_by_every_resume(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.edit(
        "shop.yaml", RULE, "{id: pays, allow: refund}\n    - {id: night, defer: refund, when: now.getHours() >= 0}"
    )
    with shop.provider() as (_, environment):
        assert shop.run("--mode", "live", **environment).code == 8
        (run,) = stored(shop)
        assert due(shop) == [], "the rule would defer it again"
        assert resume(shop, run, **environment).code == 8
    assert journal(shop, run).count('"ruling":"defer"') == 2
    assert refunds(shop) == 0


def test_condition_about_the_time_decides(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    rules = "{id: pays, allow: refund}\n    - {id: over, deny: refund, when: \"now > timestamp('%s')\"}"
    shop.edit("shop.yaml", RULE, rules % "2020-01-01T00:00:00Z")
    with shop.provider() as (_, environment):
        denied = shop.run("--mode", "live", **environment)
        shop.edit("shop.yaml", "2020-01-01", "2099-01-01")
        allowed = shop.run("--mode", "live", **environment)
    assert (denied.code, allowed.code, refunds(shop)) == (0, 0, 1), denied.err + allowed.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "name a RUN, or use --due"),
        (("5f0c", "--due"), "--due continues all runs: name no RUN"),
        (("--due", "--with-package", "shop.yaml"), "--with-package continues one run"),
    ],
)
def test_resume_needs_a_run_or_due(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    done = resume(Project(tmp_path), *args)
    assert (done.code, message in done.err) == (2, True), done.err


def test_due_is_not_combined_with_a_status(tmp_path: Path) -> None:
    done = agentrun("runs", "--due", "--status", "waiting", cwd=Project(tmp_path).root)
    assert (done.code, "--due cannot be combined with --status" in done.err) == (2, True), done.err
