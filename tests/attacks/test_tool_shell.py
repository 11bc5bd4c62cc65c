"""Attacks on shell tools (THREATS 52 to 58, faults 9 and 47), each through a whole run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrun.cassette.file import load_cassette
from agentrun.core.facts import RunStarted, ToolFinished
from agentrun.core.messages import text_of
from agentrun.journal.canonical import canonical
from agentrun.journal.storage import read_journal_file

from ..cli.command import SCRIPT, CommandResult
from ..cli.shop_project import Project
from ..tools.hostile_commands import HOSTILE, remaining_processes, script, token, wait_for_processes

TEXT = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}


class Shop(Project):
    """A project whose only tool is a command called `tool`."""

    def __init__(self, root: Path, argv: list[str], **more: Any) -> None:
        super().__init__(root)
        self.journal = root / "run.jsonl"
        tool = {"kind": "shell", "description": "Runs.", "argv": argv, "args": TEXT, "grace": "300ms", **more}
        spec = {
            "agentrun": "1",
            "name": "shop",
            "model": {"provider": "openai", "name": "gpt-4.1-mini"},
            "instructions": "Do it.",
            "input": "Go.",
            "tools": {"tool": tool},
            "policy": {"default": "allow"},
            "budgets": {"turns": 600, "tokens": "9M"},
            "guards": {"repeated_call": 1000, "repeated_batch": 1000},
        }
        self.spec.write_text(yaml.safe_dump(spec), encoding="utf-8")

    def live(self, *values: str, mode: str = "live") -> CommandResult:
        """A run in which the model calls the tool with each of the values."""
        with self.provider(story(*values)) as (_, environment):
            return self.run(
                "--mode", mode, *(["--yes"] if mode == "record" else []), "--journal", self.journal.name, **environment
            )

    def results(self) -> list[ToolFinished]:
        return [each.fact for each in read_journal_file(self.journal) if isinstance(each.fact, ToolFinished)]

    def read(self) -> list[str]:
        """What the model read."""
        return [text_of(each.parts) for each in self.results()]

    def faults(self) -> list[tuple[str, dict[str, Any]]]:
        found = [each.fault for each in self.results()]
        return [(each.code, {**each.fields}) for each in found if each is not None]


def story(*values: str) -> str:
    calls = [{"calls": [{"tool": "tool", "args": {"x": value}}]} for value in values]
    return yaml.safe_dump({"agentrun": "1", "turns": [*calls, {"text": "Done."}]})


PLANTS = [
    "x; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "x\ntouch pwned\n",
    "x && touch pwned",
    "| touch pwned",
    "> pwned",
    "'; touch pwned; '",
    "${IFS}touch${IFS}pwned",
    "*",
    "~",
    "{{ args.x }}",
]


def test_52_shell_syntax_stays_one_argument(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ["printf", "<%s>", "{{ args.x }}"])
    done = shop.live(*PLANTS)
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert shop.read() == [f"<{plant}>" for plant in PLANTS]
    assert not list(tmp_path.rglob("pwned"))


def test_52_shell_would_execute_the_same_text(tmp_path: Path) -> None:
    for plant in PLANTS[:4]:
        subprocess.run(f"printf '<%s>' {plant}", shell=True, cwd=tmp_path, check=False, capture_output=True)  # noqa: S602  # the mistake that is not made
        assert (tmp_path / "pwned").exists()
        (tmp_path / "pwned").unlink()


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["git", "{{ args.x }}", "log"], "-ccore.pager=touch pwned"),
        (["git", "grep", "{{ args.x }}"], "--open-files-in-pager=touch pwned;"),
        (["find", ".", "{{ args.x }}", "touch", "pwned", ";"], "-exec"),
        (["tar", "cf", "/dev/null", "{{ args.x }}", "shop.yaml"], "--checkpoint-action=exec=touch pwned"),
        (["sort", "{{ args.x }}", "shop.yaml"], "--output=pwned"),
        (["sh", "{{ args.x }}", "touch pwned"], "-c"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_54_an_argument_does_not_become_an_option(tmp_path: Path, argv: list[str], value: str) -> None:
    shop = Shop(tmp_path, argv)
    done = shop.live(value)
    assert done.code == 0, done.err
    assert shop.faults() == [("tool.execution", {"tool": "tool", "reason": "arguments"})]
    assert "begin with a dash" in shop.read()[0]
    assert not list(tmp_path.rglob("pwned"))


def test_54_dash_args_allows_an_argument_with_a_dash(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ["sort", "{{ args.x }}", "shop.yaml"], dash_args=True)
    shop.live("--output=pwned")
    assert (tmp_path / "pwned").exists()


def test_54_policy_matches_the_parsed_argument(tmp_path: Path) -> None:
    """A rule looks at a parsed argument: nothing can be hidden from it by writing a line differently."""
    shop = Shop(tmp_path, ["printf", "%s", "{{ args.x }}"])
    rules = [{"id": "no-push", "deny": "tool", "when": "args.x == 'push'"}]
    spec = yaml.safe_load(shop.spec.read_text())
    shop.spec.write_text(yaml.safe_dump({**spec, "policy": {"default": "allow", "rules": rules}}))
    shop.live("push", "pu''sh", "push ")
    assert shop.read() == ["pu''sh", "push "], "only what is the word itself is denied, and the others are no push"


@pytest.mark.parametrize("name", HOSTILE)
def test_55_hostile_command_leaves_no_process(tmp_path: Path, name: str) -> None:
    word = token()
    ends = name in {"ends by itself", "forks twice", "takes a session", "takes a session and lets go of the pipes"}
    shop = Shop(tmp_path, [*script(name, word), "{{ args.x }}"], timeout="60s" if ends else "500ms")
    done = shop.live("a")
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert remaining_processes(word) == []
    (finished,) = shop.results()
    assert (finished.fault and finished.fault.code) == (None if ends else "tool.timeout")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_55_stopped_agentrun_leaves_no_process(tmp_path: Path, number: int) -> None:
    word = token()
    shop = Shop(tmp_path, [*script("forks twice, takes a session, stays", word), "{{ args.x }}"])
    with shop.provider(story("a")) as (_, environment):
        run = subprocess.Popen(
            [SCRIPT, "shop.yaml", "--mode", "live"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert len(wait_for_processes(word, 2)) >= 2, "it runs"
        run.send_signal(number)
        run.wait(timeout=60)
    assert remaining_processes(word) == []


@pytest.mark.parametrize("line", ["yes", "yes >&2", "cat /dev/zero & yes >&2"])
def test_56_command_with_endless_output_is_stopped(tmp_path: Path, line: str) -> None:
    word = token()
    shop = Shop(tmp_path, ["sh", "-c", f"{line}; true", word, "{{ args.x }}"])
    done = shop.live("a")
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert shop.faults() == [("tool.execution", {"tool": "tool", "reason": "output"})]
    assert len(shop.read()[0]) < 60_000
    assert remaining_processes(word) == []


def test_58_working_directory_replaced_by_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    swap = tmp_path / "swap"
    swap.write_text(f'#!/bin/sh\npwd -P\ncd ..\nmv out was\nln -s "{outside}" out\ntouch was/$1\n')
    swap.chmod(0o755)
    shop = Shop(tmp_path, ["./swap", "{{ args.x }}"], cwd="out")
    done = shop.live("one", "two")
    assert done.code == 0, done.err
    first, second = shop.read()
    assert first == f"{tmp_path}/out\n"
    assert "is not a folder of the project, or is reached through a link" in second
    assert list(outside.iterdir()) == []


def test_command_gets_only_the_declared_variables(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ["env"], env={"A": "1"})
    done = shop.live("a")
    assert done.code == 0, done.err
    assert shop.read() == ["A=1\n"]


def test_secret_printed_by_a_command_is_in_no_file_or_output(tmp_path: Path) -> None:
    secret = "Zx81-correct-horse-battery"  # made up
    shop = Shop(tmp_path, ["sh", "-c", "echo $A; echo $A >&2; exit 3"], env={"A": "${SHOP_TOKEN}"})
    with shop.provider(story("a")) as (server, environment):
        done = shop.run(
            "--mode",
            "record",
            "--yes",
            "--approve",
            "all",
            "--journal",
            "run.jsonl",
            "--json",
            SHOP_TOKEN=secret,
            **environment,
        )
        asked = json.dumps([each.body.decode() for each in server.requests])
    kept = [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert secret not in "".join([done.out, done.err, asked, *kept])
    assert "[exit code 3]" in asked


def test_missing_command_stops_the_run_before_any_request(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ["no-such-command-here", "{{ args.x }}"])
    with shop.provider(story("a")) as (server, environment):
        done = shop.run("--mode", "live", **environment)
        assert server.requests == [], "found out before anything is asked"
    assert (done.code, "no-such-command-here" in done.err, "install it" in done.err) == (2, True, True), done.err


def test_program_path_is_journaled_and_kept_during_the_run(tmp_path: Path) -> None:
    """A command that puts another program before its own on the way changes nothing."""
    shop = Shop(tmp_path, ["sh", "-c", "echo $0; printf '#!/bin/sh\\necho other' > sh; chmod +x sh", "{{ args.x }}"])
    done = shop.live("a", "b")
    assert done.code == 0, done.err
    started = next(iter(read_journal_file(shop.journal))).fact
    assert isinstance(started, RunStarted)
    programs = started.programs
    assert isinstance(programs, dict)
    assert list(programs) == ["sh"]
    assert os.path.isabs(programs["sh"])
    assert shop.read() == ["a\n", "b\n"]


def test_fault_9_killed_command_is_a_fault_with_the_signal(tmp_path: Path) -> None:
    word = token()
    shop = Shop(tmp_path, ["sh", "-c", "echo begun; kill -KILL $$", word, "{{ args.x }}"])
    done = shop.live("a", "b")
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert shop.faults() == [("tool.execution", {"tool": "tool", "signal": "SIGKILL"})] * 2
    assert shop.read() == ["[killed by SIGKILL]\nbegun\n"] * 2


def test_replay_runs_no_command(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ["sh", "-c", 'echo "did $0" | tee -a trace.txt; exit 2', "{{ args.x }}"])
    recorded = shop.live("one", "two", mode="record")
    assert (recorded.code, shop.traces()) == (0, ["did one", "did two"]), recorded.err
    told = canonical(read_journal_file(shop.journal))
    assert [each.call.url for each in load_cassette(shop.cassette).interactions].count("tool://tool") == 2
    replayed = shop.run("--journal", shop.journal.name, PATH="/nowhere")
    assert (replayed.code, replayed.out) == (0, "Done.\n"), replayed.err
    assert shop.traces() == ["did one", "did two"], "nothing ran again, nor was the command looked for"
    assert canonical(read_journal_file(shop.journal)) == told
    assert "[exit code 2]" in shop.read()[0]
