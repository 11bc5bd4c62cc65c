"""A project with one agent and its cassette, and pytest run in it, in this process or in another."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
import syrupy

from agentrun.cassette.writer import dump_cassette
from agentrun.compiler.compile import compile_or_raise
from agentrun.testing import stub
from agentrun.testing.plugin import fixture, items, syrupy_snapshots
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.evaluation import evaluate_case
from agentrun.testing.suite.replay import CompiledAgents
from agentrun.testing.suite.snapshots import accepted_snapshots
from agentrun.testing.suite.verdict import CaseVerdict

from ...engine.recorded_runs import record_in_memory, reply_with_calls
from ...scripted_service import completion

IMPORTED = (syrupy_snapshots, fixture, items)
"""Once for all tests: pytest in a process that is not its own forgets what it imported."""

NOT_USED = ("-p", "no:hypothesispytest", "-p", "no:anyio")
"""Plugins without which pytest starts sooner."""

SPEC = """\
agentrun: "1"
name: desk
model: {provider: openai, name: gpt-4.1-mini, temperature: 0}
instructions: You help with orders.
input: Where is order 1042?
tools:
  look: {kind: python, call: "orders:look", effect: read}
policy:
  default: deny
  rules: [{id: reads, allow: look}]
budgets: {turns: 4, tokens: 20k}
"""
ORDERS = '''\
"""Tools that leave a trace."""
from pathlib import Path

def look(order: str) -> str:
    """Finds an order."""
    with Path(__file__).with_name("trace.txt").open("a") as file:
        file.write(f"look {order}\\n")
    return "late"
'''
ANSWER = "Order 1042 is late."
STORY = f"""\
agentrun: "1"
turns:
  - calls: [{{tool: look, args: {{order: "1042"}}}}]
  - text: {ANSWER}
"""
"""What a scripted provider says when the case is recorded."""
CASES = 'agentrun: "1"\ncases:\n'
SNAPSHOT_ASSERTION = "assert: [{type: journal-snapshot}]"


class Project:
    """A folder with the agent in it, in which pytest runs."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        self.root = pytester.path
        self.cases_file = self.root / "specs" / "desk.cases.yaml"
        self.snapshots = self.root / "specs" / "__snapshots__" / "desk"
        self.cassette = self.root / "cassettes" / "desk" / "default.yaml"
        self._monkeypatch = monkeypatch
        files = {
            "pyproject.toml": '[tool.agentrun]\nimport_roots = ["specs"]\n',
            "pytest.ini": "[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n",
            "specs/desk.yaml": SPEC,
            "specs/orders.py": ORDERS,
            "cassettes/desk/default.yaml": recording(),
        }
        for name, text in files.items():
            self.write(name, text)
        for name in ("CI", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
            monkeypatch.delenv(name, raising=False)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def cases(self, *cases: str) -> None:
        """The cases: what stands between the braces of each. All play one recording."""
        lines = [f"  - {{{case}{'' if 'cassette' in case else ', cassette: default'}}}\n" for case in cases]
        self.cases_file.write_text(CASES + "".join(lines), encoding="utf-8")

    def run(self, *args: str) -> pytest.RunResult:
        """pytest, in this process."""
        outer = syrupy._syrupy
        try:
            return self.pytester.runpytest_inprocess(*NOT_USED, *args)
        finally:
            syrupy._syrupy = outer

    def process(self, *args: str) -> pytest.RunResult:
        """pytest as people start it."""
        return self.pytester.runpytest_subprocess(*args, timeout=120)

    def verdicts(self) -> dict[str, CaseVerdict]:
        """What `agentrun test` says of each case."""
        preparations = CompiledAgents()
        return {found.case.name: evaluate_case(found, preparations, accepted_snapshots) for found in self.found()}

    def found(self) -> list[LocatedCase]:
        return read_located_cases(self.cases_file)

    def kept(self) -> list[str]:
        """The names of the snapshots that are there."""
        return sorted(os.listdir(self.snapshots)) if self.snapshots.exists() else []

    def traces(self) -> list[str]:
        """What the tool did."""
        path = self.root / "specs" / "trace.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@cache
def recording() -> str:
    """The recording of the agent, made once."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "desk.yaml").write_text(SPEC, encoding="utf-8")
        (Path(folder) / "orders.py").write_text(ORDERS, encoding="utf-8")
        (Path(folder) / "pyproject.toml").write_text("[tool.agentrun]\n", encoding="utf-8")
        agent = compile_or_raise(Path(folder) / "desk.yaml")[1].agent
    world = {"executors": {"look": stub("late")}}
    taken = record_in_memory(
        agent, lambda clock: world, reply_with_calls(("look", {"order": "1042"})), completion(ANSWER)
    )
    return dump_cassette(taken.interactions, {"recorded_at": "2026-01-31T12:00:00Z"})
