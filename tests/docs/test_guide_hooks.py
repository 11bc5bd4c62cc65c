"""docs/guide.md about hooks, sinks and sub-agents: its example is run and its tables match the code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import agentrun as library
from agentrun.compiler.compile import compile_or_raise
from agentrun.core.facts import Deny, Inject, Modify
from agentrun.core.hook_answers import LEGAL_ANSWERS
from agentrun.core.package import SINK_KINDS
from agentrun.core.package_tools import ShellTool
from agentrun.errors import ERROR_CODES
from agentrun.spec.v1.agent import HookSpec, SinkSpecBase
from agentrun.testing import StepClock, calls, hook, scripted, stub, text
from agentrun.testing.provider import ScriptedProvider
from agentrun.tools.shell import CommandRefused, build_argv

from ..cli.command import CommandResult, agentrun
from .guide import FILES, GUIDE, code, code_between, table, with_required_keys
from .terminal import ROOT

ANSWERS = (Deny, Modify, Inject)
POINTS = {code(row[0])[0]: row[1:] for row in table("point")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "specs/clerk.yaml", "python/desk/hooks.py", "python/desk/refunds.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[name], encoding="utf-8")
    return tmp_path


def run_the_clerk(project: Path, amount: float, expected: str, *options: str) -> CommandResult:
    """The clerk of the guide, recorded, with a model that wants to pay an amount back."""
    call = f"{{tool: refund, args: {{order_id: '1042', amount: {amount}}}}}"
    script = f'agentrun: "1"\nturns: [{{calls: [{call}]}}, {{expect: {{results: ["{expected}"]}}, text: Done.}}]\n'
    with ScriptedProvider(script) as server:
        keys = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "not-a-key"}
        return agentrun("specs/clerk.yaml", "--record", "all", "--yes", *options, cwd=project, stdin=b"", **keys)


# --- hooks


def test_table_of_hook_answers_matches_the_code() -> None:
    assert "| point | `target` | `value` | `Deny` | `Modify` | `Inject` |" in GUIDE
    shown = {
        point: {each for each, cell in zip(ANSWERS, row[2:], strict=True) if cell[1:]} for point, row in POINTS.items()
    }
    assert list(shown) == list(LEGAL_ANSWERS)
    assert shown == {point: set(legal) & set(ANSWERS) for point, legal in LEGAL_ANSWERS.items()}


def test_hooks_get_the_documented_target_and_value(tmp_path: Path) -> None:
    """At each point the target of the table, and its value."""
    tools = (
        "tools: {refund: {kind: shell, description: d, argv: [df], args: {type: object}}}\npolicy: {default: allow}\n"
    )
    lines = "".join(f'  - {{id: {point}, at: {point}, call: "none:none"}}\n' for point in POINTS)
    (tmp_path / "none.py").write_text("def none(question): ...\n")
    (tmp_path / "seen.yaml").write_text(with_required_keys(f"{tools}hooks:\n{lines}"))
    hooks = {point: hook() for point in POINTS}
    outcome = library.run(
        tmp_path / "seen.yaml",
        "Hello.",
        model=scripted(calls("refund"), text("Done.")),
        tools={"refund": stub("paid")},
        hooks=hooks,
        clock=StepClock(),
    )
    assert outcome.status == "completed"
    asked = {point: [(each.target, each.value) for each in double.questions] for point, double in hooks.items()}
    targets = {point: (code(row[0]) or ["refund"])[0] for point, row in POINTS.items()}
    assert {point: {target for target, _ in seen} for point, seen in asked.items()} == {
        point: {target} for point, target in targets.items()
    }
    assert {point: [value for _, value in seen] for point, seen in asked.items()} == {
        "on_input": ["Hello."],
        "before_model": ["Hello.", "paid"],
        "after_model": ["", "Done."],
        "before_tool": [{}],
        "after_tool": ["paid"],
        "on_output": ["Done."],
        "on_stop": [{"status": "completed", "code": None}],
    }


def test_clerk_example_runs_and_a_replay_delivers_nothing(project: Path) -> None:
    """Its hooks change the amount and the answer, its sinks have it; a replay delivers nothing."""
    done = run_the_clerk(project, 19.6, "20 of 1042 refunded")
    assert (done.code, done.out) == (0, "Done.\nYour shop\n"), done.err
    assert (project / "out" / "answer.txt").read_text() == "Done.\nYour shop\n"
    line = json.loads((project / "out" / "answers.jsonl").read_text())
    assert line == {"key": line["key"], "sink": "log", "text": "Done.\nYour shop"}
    shutil.rmtree(project / "out")
    again = agentrun("specs/clerk.yaml", cwd=project)
    assert (again.code, again.out, (project / "out").exists()) == (0, done.out, False), again.err
    assert "a replay delivers nothing" in again.err


def test_hook_of_the_clerk_denies_a_large_refund(project: Path) -> None:
    done = run_the_clerk(project, 900, "more than 500 is not for an agent to pay")
    assert (done.code, done.out) == (0, "Done.\nYour shop\n"), done.err


def test_documented_hook_defaults_match_the_code() -> None:
    defaults: dict[str, Any] = dict(zip(HookSpec.__struct_fields__[-3:], HookSpec.__struct_defaults__, strict=True))
    assert defaults == {"order": 0, "timeout": "5s", "on_failure": "deny"}
    assert "`order` (default 0)" in GUIDE
    assert "`timeout` (default 5 s)" in GUIDE


# --- sinks


def test_table_of_sink_kinds_matches_the_code() -> None:
    assert sorted(code(row[0])[0] for row in table("kind")) == sorted(SINK_KINDS)


def test_delivery_levels_are_documented() -> None:
    levels = get_args(get_type_hints(SinkSpecBase)["delivery"])
    assert len(levels) == 3
    assert set(levels) <= set(code_between("Sinks are used one after the other", "\n\n"))


def test_failed_required_sink_fails_the_clerk(project: Path) -> None:
    """`latest` comes before `log`, which then gets nothing. Were it optional, the run would go on."""
    (project / "out" / "answer.txt").mkdir(parents=True)
    done = run_the_clerk(project, 20, "20 of 1042 refunded")
    assert (done.code, (project / "out" / "answers.jsonl").exists()) == (ERROR_CODES["delivery.failed"].exit, False), (
        done.err
    )
    done = run_the_clerk(project, 20, "20 of 1042 refunded", "--set", "sinks.latest.delivery=optional")
    assert (done.code, (project / "out" / "answers.jsonl").exists()) == (0, True), done.err


def test_stdout_sink_prints_a_json_line(project: Path) -> None:
    done = run_the_clerk(project, 20, "20 of 1042 refunded", "--set", "sinks.screen.delivery=required")
    line, *answer = done.out.splitlines()
    assert (list(json.loads(line)), answer) == (["key", "sink", "text"], ["Done.", "Your shop"])
    assert '`{"key": …, "sink": …, "text": …}`' in GUIDE


# --- sub-agents, commands


def test_documented_sub_agent_limits_match_the_code(project: Path) -> None:
    agent = compile_or_raise(project / "specs" / "clerk.yaml")[1].agent
    assert (agent.limits.depth, agent.limits.runs, agent.tools["refund"].timeout) == (3, 100, 30_000)
    section = GUIDE.partition("### Sub-agents")[2].partition("\n## ")[0]
    assert [each in section for each in ("at most 3", "(default 100)", "30 s")] == [True] * 3


def test_sub_agents_have_their_own_journals_and_lines(tmp_path: Path) -> None:
    for name in ("specs", "cassettes"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    done = agentrun("specs/researcher.yaml", "--journal", "run.jsonl", cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["run.c2.0.jsonl", "run.c2.1.jsonl", "run.jsonl"]
    assert "\n    turn 1\n      → library.read " in done.err


def test_documented_argv_templates_are_filled_in(tmp_path: Path) -> None:
    whole_one, part = code_between("is filled in:", "An argument that")
    args = "{type: object, properties: {path: {type: string}, lines: {type: string}}}"
    tool = f"{{kind: shell, description: d, argv: [tail, {part}, {whole_one}], args: {args}}}"
    (tmp_path / "spec.yaml").write_text(with_required_keys(f"tools: {{t: {tool}}}\npolicy: {{default: allow}}\n"))
    shell = compile_or_raise(tmp_path / "spec.yaml")[1].agent.tools["t"]
    assert isinstance(shell, ShellTool)
    values = {"args": {"path": "a b; c", "lines": "-5 x"}}
    assert build_argv(shell, values) == ["tail", "--lines=-5 x", "a b; c"]
    with pytest.raises(CommandRefused, match="begin with a dash"):
        build_argv(shell, {"args": {"path": "-f", "lines": "5"}})
