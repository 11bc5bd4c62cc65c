"""Recordings that are killed, parked or stopped by a full disk, and finished by `agentrun resume`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrun.cassette.file import load_cassette

from ..durability.recorded_trial import contents
from .command import SCRIPT
from .cut_runs import SPEC, Bank, wait_until

STORY = """\
agentrun: "1"
turns:
  - calls: [{tool: look, args: {value: one}}]
  - calls: [{tool: pay, args: {value: two}}]
  - calls: [{tool: save, args: {value: three}}]
  - text: Paid.
"""
RECORD = ("bank.yaml", "--mode", "record", "--yes")
ALL = ["look one", "pay two", "save three"]


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


def cassette(bank: Bank) -> Path:
    return bank.root / "cassettes" / "bank" / "default.yaml"


def log(bank: Bank, run: str) -> Path:
    return bank.store / run / "recording.jsonl"


def killed_in(bank: Bank, tool: str, *command: str) -> str:
    """A recording that was killed in a call of a tool. Its run."""
    bank.hold(tool)
    before = len(bank.traces())
    run = bank.killed(lambda: any(each.startswith(tool) for each in bank.traces()[before:]), *command or RECORD)
    bank.release(tool)
    return run


def whole_recording(bank: Bank) -> Any:
    """What an undisturbed recording has. Nothing of it is left."""
    assert bank.command(*RECORD).code == 0
    recorded = contents(load_cassette(cassette(bank)))
    cassette(bank).unlink()
    (bank.root / "bank.cases.yaml").unlink()
    (bank.root / "trace.txt").unlink()
    return recorded


@pytest.mark.parametrize("tool", ["look", "save"])
def test_killed_recording_is_finished_by_resume(bank: Bank, tool: str) -> None:
    with bank.provider(STORY):
        whole = whole_recording(bank)
    with bank.provider(STORY):
        run = killed_in(bank, tool)
        kept = [json.loads(line) for line in log(bank, run).read_bytes().splitlines()]
        assert kept[0]["cassette"] == "bank/default.yaml"
        assert [each["effect"] for each in kept[1:]] == ["m1.1", "c1.0", "m2.1", "c2.0", "m3.1"][: len(kept) - 1]
        assert not cassette(bank).exists()
        done = bank.command("resume", run)
    assert (done.code, done.out) == (0, "Paid.\n"), done.err
    assert done.err.splitlines()[0].endswith(", and record cassettes/bank/default.yaml")
    assert "recorded: cassettes/bank/default.yaml (7 interactions)" in done.err
    assert "case default added to bank.cases.yaml" in done.err
    assert contents(load_cassette(cassette(bank))) == whole
    assert not log(bank, run).exists()
    assert yaml.safe_load((bank.root / "bank.cases.yaml").read_text())["cases"] == [{"name": "default"}]
    replayed = bank.command("bank.yaml")
    assert (replayed.code, replayed.out) == (0, "Paid.\n"), replayed.err
    again = bank.command("resume", run)
    assert (again.code, again.out, "recorded:" in again.err) == (0, "Paid.\n", False)


def test_result_of_a_person_is_on_the_cassette(bank: Bank) -> None:
    with bank.provider(STORY):
        whole = whole_recording(bank)
    with bank.provider(STORY):
        run = killed_in(bank, "pay")
        refused = bank.command("send", run, "Hello?")
        assert (refused.code, "is being recorded" in refused.err) == (2, True), refused.err
        done = bank.command("settle", run, "c2.0", "--result", "pay is done")
    assert (done.code, done.out) == (0, "Paid.\n"), done.err
    assert contents(load_cassette(cassette(bank))) == whole
    assert bank.traces() == ALL, "nothing was paid twice"
    assert bank.command("bank.yaml").code == 0


@pytest.mark.parametrize("how", ["new", "from:3", "all"])
def test_recording_that_reuses_interactions_is_continued(bank: Bank, how: str) -> None:
    """The last two interactions are removed from the cassette."""
    with bank.provider(STORY):
        assert bank.command(*RECORD).code == 0
    (bank.root / "trace.txt").unlink()
    kept = cassette(bank).read_text().split("\n- request:")[:6]
    cassette(bank).write_text("\n- request:".join(kept) + "\n")
    before = cassette(bank).read_bytes()
    with bank.provider(STORY):
        run = killed_in(bank, "save", "bank.yaml", "--record", how, "--yes")
        assert cassette(bank).read_bytes() == before
        done = bank.command("resume", run)
    assert (done.code, done.out) == (0, "Paid.\n"), done.err
    done_again = {"new": [], "from:3": ["pay two"], "all": ["look one", "pay two"]}[how]
    assert bank.traces() == [*done_again, "save three", "save three"]
    recorded = load_cassette(cassette(bank))
    assert [each.request.url for each in recorded.interactions if each.request.method == "CALL"] == [
        "tool://look",
        "tool://pay",
        "tool://save",
    ]
    assert ("history" in recorded.metadata) == (how != "all")
    replayed = bank.command("bank.yaml")
    assert (replayed.code, replayed.out) == (0, "Paid.\n"), replayed.err


def test_cassette_that_another_command_recorded_is_not_replaced(bank: Bank) -> None:
    with bank.provider(STORY):
        run = killed_in(bank, "save")
    with bank.provider(STORY):
        assert bank.command(*RECORD).code == 0
        before, traces = cassette(bank).read_bytes(), bank.traces()
        done = bank.command("resume", run)
    assert (done.code, "another process has recorded default.yaml" in done.err) == (7, True), done.err
    assert (cassette(bank).read_bytes(), bank.traces()) == (before, traces)


def test_suite_recording_is_finished_by_resume(bank: Bank) -> None:
    (bank.root / "bank.cases.yaml").write_text('agentrun: "1"\ncases: [{name: default}]\n')
    with bank.provider(STORY):
        run = killed_in(bank, "save", "test", "bank.cases.yaml", "--record", "all", "--yes")
        done = bank.command("resume", run)
    assert (done.code, done.out) == (0, "Paid.\n"), done.err
    assert "recorded: .agentrun/recorded/bank/default.yaml (7 interactions)" in done.err
    assert bank.command("cassette", "accept", "bank.cases.yaml::default").code == 0
    assert bank.command("test", "bank.cases.yaml").code == 0


def test_run_of_a_recorded_conversation_is_not_continued(bank: Bank) -> None:
    cases = 'agentrun: "1"\ncases: [{name: default, turns: [Pay., Thanks.]}]\n'
    (bank.root / "bank.cases.yaml").write_text(cases)
    with bank.provider(STORY):
        run = killed_in(bank, "save", "test", "bank.cases.yaml", "--record", "all", "--yes")
        done = bank.command("resume", run)
    assert (done.code, "is a part of a recorded conversation" in done.err) == (2, True), done.err


def test_killed_recording_without_a_store_leaves_nothing(bank: Bank, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with bank.provider(STORY):
        bank.hold("save")
        with bank.started(*RECORD, AGENTRUN_STORE="none", TMPDIR=str(temporary)) as run:
            wait_until(lambda: "save three" in bank.traces())
            run.kill()
            run.wait(60)
        bank.release("save")
    assert ([*temporary.iterdir()], cassette(bank).exists(), bank.store.exists()) == ([], False, False)


# --- a full disk -------------------------------------------------------------------------------------------------


def test_recording_that_a_full_disk_stops_is_finished_by_resume(bank: Bank) -> None:
    with bank.provider(STORY):
        assert bank.command(*RECORD).code == 0
    before = cassette(bank).read_bytes()
    story = STORY.replace("text: Paid.", f"text: {'Paid. ' * 400}")
    with bank.provider(story):
        # The journal is smaller than the log, which has the replies as they were streamed.
        command = f"ulimit -f 24; exec {SCRIPT} bank.yaml --record all --yes"
        environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **bank.environment}
        stopped = subprocess.run(
            ["/bin/sh", "-c", command], cwd=bank.root, env=environment, capture_output=True, check=False
        )
        assert (stopped.returncode, b"storage.failed" in stopped.stderr) == (7, True), stopped.stderr
        run = bank.run_ids()[-1]
        assert bank.kinds(run)[-1] == "model_asked", "the reply that is not in the log is not in the journal"
        assert cassette(bank).read_bytes() == before
        assert [path.name for path in cassette(bank).parent.iterdir()] == ["default.yaml"]
        done = bank.command("resume", run)
    assert done.code == 0, done.err
    assert cassette(bank).read_bytes() != before
    assert bank.command("bank.yaml").code == 0


# --- values that are found late ------------------------------------------------------------------------------------

CUSTOMER = "Grace-Hopper-1906"
LATE = SPEC.replace(", stream: true", "") + "replay: {redact: [{name: customer, path: customer.name}]}\n"
LATE_STORY = f"""\
agentrun: "1"
turns:
  - text: I look for {CUSTOMER}.
    calls: [{{tool: look, args: {{value: "{CUSTOMER}"}}}}]
  - calls: [{{tool: save, args: {{value: '{{"customer": {{"name": "{CUSTOMER}"}}}}'}}}}]
  - calls: [{{tool: pay, args: {{value: two}}}}]
  - text: Paid.
"""


def test_value_that_is_found_late_is_not_in_the_log_of_a_killed_recording(tmp_path: Path) -> None:
    """The name is in the first interactions before a later one shows that it is one."""
    bank = Bank(tmp_path, LATE)
    with bank.provider(LATE_STORY):
        first = killed_in(bank, "look")
        assert CUSTOMER in log(bank, first).read_text(), "nothing says yet that it is a name"
    with bank.provider(LATE_STORY):
        run = killed_in(bank, "pay")
        kept = log(bank, run).read_text()
        assert (CUSTOMER in kept, "[redacted:customer]" in kept) == (False, True)
        done = bank.command("settle", run, "c3.0", "--result", "pay is done")
    assert (done.code, done.out) == (0, "Paid.\n"), done.err
    text = cassette(bank).read_text()
    assert (CUSTOMER in text, "[redacted:customer]" in text) == (False, True)
    assert bank.command("bank.yaml").code == 0
