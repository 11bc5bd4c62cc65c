"""`agentrun resume` and `settle`: runs cut by SIGKILL at exact places, and what the commands print about them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from agentrun.cli import resume
from agentrun.cli.run_files import working_project
from agentrun.core.facts import RULES_VERSION, RunResumed, ToolFinished
from agentrun.engine import driver

from ..servers import Server, WaitFor, head
from .command import SCRIPT
from .cut_runs import PAYS, SPEC, Bank, wait_until


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


def story(*turns: str) -> str:
    return "\n".join(['agentrun: "1"', "turns:", *(f"  - {turn}" for turn in turns), ""])


def calls(*tools: str) -> str:
    return f"calls: [{', '.join(f'{{tool: {tool}, args: {{value: {tool}{n}}}}}' for n, tool in enumerate(tools))}]"


def interrupted(bank: Bank, *tools: str) -> str:
    """A run that was killed inside these calls, which no longer wait."""
    bank.hold(*tools)
    run = bank.killed(lambda: len(bank.traces()) >= len(tools))
    bank.release(*tools)
    return run


# --- a call with an unknown outcome ----------------------------------------------------------------------------


def test_call_that_may_run_once_is_not_run_again_and_the_ways_on_are_shown(bank: Bank) -> None:
    with bank.provider():
        run = interrupted(bank, "pay")
        for _ in range(2):
            done = bank.command("resume", run)
            assert (done.code, done.out) == (8, "")
            lines = done.err.splitlines()
            assert f"resume: {run} of bank, after record" in lines[0]
            assert lines[-6] == "suspended: it is not known whether pay (c1.0) took effect"
            assert lines[-5].endswith(' UTC with {"value":"one"}; no result of it is known')
            ways = ["--retry          run it again", "--result TEXT    do not run it: TEXT is its result"]
            ways.append("--stop           do not run it: end the run")
            assert lines[-3:] == [f"  → agentrun settle {run} c1.0 {way}" for way in ways]
        assert "  pay (c1.0) was lost: it may or may not have run" in bank.command("show", run).out.splitlines()
    assert bank.traces() == ["pay one"]
    assert bank.kinds(run).count("work_lost") == 1


@pytest.mark.parametrize(
    ("way", "code", "out", "traces"),
    [
        (("--retry",), 0, "Paid.\n", 2),
        (("--result", "paid by hand"), 0, "Paid.\n", 1),
        (("--stop",), 8, "", 1),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("resumed", [True, False])
def test_settle_decides_and_continues(
    bank: Bank, way: tuple[str, ...], code: int, out: str, traces: int, resumed: bool
) -> None:
    with bank.provider() as server:
        run = interrupted(bank, "pay")
        if resumed:
            assert bank.command("resume", run).code == 8
        done = bank.command("settle", run, "c1.0", *way, "--by", "Ada")
        assert (done.code, done.out) == (code, out), done.err
        assert done.err.startswith(f"pay (c1.0) of {run} is settled by Ada: ")
        assert len(bank.traces()) == traces
        settled = next(fact for fact in bank.facts(run) if fact["type"] == "call_settled")
        assert (settled["how"], settled["by"]) == (way[0].removeprefix("--"), "Ada")
        assert bank.kinds(run)[-1] == "run_stopped"
        if way[0] == "--result":
            assert "paid by hand" in str(server.requests[-1].body)
        if way[0] == "--stop":
            assert "tool.indeterminate: it is not known whether the call of pay took effect" in done.err
        again = bank.command("resume", run)
        assert (again.code, again.out) == (code, out), "it is finished"
        assert bank.command("audit", run).code == 0
        assert bank.command("verify", run).code == 0


def test_settle_without_resume_only_records(bank: Bank) -> None:
    with bank.provider() as server:
        run = interrupted(bank, "pay")
        count = len(server.requests)
        done = bank.command("settle", "-", "c1.0", "--result", "ok", "--no-resume")
        assert (done.code, done.out, done.err.splitlines()[-1]) == (0, "", f"agentrun resume {run}")
        assert (len(server.requests), bank.kinds(run)[-1]) == (count, "call_settled")
        assert bank.command("resume", "-").out == "Paid.\n"
    assert bank.traces() == ["pay one"]


def test_settle_refuses_a_call_with_a_known_outcome_and_writes_nothing(bank: Bank) -> None:
    with bank.provider():
        assert bank.command("bank.yaml").code == 0
        (run,) = bank.run_ids()
        before = (bank.store / run / "journal.jsonl").read_bytes()
        for call in ("c1.0", "c7.0"):
            done = bank.command("settle", run, call, "--retry")
            assert (done.code, done.out) == (2, "")
            assert f'run.invalid_state: the call "{call}" is not open in this run' in done.err
            (line,) = bank.command("settle", run, call, "--retry", "--json").lines()
            assert (line["run"], line["call"], line["error"]["code"]) == (run, call, "run.invalid_state")
    assert (bank.store / run / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize("flags", [(), ("--retry", "--stop"), ("--retry", "--result", "x")], ids=" ".join)
def test_settle_needs_exactly_one_decision(bank: Bank, flags: tuple[str, ...]) -> None:
    done = bank.command("settle", "-", "c1.0", *flags)
    assert done.code == 2
    assert "use one of --retry, --result TEXT and --stop" in done.err


def test_settle_refuses_a_result_that_is_too_large(bank: Bank) -> None:
    done = bank.command("settle", "-", "c1.0", "--result", "x" * 60_000)
    assert done.code == 2
    assert "`parts` is larger than 50 KiB" in done.err


@pytest.mark.parametrize("tool", ["pay", "look"])
def test_same_command_names_the_call_that_may_have_taken_effect(bank: Bank, tool: str) -> None:
    """A call that may run again is not named."""
    with bank.provider(story(calls(tool), "text: Done.")):
        run = interrupted(bank, tool)
        done = bank.command("bank.yaml")
    named = f"{run} was interrupted: it is not known whether pay (c1.0) took effect\n  → agentrun resume {run}\n"
    assert (done.code, named in done.err) == (0, tool == "pay"), done.err


def test_same_journal_file_names_the_run_and_the_call(bank: Bank) -> None:
    with bank.provider(story(calls("pay"), "text: Done.")):
        bank.hold("pay")
        run = bank.killed(lambda: bool(bank.traces()), "bank.yaml", "--journal", "run.jsonl")
        done = bank.command("bank.yaml", "--journal", "run.jsonl")
    message = f"run.jsonl is the journal of {run}, which is not finished (pay (c1.0) has no result), and is not over"
    assert (done.code, message in done.err, f"→ agentrun resume {run}, or choose" in done.err) == (2, True, True)
    assert bank.traces() == ["pay pay0"]


# --- work that is done again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["look", "save"])
def test_reads_and_idempotent_calls_run_again_with_the_same_key(bank: Bank, tool: str) -> None:
    with bank.provider(story(calls(tool), "text: Done.")):
        run = interrupted(bank, tool)
        done = bank.command("resume", "-")
    assert (done.code, done.out) == (0, "Done.\n")
    assert f"{tool} (c1.0) was lost" in done.err
    assert f"→ {tool} runs again" in done.err
    assert bank.traces() == [f"{tool} {tool}0"] * 2
    keys = [fact["key"] for fact in bank.facts(run) if fact["type"] == "tool_started"]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_run_cut_in_a_stream_asks_again_and_has_nothing_of_the_first_reply(bank: Bank) -> None:
    slow = 'text: "A long answer, in pieces."\n    chunk: 4\n    faults: [{gap: 60s, drip: 200}]'
    with bank.provider(story(slow)) as server:
        run = bank.killed(lambda: bool(server.requests))
        done = bank.command("resume", run)
        assert len(server.requests) == 2
    assert (done.code, done.out) == (0, "A long answer, in pieces.\n")
    assert "the request was lost" in done.err
    assert bank.kinds(run).count("model_replied") == 1


def test_run_cut_in_a_batch_repeats_only_what_has_no_result(bank: Bank) -> None:
    """`look` and `save` have ended, `pay` has not."""
    bank.hold("pay")
    with bank.provider(story(calls("look", "save", "pay"), "text: Done.")):
        run = bank.killed(lambda: len(bank.traces()) == 3)
        bank.release("pay")
        assert bank.command("resume", run).code == 8
        done = bank.command("settle", run, "c1.2", "--result", "paid")
    assert (done.code, done.out) == (0, "Done.\n")
    assert sorted(bank.traces()) == ["look look0", "pay pay2", "save save1"]
    assert bank.kinds(run).count("results_given") == 1


CHILD = """\
agentrun: "1"
name: boss
model: {provider: openai, name: gpt-4.1-mini}
instructions: Delegate.
input: Pay.
tools:
  teller: {kind: agent, spec: bank.yaml}
