"""Sub-agents through the real command, where parent and sub-agent have different providers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentrun.cassette.file import load_cassette
from agentrun.core.facts import ChildStarted, Record, RunStarted, RunStopped, ToolFinished
from agentrun.journal.canonical import canonical
from agentrun.journal.storage import read_journal_file
from agentrun.testing.provider import ScriptedProvider

from .command import SCRIPT, CommandResult, agentrun
from .shop_project import KEY

PARENT = """\
agentrun: "1"
name: desk
model: {provider: openai, name: gpt-4.1-mini, temperature: 0}
instructions: You lead.
input: "What does the report say?"
tools:
  reader: {kind: agent, spec: reader.yaml, params: {shelf: red}, parallel: true}
policy: {default: allow}
budgets: {turns: 6, tokens: 40k, tool_calls: 9, time: 1m}
"""
CHILD = """\
agentrun: "1"
name: reader
description: Reads a file and says what is in it.
model: {provider: anthropic, name: claude-haiku-4-5, temperature: 0, max_output_tokens: 1k}
params: {shelf: {type: string}, page: {type: integer}}
instructions: You read page {{ page }} of the {{ shelf }} shelf.
tools:
  read: {kind: python, call: "library:read", effect: read}
policy: {default: allow}
budgets: {turns: 4, tokens: 20k, time: 1m}
"""
LIBRARY = '''\
"""A library that leaves a trace."""
import time
from pathlib import Path

TRACE = Path(__file__).with_name("trace.txt")

def read(name: str, wait: float = 0) -> str:
    """Reads a file."""
    with TRACE.open("a") as file:
        file.write(f"read {name}\\n")
    time.sleep(wait)
    return f"{name}: all is well"
'''
LEADS = """\
agentrun: "1"
turns:
  - text: I ask the reader.
    calls: [{tool: reader, args: {message: "Read the report.", page: 7}}]
  - expect: {results: ["All is well."]}
    text: The report says that all is well.
"""
READS = """\
agentrun: "1"
turns:
  - expect: {instructions: "page 7 of the red shelf", contains: ["Read the report."]}
    calls: [{tool: read, args: {name: report.txt}}]
  - expect: {results: ["report.txt: all is well"]}
    text: All is well.
"""


class Desk:
    """A project with a parent and its child."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("desk.yaml", PARENT)
        self.put("reader.yaml", CHILD)
        self.put("library.py", LIBRARY)
        self.put("pyproject.toml", "[tool.agentrun]\n")

    def put(self, name: str, text: str) -> None:
        (self.root / name).write_text(text, encoding="utf-8")

    @contextmanager
    def providers(self, leads: str = LEADS, reads: str = READS) -> Iterator[dict[str, str]]:
        with ScriptedProvider(leads) as parent, ScriptedProvider(reads) as child:
            yield {
                "OPENAI_API_KEY": KEY,
                "ANTHROPIC_API_KEY": KEY,
                "OPENAI_BASE_URL": f"{parent.url}/v1",
                "ANTHROPIC_BASE_URL": child.url,
            }

    def run(self, *args: str, leads: str = LEADS, reads: str = READS) -> CommandResult:
        with self.providers(leads, reads) as environment:
            return agentrun("desk.yaml", *args, cwd=self.root, **environment)  # type: ignore[arg-type]  # variables

    def traces(self) -> list[str]:
        trace = self.root / "trace.txt"
        return trace.read_text(encoding="utf-8").splitlines() if trace.exists() else []

    def journal(self, name: str) -> tuple[Record, ...]:
        return tuple(read_journal_file(self.root / name))

    def canonical(self, name: str) -> str:
        """A journal with its children's nested in it."""
        root = self.journal(f"{name}.jsonl")
        children = {}
        for path in sorted(self.root.glob(f"{name}.c*.jsonl")):
            records = tuple(read_journal_file(path))
            started = records[0].fact
            assert isinstance(started, RunStarted)
            children[started.run] = records
        return canonical(root, children)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def stop_of(records: tuple[Record, ...]) -> RunStopped:
    stop = records[-1].fact
    assert isinstance(stop, RunStopped)
    return stop


def test_sub_agent_has_its_own_journal_file(desk: Desk) -> None:
    done = desk.run("--mode", "live", "--journal", "run.jsonl")
    assert (done.code, done.out) == (0, "The report says that all is well.\n"), done.err
    child = desk.journal("run.c1.0.jsonl")
    started = child[0].fact
    assert isinstance(started, RunStarted)
    assert (started.agent, started.params) == ("reader", {"page": 7, "shelf": "red"})
    assert started.parent is not None
    assert (started.parent.call, started.parent.depth) == ("c1.0", 1)
    assert stop_of(child).status == "completed"
    assert desk.traces() == ["read report.txt"]


