"""Sub-agents that call sub-agents without end (THREATS 44), each through a whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..cli.command import agentrun
from ..cli.test_sub_agents import CHILD, PARENT, Desk

READS = 'agentrun: "1"\nturns: [{text: All is well.}]\n'


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def calls(count: int, turn: int = 0) -> str:
    each = (f'{{tool: reader, args: {{message: "Read {turn}.{n}.", page: {n}}}}}' for n in range(count))
    return f"  - calls: [{', '.join(each)}]\n"


def script(*counts: int) -> str:
    turns = "".join(calls(count, turn) for turn, count in enumerate(counts))
    return f'agentrun: "1"\nturns:\n{turns}  - text: Enough.\n'


def test_agent_cycle_is_refused(desk: Desk) -> None:
    desk.put("reader.yaml", CHILD.replace("tools:\n", "tools:\n  back: {kind: agent, spec: desk.yaml}\n"))
    done = agentrun("desk.yaml", "--mode", "live", cwd=desk.root)
    assert (done.code, "spec.agent_cycle" in done.err) == (2, True), done.err


@pytest.mark.parametrize(("depth", "code"), [(3, 0), (4, 2), (50, 2)])
def test_chain_deeper_than_three_sub_agents_is_refused(desk: Desk, depth: int, code: int) -> None:
    """`depth` agents below the first. Deeper than three is refused before anything is asked."""
    for n in range(1, depth):
        below = f"tools:\n  reader: {{kind: agent, spec: a{n + 1}.yaml, params: {{shelf: red}}}}\n"
        desk.put(f"a{n}.yaml", CHILD.replace("tools:\n", below, 1))
    desk.put(f"a{depth}.yaml", CHILD)
    desk.put("desk.yaml", PARENT.replace("reader.yaml", "a1.yaml"))
    down = f'agentrun: "1"\nturns:\n{calls(1)}  - text: All is well.\n'
    done = desk.run("--mode", "live", "--journal", "run.jsonl", leads=script(1), reads=down)
    assert done.code == code, done.err
    journals = {path.name for path in desk.root.glob("run*.jsonl")}
    chain = {f"run{'.c1.0' * n}.jsonl" for n in range(depth + 1)}
    assert journals == (chain if code == 0 else set())
    assert ("spec.agent_depth" in done.err) == (code == 2)


def test_thousand_sub_agents_at_once_stop_the_run(desk: Desk) -> None:
    done = desk.run("--mode", "live", "--journal", "run.jsonl", leads=script(1_000), reads=READS)
    assert (done.code, "guard.parallel_tools" in done.err) == (5, True), done.err
    assert [path.name for path in desk.root.glob("run*.jsonl")] == ["run.jsonl"], "none was started"


def test_sub_agents_over_the_run_limit_are_refused(desk: Desk) -> None:
    plain = PARENT.replace("tool_calls: 9", "tool_calls: 99") + "limits: {runs: 5}\n"
    desk.put("desk.yaml", plain)
    done = desk.run("--mode", "live", "--journal", "run.jsonl", leads=script(3, 3, 3), reads=READS)
    assert (done.code, done.out) == (0, "Enough.\n"), done.err
    assert len([*desk.root.glob("run.c*.jsonl")]) == 5
    assert done.err.count("the limit for started sub-agents is 5") == 4