policy: {default: allow}
budgets: {turns: 4}
"""
ASKS_CHILD = story("calls: [{tool: teller, args: {message: Pay.}}]", "text: All done.")


def statuses(bank: Bank) -> dict[str, str]:
    return {line["run"]: line["status"] for line in bank.command("runs", "--sub-agents", "--json").lines()}


def test_run_cut_in_a_sub_agent_continues_in_the_sub_agent(bank: Bank) -> None:
    (bank.root / "boss.yaml").write_text(CHILD)
    bank.hold("pay")
    expect = "expect: {instructions: Be brief.}\n    calls: [{tool: pay, args: {value: one}}]"
    turns = ["calls: [{tool: teller, args: {message: Pay.}}]", expect, "text: Paid by the teller.", "text: All done."]
    with bank.provider('agentrun: "1"\norder: arrival\n' + story(*turns).partition("\n")[2]):
        run = bank.killed(lambda: bool(bank.traces()), "boss.yaml")
        bank.release("pay")
        child = f"{run}.c1.0"
        done = bank.command("resume", run)
        assert done.code == 8
        assert f"suspended: it is not known whether pay (c1.0) of {child} took effect" in done.err
        assert f"  → agentrun settle {child} c1.0 --retry          run it again" in done.err
        assert statuses(bank) == {run: "waiting", child: "waiting"}
        assert bank.command("settle", child, "c1.0", "--result", "paid", "--no-resume").code == 0
        assert statuses(bank) == {run: "interrupted", child: "interrupted"}, "nobody has to decide any more"
        done = bank.command("resume", run)
        assert (done.code, done.out) == (0, "All done.\n"), done.err
        assert "\n      ← pay, result set by" in bank.command("show", run).out
        for name in (run, child):
            assert bank.command("audit", name).code == bank.command("verify", name).code == 0
        assert bank.command("show", child).out.startswith(f"bank · {child} · completed\n")
    assert bank.traces() == ["pay one"]
    assert bank.kinds(child)[-1] == bank.kinds(run)[-1] == "run_stopped"


COMPACTING = """\
agentrun: "1"
name: bank
model: {provider: openai, name: gpt-4.1-mini}
instructions: Be brief.
input: Pay.
tools:
  look: {kind: python, call: "bank:look", effect: read}
