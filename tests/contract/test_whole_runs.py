"""Rows of the contract, through a `Runtime` or the command line, that no other test shows as a whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentrun.core.facts import Record, TimePassed
from agentrun.errors import AgentrunError

from ..cli.command import agentrun
from ..cli.shop_project import Project
from ..engine.memory_runtime import Home

# --- policy -------------------------------------------------------------------------------------------------------


def problem_of(root: Path, old: str, new: str) -> dict[str, Any]:
    shop = Project(root)
    shop.edit("shop.yaml", old, new)
    done = agentrun("validate", "shop.yaml", "--json", cwd=root)
    assert done.code == 2, done.err
    (problem,) = done.lines()
    return dict(problem)


def test_tool_that_no_rule_allows_is_a_spec_error(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, "\n    - {id: money, ask: refund, reason: money}", "")
    assert problem["code"] == "spec.tool_never_allowed"
    assert "- {id: allow-refund, allow: refund}" in problem["hint"], "the line to add"


def test_condition_of_the_wrong_type_is_a_spec_error(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, "reason: money", "when: args.amount == 'much'")
    assert (problem["code"], problem["hint"]) == ("spec.condition", "args.amount of refund is a number")


# --- the journal --------------------------------------------------------------------------------------------------


def test_record_after_the_terminal_one_is_an_error() -> None:
    home = Home("Hello.")
    home.run()
    last = tuple(home.journals.records("r1"))[-1]
    journal = home.journals.open("r1")
    journal.append(Record(last.seq + 1, last.at, journal.epoch, journal.head, TimePassed()))
    with pytest.raises(AgentrunError) as caught:
        home.runtime.snapshot("r1")
    assert (caught.value.code, caught.value.fields["seq"]) == ("recovery.failed", last.seq + 1)


# --- replay -------------------------------------------------------------------------------------------------------

MORE = """
  - {id: signs, at: on_output, call: "desk:sign"}
sinks: {out: {kind: file, path: "out/answer.txt"}}
"""
HOOK = """
def sign(question):
    from agentrun import Modify
    with TRACE.open("a") as file:
        file.write("sign\\n")
    return Modify(question.value + " Yours.")
"""


def test_cassette_has_tools_hooks_approvals_and_sinks_and_a_replay_executes_none(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    (tmp_path / "shop.yaml").write_text((tmp_path / "shop.yaml").read_text() + "hooks:" + MORE)
    (tmp_path / "desk.py").write_text((tmp_path / "desk.py").read_text() + HOOK)
    (tmp_path / "out").mkdir()
    recorded = shop.record()
    assert shop.traces() == ["look 1042", "refund 1042 20", "sign"]
    cassette = shop.cassette.read_text(encoding="utf-8")
    assert all(f"{kind}://" in cassette for kind in ("https", "tool", "approval", "hook", "sink")), cassette
    (tmp_path / "out" / "answer.txt").unlink()
    (tmp_path / "trace.txt").unlink()
    replayed = shop.run("--mode", "replay")
    assert (replayed.code, replayed.out, recorded.out) == (0, "Done. Yours.\n", "Done. Yours.\n"), replayed.err
    assert (shop.traces(), (tmp_path / "out" / "answer.txt").exists()) == ([], False)


def started(shop: Project, *args: str) -> tuple[str, bool]:
    """The id of a replay, and whether its outcome says that it is one."""
    lines = shop.run("--mode", "replay", "--json", *args).lines()
    return lines[-1]["run"], lines[-1]["outcome"]["replayed"]


def test_id_of_a_replay_is_that_of_its_package_input_and_cassette(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.recorded()
    first = started(shop)
    assert first[0].startswith("replay-")
    assert (started(shop), first[1]) == (first, True)
    shop.edit("shop.yaml", "time: 5m", "time: 6m")
    package_changed = started(shop)
    assert package_changed != first
    shop.edit("cassettes/shop/default.yaml", "Done.", "Gone.")
    assert started(shop) not in (first, package_changed)


def test_package_that_sends_the_same_requests_replays(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.recorded()
    shop.edit("shop.yaml", "turns: 8", "turns: 9")
    done = shop.run("--mode", "replay")
    assert (done.code, done.out) == (0, "Done.\n"), done.err


def test_rewritten_arguments_are_on_the_cassette(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.edit("shop.yaml", "ask: refund", "allow: refund")
    shop.edit("shop.yaml", "reason: money}", "reason: money}\n    - {id: caps, modify: refund, set: {amount: 5}}")
    shop.record()
    assert shop.traces() == ["look 1042", "refund 1042 5"]
    assert re.search(r'"amount": ?5\b', shop.cassette.read_text(encoding="utf-8"))
    assert shop.run("--mode", "replay").code == 0
    shop.edit("shop.yaml", "amount: 5", "amount: 6")
    assert shop.run("--mode", "replay").code == 3, "another call than the recorded one"


def test_snapshot_has_no_times_ids_and_hashes(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    (tmp_path / "shop.cases.yaml").write_text(
        'agentrun: "1"\ncases: [{name: default, assert: [{type: journal-snapshot}]}]\n'
    )
    shop.recorded()
    assert agentrun("test", ".", "--update", cwd=tmp_path).code == 0
    (path,) = tmp_path.rglob("default.journal")
    snapshot = path.read_text(encoding="utf-8")
    assert "- tool_started:" in snapshot
    assert not re.search(r"sha256:|run-[0-9a-f]|replay-|\bseq:|\bat: \d|epoch|wire_id|attempt:", snapshot), snapshot
