"""Approvals that are answered later, or by another process: `agentrun approvals`, `approve` and `deny`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ..long_loops import times
from .cut_runs import PAYS, SPEC, Bank, wait_until
from .terminal_user import at_terminal

ASKS = SPEC.replace("{default: allow}", "{default: allow, rules: [{id: payments, ask: pay, reason: A person signs.}]}")
PAYS_AND_LOOKS = PAYS.replace(
    "[{tool: pay, args: {value: one}}]", "[{tool: pay, args: {value: one}}, {tool: look, args: {value: two}}]"
)
CHILD_ASKS = """\
agentrun: "1"
order: arrival
turns:
  - calls: [{tool: teller, args: {message: Pay.}}%s]
  - expect: {instructions: Be brief.}
    calls: [{tool: pay, args: {value: one}}]
  - text: Paid by the teller.
  - text: All done.
"""
BOSS = """\
agentrun: "1"
name: boss
model: {provider: openai, name: gpt-4.1-mini}
instructions: Delegate.
input: Pay.
tools:
  teller: {kind: agent, spec: bank.yaml, parallel: true}
  save: {kind: python, call: "bank:save", effect: idempotent, parallel: true}
policy: {default: allow}
budgets: {turns: 4}
"""


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path, ASKS)


def suspended_run(bank: Bank, *args: str, **env: Any) -> str:
    done = bank.command("bank.yaml", *args, **env)
    assert (done.code, done.out) == (8, ""), done.err
    return bank.run_ids()[-1]


def answers(bank: Bank, run: str) -> list[dict[str, Any]]:
    return [fact for fact in bank.facts(run) if fact["type"] == "approval_answered"]


def inbox(bank: Bank, run: str) -> list[str]:
    return [path.name for path in (bank.store / run / "inbox").iterdir()]


# --- a run that waits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [{}, {"CI": "true"}], ids=["alone", "ci"])
def test_question_suspends_the_run_and_shows_what_to_type(bank: Bank, env: dict[str, Any]) -> None:
    with bank.provider():
        done = bank.command("bank.yaml", "--mode", "live", **env)
    (run,) = bank.run_ids()
    assert (done.code, done.out) == (8, "")
    assert done.err.splitlines()[-4:] == [
        "suspended: the run waits for an approval of pay (c1.0)",
        "  → agentrun approvals    show exactly what would happen",
        f"  → agentrun approve {run} c1.0",
        f"  → agentrun deny {run} c1.0 --reason TEXT",
    ]
    assert (bank.kinds(run)[-1], bank.traces()) == ("approval_asked", [])
    assert "waits for an approval of pay (c1.0)" in bank.command("runs").out


@pytest.mark.parametrize("env", [{}, {"CI": "true"}], ids=["alone", "ci"])
def test_approve_none_denies_instead_of_waiting(bank: Bank, env: dict[str, Any]) -> None:
    with bank.provider():
        done = bank.command("bank.yaml", "--mode", "live", "--approve", "none", **env)
    assert (done.code, done.out, bank.traces()) == (0, "Paid.\n", [])
    assert "pay: denied by --approve none" in done.err


def test_file_answers_some_questions_and_the_others_suspend_the_run(bank: Bank) -> None:
    (bank.root / "answers.yaml").write_text("save: approved\n")
    with bank.provider():
        suspended_run(bank, "--approve", "answers.yaml")


@pytest.mark.parametrize("args", [("--mode", "record", "--yes"), ()], ids=["recorded", "not stored"])
def test_run_that_cannot_wait_does_not_suspend(bank: Bank, args: tuple[str, ...]) -> None:
    with bank.provider():
        done = bank.command("bank.yaml", *args, AGENTRUN_STORE=".agentrun" if args else "none")
    assert (done.code, done.out, bank.traces()) == (0, "Paid.\n", [])
    assert "pay needs approval, but there is no terminal and no --approve" in done.err


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--mode", "record", "--detach"), "--detach needs a live run that is stored"),
        (("--detach", "--approve", "ask"), "--approve ask asks at the terminal, and --detach does not"),
    ],
    ids=["recorded", "ask"],
)
def test_detach_is_refused_where_nobody_could_answer(bank: Bank, args: tuple[str, ...], text: str) -> None:
    with bank.provider() as server:
        done = bank.command("bank.yaml", *args)
        assert (done.code, server.requests) == (2, [])
    assert text in done.err


def test_detached_run_asks_nobody_at_the_terminal(bank: Bank) -> None:
    with bank.provider():
        shutil.copy(bank.root / "bank.yaml", bank.root / "shop.yaml")
        project: Any = bank
        with at_terminal(project, bank.environment, "--mode", "live", "--detach") as person:
            code, shown = person.end()
    assert code == 8
    assert "Go ahead?" not in shown
    assert "agentrun approve" in shown


# --- the list ------------------------------------------------------------------------------------------------------


def test_approvals_show_exactly_what_would_run(bank: Bank) -> None:
    assert bank.command("approvals").err == "nothing waits for an approval\n"
    with bank.provider(PAYS.replace("one", '"one\\u202e\\ntwo"')):
        run = suspended_run(bank)
        (line,) = bank.command("approvals", "--json").lines()
        shown = bank.command("approvals").out.splitlines()
    (asked,) = (fact for fact in bank.facts(run) if fact["type"] == "approval_asked")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("asked"))
    assert line == {
        "run": run,
        "call": "c1.0",
        "tool": "pay",
        "arguments": {"value": "one\u202e\ntwo"},
        "rule": "payments",
        "reason": "A person signs.",
        "question": asked["question"],
    }
    assert shown[0].startswith(f"{run} of bank, c1.0, asked at 20")
    assert shown[1:7] == [
        "approval needed: run the tool pay",
        "  rule      payments",
        "  reason    A person signs.",
        "  function  bank:pay",
        "  argument  value = 2 lines",
        '            1 "one\\u202e"',
    ]
    assert any(row.startswith("! ") for row in shown), "hidden characters are named"
    bound = f"--question {asked['question'][7:23]}"
    assert shown[-2:] == [
        f"  → agentrun approve {run} c1.0 {bound}",
        f"  → agentrun deny {run} c1.0 {bound} --reason TEXT",
    ]


def test_answered_and_finished_questions_are_not_listed(bank: Bank) -> None:
    with bank.provider():
        run = suspended_run(bank)
        assert bank.command("approve", run, "c1.0", "--no-resume").code == 0
        assert bank.command("approvals", "--json").lines() == []
        assert bank.command("resume", run).code == 0
        assert bank.command("approvals", "--json").lines() == []


# --- the answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "answer", "said"),
    [
        (("approve",), "approved", "approved by Ada"),
        (("approve", "--for-session"), "approved_for_session", "approved for the session by Ada"),
        (("deny", "--reason", "Not today."), "denied", "denied by Ada"),
    ],
    ids=["approve", "session", "deny"],
)
def test_answer_continues_the_run_and_has_its_exit_code(
    bank: Bank, words: tuple[str, ...], answer: str, said: str
) -> None:
    with bank.provider() as server:
        run = suspended_run(bank)
        done = bank.command(words[0], run, "c1.0", *words[1:], "--by", "Ada")
        request = str(server.requests[-1].body)
    assert (done.code, done.out) == (0, "Paid.\n"), done.err
    assert done.err.splitlines()[0] == f"pay (c1.0) of {run} is {said}"
    assert bank.traces() == ([] if answer == "denied" else ["pay one"])
    (fact,) = answers(bank, run)
    assert (fact["answer"], fact["by"], fact.get("reason")) == (
        answer,
        "Ada",
        "Not today." if answer == "denied" else None,
    )
    assert ("was not approved: the request was denied: Not today." in request) is (answer == "denied")
    assert "denied by Ada: Not today." in bank.command("show", run).out or answer != "denied"
    assert inbox(bank, run) == []
    for command in ("audit", "verify"):
        assert bank.command(command, run).code == 0


def test_answer_exits_as_the_run_ends(bank: Bank) -> None:
    again = PAYS.replace("  - text: Paid.", "  - calls: [{tool: pay, args: {value: two}}]\n  - text: Paid.")
    with bank.provider(again):
        run = suspended_run(bank)
        assert bank.command("approve", run, "c1.0").code == 8, "the next question"
        spec = (bank.root / "bank.yaml").read_text()
        assert bank.command("approve", run, "c2.0", "--json").lines()[-1]["outcome"]["exit"] == 0
    (bank.root / "bank.yaml").write_text(spec.replace('"bank:pay"}', '"bank:pay", on_denied: stop}'))
    with bank.provider():
        run = suspended_run(bank)
        done = bank.command("deny", run, "c1.0", "--reason", "No.")
    assert done.code == 4
    assert "approval.denied: pay was not approved: the request was denied: No." in done.err


def test_answer_without_resume_is_only_recorded(bank: Bank) -> None:
    with bank.provider() as server:
        run = suspended_run(bank)
        done = bank.command("approve", "-", "c1.0", "--no-resume", "--json")
        (line,) = done.lines()
        assert (line["run"], line["call"], line["answered"]) == (run, "c1.0", "approved")
        assert (bank.kinds(run)[-1], len(server.requests)) == ("approval_answered", 1)
        assert bank.command("resume", run).out == "Paid.\n"


def test_answer_to_a_closed_stale_or_unknown_question_is_refused(bank: Bank) -> None:
    with bank.provider():
        run = suspended_run(bank)
        other = bank.command("approve", run, "c1.0", "--question", "0" * 16)
        unknown = bank.command("deny", run, "c7.0")
        assert bank.command("approve", run, "c1.0", "--by", "Ada").code == 0
        before = (bank.store / run / "journal.jsonl").read_bytes()
        closed = bank.command("deny", run, "c1.0", "--by", "Bob")
        (line,) = bank.command("deny", run, "c1.0", "--json").lines()
        run = suspended_run(bank)
        assert bank.command("cancel", run).code == 0
        stale = bank.command("approve", run, "c1.0")
    assert [each.code for each in (other, unknown, closed, stale)] == [2] * 4
    assert "run.invalid_state: the question about pay (c1.0) is another one now: sha256:" in other.err
    assert 'does not ask about "c7.0"' in unknown.err
    assert 'the question about "pay" (c1.0) is already answered: approved by Ada' in closed.err
    assert 'the question about "pay" (c1.0) is no longer asked' in stale.err
    assert (line["call"], line["error"]["code"], line["error"]["fields"]["actual"]) == (
        "c1.0",
        "run.invalid_state",
        "closed",
    )
    assert (bank.store / bank.run_ids()[0] / "journal.jsonl").read_bytes() == before
    assert inbox(bank, run) == []


def test_bound_answer_needs_the_beginning_of_the_hash(bank: Bank) -> None:
    with bank.provider():
        run = suspended_run(bank)
        (line,) = bank.command("approvals", "--json").lines()
        assert bank.command("approve", run, "c1.0", "--question", line["question"][7:18]).code == 2
        assert bank.command("approve", run, "c1.0", "--question", line["question"][7:19]).code == 0


def test_question_with_another_package_is_another_question(bank: Bank) -> None:
    with bank.provider():
        run = suspended_run(bank)
        (before,) = bank.command("approvals", "--json").lines()
        spec = bank.root / "bank.yaml"
        spec.write_text(spec.read_text().replace("A person signs.", "Two persons sign."))
        assert bank.command("resume", run, "--with-package", "bank.yaml").code == 8
        (after,) = bank.command("approvals", "--json").lines()
        assert (after["reason"], after["call"]) == ("Two persons sign.", "c1.0")
        done = bank.command("approve", run, "c1.0", "--question", before["question"])
        assert (done.code, bank.traces()) == (2, [])
        assert bank.command("approve", run, "c1.0", "--question", after["question"]).code == 0


def test_approval_for_the_session_counts_in_that_session_only(bank: Bank) -> None:
    with bank.provider(PAYS + "".join(PAYS.splitlines(keepends=True)[2:])):
        run = suspended_run(bank, "--new-session", "ada")
        assert bank.command("approve", run, "c1.0", "--for-session").code == 0
        done = bank.command("bank.yaml", "--session", "ada")
        assert (done.code, len(bank.traces())) == (0, 2), done.err
        suspended_run(bank, "--new-session", "bob")
        suspended_run(bank)
    assert len(bank.traces()) == 2


@pytest.mark.parametrize(
    "words", [("approve",), ("deny",), ("settle", "--retry"), ("send",), ("cancel",)], ids=lambda words: words[0]
)
def test_untrusted_store_is_refused(bank: Bank, words: tuple[str, ...], tmp_path: Path) -> None:
    with bank.provider():
        run = suspended_run(bank)
        before = (bank.store / run / "journal.jsonl").read_bytes()
        call = () if words[0] == "cancel" else ("c1.0",)
        done = bank.command(words[0], run, *call, *words[1:], HOME=str(tmp_path / "other"))
    assert done.code == 7
    assert "storage.untrusted" in done.err
    assert ((bank.store / run / "journal.jsonl").read_bytes(), inbox(bank, run)) == (before, [])


# --- other processes -----------------------------------------------------------------------------------------------


def test_approval_after_the_owner_was_killed(bank: Bank) -> None:
    bank.hold("look")
    with bank.provider(PAYS_AND_LOOKS):
        run = bank.killed(lambda: bank.recorded("approval_asked")() and bank.traces() == ["look two"])
        bank.release("look")
        (line,) = bank.command("approvals", "--json").lines()
        assert (line["run"], line["call"]) == (run, "c1.0")
        done = bank.command("approve", run, "c1.0", "--by", "Ada")
    assert (done.code, done.out) == (0, "Paid.\n"), done.err
    assert sorted(bank.traces()) == ["look two", "look two", "pay one"]
    assert bank.command("audit", run).code == 0


def test_live_owner_takes_the_first_answer(bank: Bank) -> None:
    bank.hold("look")
    with bank.provider(PAYS_AND_LOOKS), bank.started() as owner:
        wait_until(lambda: bank.recorded("approval_asked")() and bank.traces() == ["look two"])
        (run,) = bank.run_ids()
        _refused_with_an_owner(bank, run)
        done = bank.command("approve", run, "c1.0", "--by", "Ada")
        assert (done.code, done.out) == (0, ""), done.err
        assert done.err.splitlines() == [
            f"pay (c1.0) of {run} is approved by Ada",
            f"another process works on {run} and continues it",
        ]
        late = bank.command("deny", run, "c1.0", "--by", "Bob")
        assert (late.code, inbox(bank, run)) == (2, [])
        assert "already answered: approved by Ada" in late.err
        assert owner.poll() is None
        bank.release("look")
        out, _ = owner.communicate(timeout=60)
    assert (owner.returncode, out) == (0, b"Paid.\n")
    assert sorted(bank.traces()) == ["look two", "pay one"]
    (fact,) = answers(bank, run)
    assert re.fullmatch(r"\d{19}-[0-9a-f]{16}", fact["message_id"])


def _refused_with_an_owner(bank: Bank, run: str) -> None:
    """The process that works on a run would not know these options, so nothing is recorded."""
    done = bank.command("approve", run, "c1.0", "--with-package", "bank.yaml")
    assert (done.code, inbox(bank, run), answers(bank, run)) == (9, [], []), done.err
    assert "wait until it ends and try again, or leave out --with-package" in done.err
    done = bank.command("deny", run, "c1.0", "--approve", "all", "--no-resume")
    assert (done.code, "--approve is for continuing the run" in done.err, answers(bank, run)) == (2, True, [])


def test_prompt_at_a_terminal_is_closed_by_an_answer_from_elsewhere(bank: Bank) -> None:
    shutil.copy(bank.root / "bank.yaml", bank.root / "shop.yaml")
    project: Any = bank
    with bank.provider(), at_terminal(project, bank.environment, "--mode", "live", rows=60) as person:
        person.until("Go ahead?")
        (run,) = bank.run_ids()
        (line,) = bank.command("approvals", "--json").lines()
        assert line["run"] == run
        done = bank.command("approve", run, "c1.0", "--by", "Ada")
        assert done.code == 0, done.err
        code, shown = person.end()
    assert (code, person.out) == (0, "Paid.\n")
    assert "this question is no longer asked" in shown
    assert "pay: approved by Ada" in shown


@pytest.mark.parametrize("is_owned", [False, True], ids=["free", "owned"])
def test_one_of_two_answers_at_once_wins_and_the_other_is_told(bank: Bank, is_owned: bool) -> None:
    bank.hold("look")
    with bank.provider(PAYS_AND_LOOKS):
        bank.killed(lambda: bank.recorded("approval_asked")() and bank.traces() == ["look two"])
        (run,) = bank.run_ids()
        saved = {name: (bank.store / run / name).read_bytes() for name in ("journal.jsonl", "head")}
        for number in range(times(4 if is_owned else 6, 100)):
            for name, data in saved.items():
                (bank.store / run / name).write_bytes(data)
            words = [("approve", "Ada"), ("approve", "Ada") if number % 2 else ("deny", "Bob")]
            if not is_owned:
                _race(bank, run, words)
                continue
            resumed = len(bank.traces()) + 1
            with bank.started("resume", run):
                wait_until(lambda count=resumed: len(bank.traces()) == count)  # type: ignore[misc]  # a default
                _race(bank, run, words)


def _race(bank: Bank, run: str, words: list[tuple[str, str]]) -> None:
    commands = [(word, run, "c1.0", "--by", by, "--no-resume", "--json") for word, by in words]
    started = [bank.start(*command) for command in commands]
    ended = [(each.communicate(timeout=60)[0], each.wait(60)) for each in started]
    assert sorted(code for _, code in ended) == [0, 2], ended
    (fact,) = answers(bank, run)
    won = next(json.loads(out) for out, code in ended if code == 0)
    lost = next(json.loads(out) for out, code in ended if code == 2)
    assert (won["answered"], won["by"]) == (fact["answer"], fact["by"])
    assert f"already answered: {fact['answer']} by {fact['by']}" in lost["error"]["message"]
    assert inbox(bank, run) == []


# --- sub-agents ----------------------------------------------------------------------------------------------------


def test_question_of_a_sub_agent_is_answered_in_its_run(bank: Bank) -> None:
    (bank.root / "boss.yaml").write_text(BOSS)
    with bank.provider(CHILD_ASKS % ""):
        done = bank.command("boss.yaml")
        (run,) = bank.run_ids()
        child = f"{run}.c1.0"
        assert done.code == 8
        assert f"  → agentrun approve {child} c1.0" in done.err.splitlines()
        (line,) = bank.command("approvals", "--json").lines()
        assert (line["run"], line["call"]) == (child, "c1.0")
        assert "agent     bank" in bank.command("approvals").out
        assert bank.command("approve", run, "c1.0").code == 2, "the call of the sub-agent itself"
        done = bank.command("approve", child, "c1.0", "--by", "Ada")
    assert (done.code, done.out, bank.traces()) == (0, "All done.\n", ["pay one"]), done.err
    assert len(answers(bank, child)) == 1


def test_sub_agent_that_sleeps_in_a_live_run_gets_its_answer(bank: Bank) -> None:
    """The sub-agent waits, while another call keeps its parent working."""
    (bank.root / "boss.yaml").write_text(BOSS)
    bank.hold("save")
    with bank.provider(CHILD_ASKS % ", {tool: save, args: {value: two}}"), bank.started("boss.yaml") as owner:
        wait_until(bank.recorded("child_suspended"))
        (run,) = bank.run_ids()
        done = bank.command("approve", f"{run}.c1.0", "c1.0", "--by", "Ada")
        assert done.code == 0, done.err
        assert "another process works on" in done.err
        bank.release("save")
        out, _ = owner.communicate(timeout=60)
    assert (owner.returncode, out) == (0, b"All done.\n")
    assert sorted(bank.traces()) == ["pay one", "save two"]
    assert bank.command("audit", run).code == 0