policy: {default: allow}
context: {overflow: compact, compaction: {keep: 1}}
budgets: {turns: 6}
"""


def test_run_cut_in_a_compaction_continues(tmp_path: Path) -> None:
    bank = Bank(tmp_path, COMPACTING)
    overflow = "{code: context_length_exceeded, message: too long, type: invalid_request_error}"
    turns = [
        calls("look"),
        calls("look").replace("look0", "again"),
        f"text: Too late.\n    faults: [{{status: 400, body: {{error: {overflow}}}}}, {{delay: 60s}}]",
        "text: A summary.",
        "text: Done.",
    ]
    with bank.provider('agentrun: "1"\norder: arrival\n' + story(*turns).partition("\n")[2]) as server:
        run = bank.killed(lambda: len(server.requests) == 4)
        asked = [fact for fact in bank.facts(run) if fact["type"] == "model_asked"]
        assert asked[-1]["purpose"] == "compact", asked
        done = bank.command("resume", run)
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert bank.traces() == ["look look0", "look again"]
    assert "context_compacted" in bank.kinds(run)


def test_run_cut_in_a_delivery_delivers_again_with_the_same_key(tmp_path: Path) -> None:
    held = threading.Event()
    with Server([WaitFor(held)], [head(200, ("Content-Length", "2")) + b"{}"]) as sink:
        sinks = f'sinks: {{hook: {{kind: http, url: "{sink.url}/in", private_network: true, delivery: required}}}}\n'
        bank = Bank(tmp_path, SPEC + sinks)
        with bank.provider(story("text: Done.")) as server:
            run = bank.killed(lambda: bool(sink.requests))
            done = bank.command("resume", run)
            held.set()
            assert len(server.requests) == 1, "the answer is there already"
        assert (done.code, done.out) == (0, "Done.\n"), done.err
        keys = [request.headers.get("idempotency-key") for request in sink.requests]
    assert len(keys) == 2
    assert keys[0] == keys[1] is not None
    assert "the delivery to hook was lost" in done.err


def test_run_killed_again_and_again_while_it_is_resumed(bank: Bank) -> None:
    with bank.provider(story(calls("look"), calls("save"), "text: Done.")):
        run = interrupted(bank, "look")
        for tool, count in (("look", 2), ("save", 3), ("save", 4)):
            bank.hold(tool)
            bank.killed(lambda count=count: len(bank.traces()) == count, "resume", run)  # type: ignore[misc]  # bound now
            bank.release(tool)
        done = bank.command("resume", run)
    assert (done.code, done.out) == (0, "Done.\n")
    assert bank.kinds(run).count("run_resumed") == 4
    assert bank.kinds(run).count("run_stopped") == 1
    assert bank.command("verify", run).code == 0


def test_torn_last_line_is_cut_off_kept_and_recorded(bank: Bank) -> None:
    with bank.provider():
        run = interrupted(bank, "pay")
        journal = bank.store / run / "journal.jsonl"
        with journal.open("ab") as file:
            file.write(b'{"at":17')
        assert "is incomplete: it was cut off during the write" in bank.command("verify", run).err
        assert bank.command("show", run).code == 7
        bank.command("settle", run, "c1.0", "--result", "ok")
    resumed = [fact for fact in bank.facts(run) if fact["type"] == "run_resumed"]
    assert resumed[0]["torn"] == 8
    assert [path.read_bytes() for path in journal.parent.glob("torn-*")] == [b'{"at":17']
    assert bank.command("verify", run).code == 0


def test_records_cut_off_at_the_end_are_found(bank: Bank) -> None:
    """The last line is missing, at a record boundary: only the head file knows."""
    with bank.provider():
        run = interrupted(bank, "pay")
        journal = bank.store / run / "journal.jsonl"
        journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
        for command in (("resume", run), ("settle", run, "c1.0", "--retry"), ("verify", run), ("verify", journal)):
            done = bank.command(*map(str, command))
            assert done.code == 7, done.err
            assert "journal.truncated: the journal ends after record 4, but it had 5 records" in done.err
    assert bank.traces() == ["pay one"]


# --- runs that were not wholly live ----------------------------------------------------------------------------

STUBBED = """\
agentrun: "1"
cases:
  - {name: default}
  - name: stubbed
    stubs: {look: {result: stubbed}}
