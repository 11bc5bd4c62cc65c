"""Recording and replaying through the real command, against a real server and with tools that leave a trace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from agentrun.cassette.file import load_cassette
from agentrun.journal.canonical import canonical
from agentrun.journal.storage import read_journal_file

from ..servers import closed_port
from .command import SCRIPT, CommandResult
from .shop_project import KEY, STORY, Project

BOTH = ["look 1042", "refund 1042 20"]


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return Project(tmp_path)


def canonical_journal(path: Path) -> str:
    return canonical(read_journal_file(path))


def test_replay_repeats_the_recorded_run_without_executing_tools(shop: Project) -> None:
    recorded = shop.record("--journal", "live.jsonl")
    assert (recorded.code, recorded.out) == (0, "Done.\n")
    assert recorded.err.splitlines()[0].startswith(
        "record: cassettes/shop/default.yaml (case default; requests go to openai"
    )
    assert shop.traces() == BOTH
    replayed = shop.run("--journal", "replay.jsonl")
    assert (replayed.code, replayed.out) == (0, "Done.\n")
    assert replayed.err.splitlines()[0] == "replay: cassettes/shop/default.yaml (case default; nothing is sent)"
    assert shop.traces() == BOTH, "nothing was executed again"
    assert canonical_journal(shop.root / "live.jsonl") == canonical_journal(shop.root / "replay.jsonl")
    assert yaml.safe_load((shop.root / "shop.cases.yaml").read_text())["cases"] == [{"name": "default"}]


def test_cassette_has_all_interactions_and_metadata_but_no_key(shop: Project) -> None:
    shop.record()
    cassette = load_cassette(shop.cassette)
    assert [each.call.url for each in cassette.interactions] == [
        "https://api.openai.com/v1/chat/completions",
        "tool://look",
        "https://api.openai.com/v1/chat/completions",
        "https://api.openai.com/v1/chat/completions",
        "approval://refund",
        "tool://refund",
        "https://api.openai.com/v1/chat/completions",
    ]
    assert [each.reply.status for each in cassette.interactions] == [200, 200, 429, 200, 200, 200, 200]
    starts = [each.start for each in cassette.interactions]
    assert starts == sorted(starts, key=lambda start: start or 0)
    assert len(cassette.interactions[0].chunks) > 3
    about = cassette.metadata
    assert (about["spec"], about["case"], about["params"]) == ("shop.yaml", "default", {"order": "1042"})
    assert about["where"] == [
        "https://api.openai.com/v1, sent to 127.0.0.1 by OPENAI_BASE_URL (a scripted provider: no model was asked)"
    ]
    assert set(about["sections"]) >= {"instructions", "tools", "policy"}
    assert KEY not in shop.cassette.read_text()


def test_a_new_case_needs_a_name(shop: Project) -> None:
    with shop.provider() as (server, environment):
        refused = shop.run("Is 1042 late?", "--mode", "record", "--yes", "--approve", "all", **environment)
        assert (refused.code, "--case NAME" in refused.err, server.requests) == (2, True, [])
        named = shop.run(
            "Is 1042 late?", "--case", "late", "--mode", "record", "--yes", "--approve", "all", **environment
        )
    assert named.code == 0, named.err
    cases = yaml.safe_load((shop.root / "shop.cases.yaml").read_text())["cases"]
    assert cases == [{"name": "late", "input": "Is 1042 late?"}]
    assert "case late" in shop.run("Is 1042 late?").err


def test_the_same_recording_command_works_twice(shop: Project) -> None:
    command = ("Is 1042 late?", "--case", "late", "--param", "order=1042")
    shop.record(*command)
    cases, recorded = (shop.root / "shop.cases.yaml").read_bytes(), shop.root / "cassettes" / "shop" / "late.yaml"
    recorded.write_text("damaged")
    shop.record(*command)
    assert (shop.root / "shop.cases.yaml").read_bytes() == cases
    assert load_cassette(recorded).metadata["case"] == "late"
    assert shop.run(*command).err.startswith("replay: cassettes/shop/late.yaml (case late;")


OTHER_MESSAGE = 'message is "Is 1042 late?" in the case, "Is 7 late?" in this command'
OTHER_ORDER = 'param order is "1042" in the case, "7" in this command'


@pytest.mark.parametrize(
    ("command", "difference"),
    [
        (["Is 7 late?"], OTHER_MESSAGE),
        (["--param", "order=7"], OTHER_ORDER),
        (["Is 7 late?", "--param", "order=7"], f"{OTHER_MESSAGE}; {OTHER_ORDER}"),
    ],
    ids=["message", "param", "both"],
)
def test_recording_a_case_with_other_values_is_refused(shop: Project, command: list[str], difference: str) -> None:
    shop.recorded("Is 1042 late?", "--case", "late")
    before = (shop.root / "cassettes" / "shop" / "late.yaml").read_bytes()
    with shop.provider() as (server, environment):
        done = shop.run(*command, "--case", "late", "--mode", "record", "--yes", "--approve", "all", **environment)
        assert server.requests == []
    assert (done.code, done.out) == (2, ""), done.err
    assert f'input.rejected: case "late" exists and has other values: {difference}\n' in done.err
    assert "use another name with --case, or edit the case in shop.cases.yaml" in done.err
    assert (shop.root / "cassettes" / "shop" / "late.yaml").read_bytes() == before


def test_a_message_with_a_secret_is_recorded_twice(shop: Project) -> None:
    """The case has a placeholder where the command has the key: these are no other values."""
    command = (f"Is my key {KEY}?", "--case", "secret", "--mode", "record", "--yes", "--approve", "all")
    for _ in range(2):
        with shop.provider() as (_, environment):
            assert shop.run(*command, **environment).code == 0
    assert KEY not in (shop.root / "shop.cases.yaml").read_text()


def test_comments_of_the_cases_stay(shop: Project) -> None:
    before = '# mine\nagentrun: "1"\ncases:\n  - name: first   # keep me\n    input: Hello\n'
    (shop.root / "shop.cases.yaml").write_text(before)
    shop.record("--case", "second", "--param", "order=7")
    after = (shop.root / "shop.cases.yaml").read_text()
    assert after == before + "  - name: second\n    params:\n      order: '7'\n"


def test_cases_file_in_flow_style_is_not_changed(shop: Project) -> None:
    before = 'agentrun: "1"\ncases: [{name: first, input: Hello}]\n'
    (shop.root / "shop.cases.yaml").write_text(before)
    done = shop.record("--case", "second", "--param", "order=7")
    assert (shop.root / "shop.cases.yaml").read_text() == before
    assert "add this to shop.cases.yaml" in done.err
    assert "name: second" in done.err


def test_a_changed_prompt_is_explained_and_never_sent(shop: Project) -> None:
    shop.recorded()
    shop.edit("prompt.md", "Be brief.", "Be kind.")
    with shop.provider() as (server, environment):
        done = shop.run(**environment)
        assert server.requests == []
    assert (done.code, done.out) == (3, "")
    assert done.err.count("cassette.miss") == 1, "one error, told once"
    for words in ("turn 1", "prompt.md line 2", "Be brief.", "Be kind.", "the template changed", "--record new"):
        assert words in done.err
    (last,) = [line for line in shop.run("--json").lines() if "outcome" in line]
    fields = last["outcome"]["fault"]["fields"]
    assert (fields["turn"], fields["nearest"], last["outcome"]["exit"]) == (1, 1, 3)
    assert fields["differences"][0]["kind"] == "instructions"


def test_a_changed_param_is_named(shop: Project) -> None:
    shop.recorded()
    shop.edit("shop.yaml", 'default: "1042"', 'default: "7001"')
    done = shop.run("--case", "default")
    assert "params.order changed" in done.err, done.err


def test_record_from_n_keeps_the_interactions_before_n(shop: Project) -> None:
    shop.recorded()
    before = load_cassette(shop.cassette)
    shop.edit("desk.py", 'return "paid"', 'return "paid twice"')
    with shop.provider(STORY.replace("Done.", "All done.")) as (server, environment):
        done = shop.run("--record", "from:6", "--yes", "--approve", "all", **environment)
        assert [seen.turn for seen in server.requests] == [3], "only the last turn is asked again"
    assert (done.code, done.out) == (0, "All done.\n"), done.err
    after = load_cassette(shop.cassette)
    assert [replace(each, line=0) for each in after.interactions[:5]] == [
        replace(each, line=0) for each in before.interactions[:5]
    ]
    assert after.interactions[5].reply.body == b"paid twice"
    assert after.metadata["recorded_at"] == before.metadata["recorded_at"]
    (line,) = after.metadata["history"]
    assert (line["kept"], line["recorded"]) == (5, 2)
    assert shop.run().out == "All done.\n"


def test_record_new_asks_nothing_if_all_interactions_match(shop: Project) -> None:
    shop.recorded()
    shop.edit("desk.py", 'return "paid"', 'return "paid twice"')
    with shop.provider() as (server, environment):
        done = shop.run("--record", "new", "--yes", "--approve", "all", **environment)
        assert (done.code, server.requests) == (0, []), "the results are on the cassette, so nothing differs"


@pytest.mark.parametrize("how", ["from:0", "from:", "from:x", "some", "from:99"])
def test_invalid_record_value_is_refused(shop: Project, how: str) -> None:
    shop.recorded()
    before = shop.cassette.read_bytes()
    with shop.provider() as (server, environment):
        done = shop.run("--record", how, "--yes", **environment)
        assert (done.code, server.requests) == (2, [])
    assert shop.cassette.read_bytes() == before


@pytest.mark.parametrize(
    "args",
    [
        ("--mode", "replay", "--record", "all"),
        ("--mode", "live", "--record", "new"),
        ("--live-tools", "--live-model"),
        ("--live-tools", "--mode", "record"),
    ],
)
def test_conflicting_options_are_refused(shop: Project, args: tuple[str, ...]) -> None:
    shop.record()
    assert shop.run(*args).code == 2


def test_a_failing_provider_does_not_replace_a_recording(shop: Project) -> None:
    shop.record()
    before = shop.cassette.read_bytes()
    refusal = 'agentrun: "1"\nturns: [{text: x, faults: [{status: 401, times: 9}]}]\n'
    with shop.provider(refusal) as (_, environment):
        kept = shop.run("--mode", "record", "--yes", **environment)
        assert (kept.code, "not recorded: " in kept.err) == (6, True)
        assert shop.cassette.read_bytes() == before
        again = shop.run("--record", "all", "--yes", **environment)
        assert (again.code, shop.cassette.read_bytes()) == (6, before)
        shop.expect_outcome("provider.fatal")
        meant = shop.run("--record", "all", "--yes", **environment)
    assert (meant.code, "the run failed" in meant.err) == (6, True)
    replayed = shop.run()
    assert (replayed.code, "this failure was recorded" in replayed.err) == (6, True)


def record_failure(shop: Project, story: str | None, *args: str) -> CommandResult:
    """Record with a provider that plays this script. None: there is no server at the address."""
    args = (*args, "--mode", "record", "--yes")
    if story is None:
        address = f"http://127.0.0.1:{closed_port()}/v1"
        return shop.run(*args, OPENAI_API_KEY=KEY, OPENAI_BASE_URL=address)
    with shop.provider(story) as (_, environment):
        return shop.run(*args, **environment)


WRONG_SETTINGS = {
    "wrong port": None,
    "wrong key": 'agentrun: "1"\nturns: [{text: x, faults: [{status: 401, times: 9}]}]\n',
    "wrong path": 'agentrun: "1"\nturns: [{text: x, faults: [{status: 404, times: 9}]}]\n',
}


@pytest.mark.parametrize("mistake", WRONG_SETTINGS)
def test_first_recording_with_wrong_settings_leaves_no_cassette_and_no_case(shop: Project, mistake: str) -> None:
    failed = record_failure(shop, WRONG_SETTINGS[mistake], "A new question", "--case", "new")
    assert failed.code == 6, failed.err
    assert "not recorded: the run failed with provider." in failed.err
    assert "recorded: cassettes" not in failed.err
    assert not shop.cassette.with_name("new.yaml").exists()
    assert not (shop.root / "shop.cases.yaml").exists()


def test_only_one_process_records_a_cassette(shop: Project) -> None:
    slow = STORY.replace("text: I look it up.", "text: I look it up.\n    faults: [{delay: 600s}]")
    with shop.provider(slow) as (server, environment):
        first = subprocess.Popen(
            [SCRIPT, "shop.yaml", "--mode", "record", "--yes", "--approve", "all"],
            cwd=shop.root,
            env={"PATH": os.environ["PATH"], **environment},
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until(lambda: bool(server.requests))
            second = shop.run("--mode", "record", "--yes", "--approve", "all", **environment)
            assert (second.code, "another process is recording" in second.err) == (7, True)
            assert len(server.requests) == 1, "it was refused before it asked anything"
        finally:
            first.kill()
            first.wait()
        assert not shop.cassette.exists()
    shop.record()  # the lock of a killed process is free at once


def _wait_until(holds: Any) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


DIE = """
import os, signal, sys
{where}
from agentrun.cli import main
sys.argv[:] = {argv!r}
main()
"""
POINTS = {
    "before the file": (
        "from agentrun.engine import recording\nrecording.save_cassette = lambda *a: os.kill(os.getpid(), 9)"
    ),
    "before it is on the disk": "os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)",
    "before it is the file": "os.replace = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_leaves_the_old_file_whole(shop: Project, point: str) -> None:
    shop.recorded()
    before = shop.cassette.read_bytes()
    argv = ["agentrun", "shop.yaml", "--record", "all", "--yes", "--approve", "all"]
    with shop.provider(STORY.replace("Done.", "Other.")) as (_, environment):
        died = subprocess.run(
            [sys.executable, "-c", DIE.format(where=POINTS[point], argv=argv)],
            cwd=shop.root,
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            check=False,
        )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert shop.cassette.read_bytes() == before
    assert shop.run().out == "Done.\n"
    assert shop.record(story=STORY.replace("Done.", "Other.")).out == "Other.\n"
    assert sorted(path.name for path in shop.cassette.parent.iterdir()) == ["default.yaml"], "nothing is left behind"


def test_a_full_disk_leaves_the_old_file_whole(shop: Project) -> None:
    shop.recorded()
    before = shop.cassette.read_bytes()
    with shop.provider() as (_, environment):
        command = f"ulimit -f 2; exec {SCRIPT} shop.yaml --record all --yes --approve all"
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=shop.root,
            env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "AGENTRUN_STORE": "none", **environment},
            capture_output=True,
            check=False,
        )
    assert (done.returncode, b"storage.failed" in done.stderr) == (7, True), done.stderr
    assert done.stdout == b"Done.\n", "the answer that was paid for is told all the same"
    assert shop.cassette.read_bytes() == before


@pytest.mark.parametrize("obstacle", ["a file", "a folder", "a pipe"])
def test_unwritable_cassette_is_refused_before_any_request(shop: Project, obstacle: str) -> None:
    if obstacle == "a file":
        (shop.root / "cassettes").touch()
    elif obstacle == "a folder":
        shop.cassette.mkdir(parents=True)
    else:
        shop.cassette.parent.mkdir(parents=True)
        os.mkfifo(shop.cassette)
    with shop.provider() as (server, environment):
        done = shop.run("--mode", "record", "--yes", "--approve", "all", **environment)
        assert (done.code, "storage.failed" in done.err, server.requests) == (7, True, [])
    assert shop.traces() == []


# --- one axis live -----------------------------------------------------------------------------------------------


def test_live_tools_execute_tools_and_replay_the_model(shop: Project) -> None:
    shop.recorded()
    with shop.provider() as (server, environment):
        done = shop.run("--live-tools", "--approve", "all", **environment)
        assert server.requests == []
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert done.err.startswith("replay with live tools: the model from cassettes/shop/default.yaml")
    assert shop.traces() == BOTH * 2
    assert shop.run("--live-tools").code == 3, "nobody approves, so the model would be told otherwise: a miss"
    assert shop.traces() == [*BOTH * 2, "look 1042"], "and what was not approved was not executed"


def test_live_model_asks_the_model_and_replays_the_tools(shop: Project) -> None:
    shop.recorded()
    with shop.provider(STORY.replace("Done.", "Done again.")) as (server, environment):
        done = shop.run("--live-model", **environment)
        assert [seen.status for seen in server.requests] == [200, 429, 200, 200]
    assert (done.code, done.out) == (0, "Done again.\n"), done.err
    assert shop.traces() == BOTH, "tools came from the cassette"
    other = STORY.replace("amount: 20.0", "amount: 9000.0")
    with shop.provider(other) as (_, environment):
        miss = shop.run("--live-model", "--approve", "all", **environment)
    assert (miss.code, shop.traces()) == (3, BOTH), "a call that the cassette does not hold is never executed"


# --- determinism and the network ---------------------------------------------------------------------------------


def test_replay_is_independent_of_time_zone_locale_and_directory(shop: Project) -> None:
    shop.recorded()
    elsewhere = shop.root / "deep" / "er"
    elsewhere.mkdir(parents=True)
    journals = set()
    for n, (zone, language, cwd) in enumerate([("UTC", "C", shop.root), ("Asia/Tokyo", "de_DE.UTF-8", elsewhere)]):
        journal = shop.root / f"{n}.jsonl"
        environment = {"PATH": os.environ["PATH"], "TZ": zone, "LANG": language, "PYTHONHASHSEED": str(n)}
        command = [SCRIPT, str(shop.spec), "--journal", str(journal)]
        subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True)
        journals.add(journal.read_bytes())
    assert len(journals) == 1


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a way to cut the network off")
def test_a_replay_needs_no_network(shop: Project) -> None:
    shop.record("--journal", "live.jsonl")
    command = ["unshare", "-rn", SCRIPT, "shop.yaml", "--journal", "replay.jsonl"]
    done = subprocess.run(command, cwd=shop.root, env={"PATH": os.environ["PATH"]}, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"Done.\n"), done.stderr
    assert canonical_journal(shop.root / "live.jsonl") == canonical_journal(shop.root / "replay.jsonl")


FAULTS = {
    "nobody listens": None,
    "silence": 'agentrun: "1"\nturns: [{text: x, faults: [{delay: 30s, times: 9}]}]\n',
    "cut off": 'agentrun: "1"\nturns: [{text: Hello there, faults: [{cut: 150, times: 9}]}]\n',
    "not the protocol": 'agentrun: "1"\nturns: [{text: x, faults: [{status: 200, body: "<html>", times: 9}]}]\n',
    "always busy": 'agentrun: "1"\nturns: [{text: x, faults: [{status: 503, times: 9}]}]\n',
}


@pytest.mark.parametrize("fault", FAULTS)
def test_recorded_connection_failures_are_replayed(shop: Project, fault: str) -> None:
    """Recorded as they were, and the cassette alone fails the same way."""
    shop.edit(
        "shop.yaml", "retry: {first_delay: 1ms}", "limits: {stream_gap: 1s}\nretry: {attempts: 2, first_delay: 1s}"
    )
    shop.expect_outcome("provider.*")
    recorded = record_failure(shop, FAULTS[fault], "--journal", "live.jsonl")
    assert (recorded.code, "recorded: " in recorded.err) == (6, True), recorded.err
    replayed = shop.run("--journal", "replay.jsonl")
    assert replayed.code == 6
    assert canonical_journal(shop.root / "live.jsonl") == canonical_journal(shop.root / "replay.jsonl")
    assert len(load_cassette(shop.cassette).interactions) == (1 if fault == "not the protocol" else 2)


def test_replay_has_the_same_retry_waits_as_the_recording(shop: Project) -> None:
    """Jitter does not come from the run's id: otherwise the same failures could lead to another end."""
    shop.edit("shop.yaml", "first_delay: 1ms", "attempts: 3, first_delay: 600ms, max_wait: 1580ms")
    shop.expect_outcome("provider.*")
    story = 'agentrun: "1"\nturns: [{text: Yes, faults: [{status: 500, times: 2}]}]\n'
    with shop.provider(story) as (_, environment):
        shop.run("--mode", "record", "--yes", "--journal", "live.jsonl", **environment)
    shop.run("--journal", "replay.jsonl")
    waits = [_waits(shop.root / name) for name in ("live.jsonl", "replay.jsonl")]
    assert waits[0] == waits[1] != []


def _waits(journal: Path) -> list[int]:
    facts = [json.loads(line)["fact"] for line in journal.read_text().splitlines()]
    return [fact["wait"] for fact in facts if fact["type"] == "retry_planned"]


def test_recording_reports_added_cases_and_failed_calls(shop: Project) -> None:
    done = shop.record()
    assert "case default added to shop.cases.yaml" in done.err
    assert "failed" not in done.err
    shop.edit("desk.py", '    return "paid"', "    raise LookupError(order)")
    again = shop.record()
    assert "1 tool call failed: refund (tool.execution)" in again.err
    assert "added to" not in again.err


def test_record_new_after_a_miss_runs_no_tool_twice(shop: Project) -> None:
    shop.recorded()
    shop.edit("prompt.md", "Be brief.", "Be kind.")
    with shop.provider() as (_, environment):
        assert shop.run("--case", "default", "--record", "new", "--yes", **environment).code == 0
    assert (shop.traces(), shop.run().code) == (BOTH, 0), "and the recorded approval still counts"