def test_budget_share_and_spend_of_a_sub_agent_are_recorded(desk: Desk) -> None:
    desk.run("--mode", "live", "--journal", "run.jsonl")
    facts = [record.fact for record in desk.journal("run.jsonl")]
    (begun,) = [fact for fact in facts if isinstance(fact, ChildStarted)]
    (finished,) = [fact for fact in facts if isinstance(fact, ToolFinished)]
    assert begun.share.tool_calls == 8, "the child itself is one of nine"
    assert begun.share.tokens is not None
    assert 39_000 < begun.share.tokens < 40_000, "what the parent used is gone"
    assert finished.spent is not None
    assert (finished.spent.tokens, finished.spent.tool_calls) == (30, 1)
    done = desk.run("--mode", "live", "--json")
    outcome = json.loads(done.out.splitlines()[-1])["outcome"]
    assert (outcome["tokens"], outcome["tool_calls"], outcome["runs"]) == (60, 2, 1), "each counted once"


def test_output_shows_the_calls_of_the_sub_agent(desk: Desk) -> None:
    done = desk.run("--mode", "live")
    told = [line for line in done.err.splitlines() if "read" in line]
    assert any(line.startswith("      ") and "read" in line for line in told), done.err
    assert "All is well." not in done.out.splitlines()


def test_parent_and_sub_agent_share_one_cassette(desk: Desk) -> None:
    recorded = desk.run("--mode", "record", "--yes", "--journal", "live.jsonl")
    assert (recorded.code, "recorded: " in recorded.err) == (0, True), recorded.err
    urls = [each.call.url for each in load_cassette(desk.root / "cassettes/desk/default.yaml").interactions]
    assert [url.rpartition("/")[2] for url in urls] == ["completions", "messages", "read", "messages", "completions"]
    replayed = agentrun("desk.yaml", "--journal", "again.jsonl", cwd=desk.root)
    assert (replayed.code, replayed.out) == (0, recorded.out), replayed.err
    assert desk.traces() == ["read report.txt"], "nothing was executed again"
    assert desk.canonical("live") == desk.canonical("again")
    assert "agent: reader" in desk.canonical("again"), "nested"


def test_sub_agent_journals_of_an_earlier_run_are_removed(desk: Desk) -> None:
    desk.run("--mode", "record", "--yes", "--journal", "run.jsonl")
    assert (desk.root / "run.c1.0.jsonl").exists()
    plain = 'agentrun: "1"\nturns: [{text: I know it.}]\n'
    done = desk.run("--mode", "live", "--journal", "run.jsonl", leads=plain)
    assert done.out == "I know it.\n"
    assert not (desk.root / "run.c1.0.jsonl").exists()


def test_changed_sub_agent_is_a_miss_that_shows_the_change(desk: Desk) -> None:
    desk.run("--mode", "record", "--yes")
    desk.put("reader.yaml", CHILD.replace("You read page", "Please read page"))
    done = agentrun("desk.yaml", cwd=desk.root)
    assert (done.code, "cassette.miss" in done.err) == (3, True)
    assert "Please read page" in done.err


def test_failed_sub_agent_is_a_tool_result(desk: Desk) -> None:
    refuses = 'agentrun: "1"\nturns: [{text: "", faults: [{status: 401, times: 9}]}]\n'
    sad = LEADS.replace("All is well.", "tool.execution: the sub-agent failed: provider.fatal")
    done = desk.run("--mode", "live", "--journal", "run.jsonl", leads=sad, reads=refuses)
    assert (done.code, done.out) == (0, "The report says that all is well.\n"), done.err
    assert stop_of(desk.journal("run.c1.0.jsonl")).fault is not None


def test_sub_agent_cannot_exceed_the_budget_of_its_parent(desk: Desk) -> None:
    """The child's own budget is larger than what its parent has left."""
    desk.put("desk.yaml", PARENT.replace("tool_calls: 9", "tool_calls: 1"))
    sad = LEADS.replace("All is well.", "budget.tool_calls")
    done = desk.run("--mode", "live", leads=sad)
    assert (done.code, desk.traces()) == (0, []), done.err


def test_ctrl_c_cancels_parent_and_sub_agent(desk: Desk) -> None:
    slow = READS.replace("name: report.txt", "name: report.txt, wait: 600")
    with desk.providers(reads=slow) as environment:
        command = [SCRIPT, "desk.yaml", "--mode", "live", "--journal", "run.jsonl"]
        env = {"PATH": os.environ["PATH"], **environment}
        with subprocess.Popen(command, cwd=desk.root, env=env, stderr=subprocess.PIPE, text=True) as running:
            deadline = time.monotonic() + 60
            while not desk.traces() and time.monotonic() < deadline:
                time.sleep(0.02)
            running.send_signal(signal.SIGINT)
            _, told = running.communicate(timeout=60)
    assert running.returncode == 130, told
    for name in ("run.jsonl", "run.c1.0.jsonl"):
        fault = stop_of(desk.journal(name)).fault
        assert fault is not None
        assert fault.code == "cancelled", name