"""


@pytest.mark.parametrize(
    ("options", "held", "why"),
    [
        (("--live-tools",), "pay", "replies from a cassette (--live-tools or --live-model)"),
        (("--live-model",), "model", "replies from a cassette (--live-tools or --live-model)"),
        (("--case", "stubbed", "--mode", "live"), "pay", "the stubs or faults of a case"),
    ],
    ids=["tools", "model", "stubs"],
)
def test_run_with_stand_ins_is_not_continued_with_the_real_world(
    bank: Bank, options: tuple[str, ...], held: str, why: str
) -> None:
    """It would silently call the real provider, or real tools."""
    with bank.provider():
        assert bank.command("bank.yaml", "--mode", "record", "--yes").code == 0
    (bank.root / "bank.cases.yaml").write_text(STUBBED)
    (bank.root / "trace.txt").unlink()
    slow = PAYS.replace("args: {value: one}}]", "args: {value: one}}]\n    faults: [{delay: 60s}]", held == "model")
    with bank.provider(slow) as server:
        bank.hold("pay")
        run = bank.killed(lambda: bank.traces() if held == "pay" else server.requests, "bank.yaml", *options)
        bank.release("pay")
        before, count, traces = bank.facts(run), len(server.requests), bank.traces()
        for command in (("resume", run), ("settle", run, "c1.0", "--retry")):
            done = bank.command(*command)
            assert (done.code, done.out) == (2, ""), done.err
            assert f"run.invalid_state: the run {run} cannot be continued: it was started with {why}" in done.err
            assert f"see what is open with `agentrun show {run}`, then run the agent again" in done.err
            (line,) = bank.command(*command, "--json").lines()
            assert (line["run"], line["error"]["code"]) == (run, "run.invalid_state")
        assert (bank.facts(run), len(server.requests), bank.traces()) == (before, count, traces)
    shown = bank.command("show", run).out
    assert ("pay (c1.0)" if held == "pay" else "the request") in shown
    assert ("with the stubs or faults of a case" if "--case" in options else "partly from a cassette") in shown


def test_signal_cancels_a_run_that_cannot_be_resumed(bank: Bank) -> None:
    with bank.provider():
        assert bank.command("bank.yaml", "--mode", "record", "--yes").code == 0
        (bank.root / "trace.txt").unlink()
        bank.hold("pay")
        with bank.started("bank.yaml", "--live-tools") as running:
            wait_until(bank.traces)
            running.send_signal(signal.SIGTERM)
            bank.release("pay")
            assert running.wait(60) == 130
    assert bank.kinds(bank.run_ids()[-1])[-1] == "run_stopped"


# --- packages --------------------------------------------------------------------------------------------------


def test_stored_package_is_used_after_the_spec_changed(bank: Bank) -> None:
    with bank.provider() as server:
        run = interrupted(bank, "pay")
        (bank.root / "bank.yaml").write_text("agentrun: broken\n")
        done = bank.command("settle", run, "c1.0", "--result", "ok")
        assert (done.code, done.out) == (0, "Paid.\n"), done.err
        assert "Be brief." in str(server.requests[-1].body)


def test_other_package_is_recorded(bank: Bank) -> None:
    with bank.provider():
        run = interrupted(bank, "pay")
        first = bank.facts(run)[0]["package"]
        (bank.root / "bank.yaml").write_text(SPEC.replace("turns: 8", "turns: 9"))
        bank.command("settle", run, "c1.0", "--result", "ok", "--no-resume")
        done = bank.command("resume", run, "--with-package", "bank.yaml")
        assert (done.code, done.out) == (0, "Paid.\n")
        assert "the run is resumed, with another package" in done.err
        last = [fact["package"] for fact in bank.facts(run) if fact["type"] == "run_resumed"][-1]
        assert last not in (None, first)
        names = {path.name for path in (bank.store / run).glob("package*.json")}
        assert len(names) == 2
        assert bank.command("audit", run).code == 0, "with both packages"


def test_changed_tool_is_refused_with_the_option_that_accepts_it(bank: Bank) -> None:
    with bank.provider():
        run = interrupted(bank, "pay")
        bank.command("settle", run, "c1.0", "--result", "ok", "--no-resume")
        (bank.root / "bank.py").write_text((bank.root / "bank.py").read_text() + "\n# changed\n")
        done = bank.command("resume", run)
        assert done.code == 6
        assert "tool.drift" in done.err
        assert f"continue with it: agentrun resume {run} --with-package SPEC" in done.err
        assert bank.command("resume", run, "--with-package", "bank.yaml").out == "Paid.\n"


# --- finished, busy and unknown runs ---------------------------------------------------------------------------


def test_finished_run_prints_its_outcome_and_exits_with_its_code(bank: Bank) -> None:
    with bank.provider() as server:
        assert bank.command("bank.yaml").code == 0
        failed = bank.command("bank.yaml", "--set", "budgets.turns=1")
        count = len(server.requests)
        good, bad = bank.run_ids()
        done = bank.command("resume", good)
        assert (done.code, done.out) == (0, "Paid.\n")
        assert "completed in 2 turns" in done.err
        again = bank.command("resume", bad)
        assert (again.code, again.code) == (failed.code, 5)
        assert "budget.turns" in again.err
        last = bank.command("resume", good, "--json").lines()[-1]
        assert (last["run"], last["outcome"]["answer"]) == (good, "Paid.")
        assert len(server.requests) == count, "nothing is sent"
        assert bank.command("resume", good, OPENAI_API_KEY="").out == "Paid.\n", "nothing is needed for it"
        nothing = bank.command("resume", "-")
        assert (nothing.code, nothing.err) == (2, "run.not_found: no run is waiting to be resumed\n")


def test_run_that_another_process_works_on_is_busy(bank: Bank) -> None:
    bank.hold("pay")
    with bank.provider(), bank.started("bank.yaml") as running:
        wait_until(bank.traces)
        (run,) = bank.run_ids()
        done = bank.command("resume", run)
        assert done.code == 9, done.err
        assert f"session.busy: another process is working on the run {run}" in done.err
        last = bank.command("resume", run, "--json").lines()[-1]
        assert (last["run"], last["error"]["code"]) == (run, "session.busy")
        settled = bank.command("settle", run, "c1.0", "--retry")
        assert (settled.code, 'the call "c1.0" is running' in settled.err) == (2, True)
        assert bank.command("resume", "-").code == 2
        assert bank.command("show", run).code == 0, "looking is allowed"
        bank.release("pay")
        assert running.communicate(60)[0] == b"Paid.\n"
    assert bank.traces() == ["pay one"]


def test_beginnings_of_run_ids(bank: Bank) -> None:
    with bank.provider():
        run = interrupted(bank, "pay")
        for name in ("run-0123456789abcdef", "run-01234567ffffffff"):
            shutil.copytree(bank.store / run, bank.store / name)
        several = bank.command("resume", "0123")
        assert several.code == 2
        assert '2 runs begin with "0123": run-0123456789abcdef, run-01234567ffffffff' in several.err
        missing = bank.command("resume", "nothing")
        assert (missing.code, missing.err) == (
            2,
            'run.not_found: there is no run "nothing" in .agentrun\n  → agentrun runs lists the runs\n',
        )
        for word in (run, run[:12], run.removeprefix("run-")[:8]):
            assert bank.command("resume", word).code == 8, word
        for word in ("../x", "", "run-é", "."):
            assert bank.command("resume", word).code == 2, word


def test_dash_is_the_latest_run_that_is_not_finished(bank: Bank) -> None:
    with bank.provider():
        first = interrupted(bank, "pay")
        (bank.root / "trace.txt").unlink()
        second = interrupted(bank, "pay")
        assert first != second
        assert f"resume: {second} " in bank.command("resume", "-").err
        bank.command("settle", "-", "c1.0", "--stop")
        assert f"resume: {first} " in bank.command("resume", "-").err


@pytest.mark.parametrize("marker", [".agentrun", ".git", "pyproject.toml"])
def test_project_is_the_nearest_folder_with_a_store_settings_or_git(bank: Bank, marker: str) -> None:
    with bank.provider():
        run = interrupted(bank, "pay")
        inner = bank.root / "a" / "b"
        inner.mkdir(parents=True)
        assert bank.command("resume", run, cwd=inner).code == 8
        if marker == "pyproject.toml":
            (bank.root / "a" / marker).write_text("[tool.agentrun]\n")
        else:
            (bank.root / "a" / marker).mkdir()
        done = bank.command("resume", run, cwd=inner)
        assert (done.code, "run.not_found" in done.err) == (2, True), "a nearer project, without this run"
        (bank.root / "a" / "pyproject.toml").write_text("[project]\n")


def test_store_of_another_directory(bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = str(tmp_path_factory.mktemp("elsewhere") / "store")
    with bank.provider():
        bank.hold("pay")
        with bank.started("bank.yaml", AGENTRUN_STORE=other) as running:
            wait_until(bank.traces)
            running.kill()
            running.wait(60)
        bank.release("pay")
        assert not (bank.root / ".agentrun").exists()
        assert bank.command("resume", "-").code == 2
        assert bank.command("resume", "-", AGENTRUN_STORE=other).code == 8


@pytest.mark.parametrize("command", ["resume -", "settle - c1.0 --stop", "runs", "show -", "runs rm x", "resume --due"])
def test_without_a_store_there_are_no_runs(bank: Bank, command: str) -> None:
    with bank.provider(story("text: Done.")):
        assert bank.command("bank.yaml").code == 0
    done = bank.command(*command.split(), AGENTRUN_STORE="none")
    assert (done.code, done.out) == (2, "")
    assert "there are no stored runs and sessions, because AGENTRUN_STORE is none" in done.err


def test_run_of_another_project_in_a_shared_store_is_not_continued(bank: Bank, tmp_path: Path) -> None:
    """Its tools would run in the wrong folder."""
    shared, other = str(tmp_path / "shared"), tmp_path / "other"
    bank.environment["AGENTRUN_STORE"] = shared
    bank.root = tmp_path / "mine"
    for folder in (bank.root, other):
        folder.mkdir()
        Bank(folder)
    with bank.provider():
        bank.hold("pay")
        with bank.started() as running:
            wait_until(bank.traces)
            running.kill()
            running.wait(60)
        bank.release("pay")
        (run,) = (path.name for path in (tmp_path / "shared/runs").iterdir())
        done = bank.command("resume", run, cwd=other)
        assert (done.code, f"the run {run} was started in another project" in done.err) == (2, True), done.err
        assert bank.command("resume", "-", cwd=other).code == 2
        assert bank.command("resume", "--due", cwd=other).err == "no run is due\n"
        assert bank.command("show", run, cwd=other).code == 0
        assert bank.command("resume", "-").code == 8
        assert bank.command("settle", run, "c1.0", "--retry", cwd=other).code == 2
        assert bank.traces() == ["pay one"]
        assert bank.command("resume", run).out == "Paid.\n", "the decision was recorded"
    assert len(bank.traces()) == 2


@pytest.mark.parametrize("command", [("resume", "-"), ("settle", "-", "c1.0", "--retry")], ids=lambda words: words[0])
def test_store_that_another_person_made_is_not_resumed(bank: Bank, command: tuple[str, ...]) -> None:
    """As a repository can bring it along: its owner is not known to this user."""
    with bank.provider() as server:
        run = interrupted(bank, "pay")
        before, count = (bank.store / run / "journal.jsonl").read_bytes(), len(server.requests)
        done = bank.command(*command, HOME=str(bank.root / "other"))
        assert done.code == 7
        assert "storage.untrusted: the store .agentrun is not trusted" in done.err
        last = bank.command(*command, "--json", HOME=str(bank.root / "other")).lines()[-1]
        assert (last["run"], last["error"]["code"]) == (run, "storage.untrusted")
        assert bank.command("show", run, HOME=str(bank.root / "other")).code == 0, "looking is allowed"
        assert ((bank.store / run / "journal.jsonl").read_bytes(), len(server.requests)) == (before, count)
    assert bank.traces() == ["pay one"]


# --- sessions and copies ---------------------------------------------------------------------------------------


def test_interrupted_run_of_a_session_blocks_it_until_it_is_settled(bank: Bank) -> None:
    with bank.provider(PAYS + "  - text: Again.\n"):
        bank.hold("pay")
        run = bank.killed(lambda: bool(bank.traces()), "bank.yaml", "--new-session", "s")
        bank.release("pay")
        for _ in range(2):
            done = bank.command("bank.yaml", "--session", "s")
            assert done.code == 8
            said = f"session.unfinished: run {run} of this session was cut in `pay` (c1.0): resume or settle it"
            assert said in done.err
            assert f"agentrun resume {run}, or agentrun settle {run} c1.0" in done.err
            assert bank.command("resume", run).code == 8, "the second time the call is known to be lost"
        assert bank.command("settle", run, "c1.0", "--result", "ok").out == "Paid.\n"
        assert bank.command("bank.yaml", "Again?", "--session", "s").out == "Again.\n"
    assert bank.traces()[0] == "pay one"


def test_session_whose_run_was_cut_in_a_request_continues_after_it(bank: Bank) -> None:
    slow = 'text: "A long answer, in pieces."\n    chunk: 4\n    faults: [{gap: 60s, drip: 200}]'
    with bank.provider(story("text: First.", slow, "text: Third.")) as server:
        assert bank.command("bank.yaml", "One", "--new-session", "s").out == "First.\n"
        run = bank.killed(lambda: len(server.requests) == 2, "bank.yaml", "Two", "--session", "s")
        done = bank.command("bank.yaml", "Three", "--session", "s")
        assert (done.code, f"session.unfinished: run {run} of this session " in done.err) == (8, True), done.err
        assert bank.command("resume", run).out == "A long answer, in pieces.\n"
        assert bank.command("bank.yaml", "Three", "--session", "s").out == "Third.\n"
        said = [message["content"] for message in json.loads(server.requests[-1].body)["messages"]]
    assert said == ["Be brief.", "One", "First.", "Two", "A long answer, in pieces.", "Three"]


def test_unfinished_journal_is_not_overwritten(bank: Bank) -> None:
    with bank.provider():
        bank.hold("pay")
        bank.killed(lambda: bool(bank.traces()), "bank.yaml", "--journal", "run.jsonl")
        bank.release("pay")
        before = (bank.root / "run.jsonl").read_bytes()
        done = bank.command("bank.yaml", "--journal", "run.jsonl")
        assert done.code == 2
        assert (bank.root / "run.jsonl").read_bytes() == before
    assert bank.traces() == ["pay one"]


# --- JSON and completion ---------------------------------------------------------------------------------------


def test_json_objects_name_the_run_and_the_call(tmp_path: Path) -> None:
    bank = Bank(tmp_path, SPEC + "sinks: {out: {kind: stdout}}\n")
    with bank.provider():
        run = interrupted(bank, "pay")
        lines = bank.command("resume", run, "--json").lines()
        assert {line["run"] for line in lines} == {run}
        assert [line["call"] for line in lines if "call" in line] == ["c1.0"]
        assert "work_lost" in str(next(line for line in lines if "call" in line))
        assert list(lines[-1]) == ["run", "suspended"]
        assert lines[-1]["suspended"]["waits_for"] == ["c1.0"]
        lines = bank.command("settle", run, "c1.0", "--result", "ok", "--by", "ada", "--json").lines()
        assert lines[0] == {"run": run, "call": "c1.0", "settled": "result", "by": "ada"}
        assert {line["run"] for line in lines} == {run}
        assert [line["delivery"]["text"] for line in lines if "delivery" in line] == ["Paid."]
        assert lines[-1]["outcome"]["answer"] == "Paid."


@pytest.mark.parametrize("command", ["show", "verify", "audit", "resume", "settle", "runs rm"])
def test_json_error_about_an_unknown_run_names_it(bank: Bank, command: str) -> None:
    words = [*command.split(), "nope", *(["c1.0", "--stop"] if command == "settle" else []), "--json"]
    (line,) = bank.command(*words).lines()
    assert (line["run"], line["error"]["code"]) == ("nope", "run.not_found")


@pytest.mark.parametrize("command", ["resume", "settle", "show", "verify", "audit"])
def test_shell_completes_run_ids(bank: Bank, command: str) -> None:
    with bank.provider():
        assert bank.command("bank.yaml").code == 0
    (run,) = bank.run_ids()
    words = f"agentrun {command} run-"
    env: dict[str, Any] = {"_AGENTRUN_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "2"}
    done = bank.command(**env)
    assert f"plain,{run}" in done.out.splitlines()
    empty = bank.root / "empty"
    empty.mkdir()
    (empty / ".git").mkdir()
    assert "plain," not in bank.command(cwd=empty, **env).out


BASH = """
eval "$(agentrun completion bash)"
compopt() { :; }  # it is there only while a person types
COMP_WORDS=(agentrun show run-); COMP_CWORD=2
_agentrun_completion agentrun run- show
echo "${COMPREPLY[*]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_run_ids_where_a_file_is_possible(bank: Bank) -> None:
    with bank.provider():
        assert bank.command("bank.yaml").code == 0
    path = f"{Path(SCRIPT).parent}:{os.environ['PATH']}"
    options: dict[str, Any] = {"cwd": bank.root, "env": {"PATH": path}, "capture_output": True, "text": True}
    done = subprocess.run(["bash", "-c", BASH], check=True, **options)
    assert (done.stdout.split(), done.stderr) == (bank.run_ids(), "")


def test_help_of_resume_and_settle_has_examples(bank: Bank) -> None:
    for name in ("resume", "settle"):
        assert "Examples:" in bank.command(name, "--help").out


# --- planted ---------------------------------------------------------------------------------------------------


def test_check_detects_a_resume_that_forgets_a_lost_call(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the call for done. The tests above demand exit code 8."""

    def forget(log: Any, fingerprint: str) -> None:
        log.commit(RunResumed(fingerprint, RULES_VERSION))
        log.commit(ToolFinished("c1.0", ()))

    with bank.provider():
        run = interrupted(bank, "pay")
        monkeypatch.setattr(driver.RunLog, "take_over", forget)
        monkeypatch.chdir(bank.root)
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        for name, value in bank.environment.items():
            monkeypatch.setenv(name, value)
        options: dict[str, Any] = {
            "with_package": None,
            "approve": None,
            "detach": False,
            "grace": 0,
            "on_signal": "park",
        }
        options |= {"quiet": True, "no_color": True, "as_json": True}
        assert resume.resume_run(working_project(), run, options) != 8
