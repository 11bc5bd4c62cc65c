"""Rows of the contract, through a `Runtime` or the command line, that no other test shows as a whole."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import CallRefused, Record, TimePassed
from agentrun.core.messages import Text
from agentrun.core.package import LEGAL_RULINGS, RULINGS
from agentrun.engine.event_bus import EventBus
from agentrun.engine.events import Gap
from agentrun.engine.ports import ReplyDelta
from agentrun.errors import AgentrunError
from agentrun.testing import FailingJournals, calls, reply, scripted, text

from ..cli.command import agentrun
from ..cli.cut_runs import PAYS, Bank, wait_until
from ..cli.shop_project import Project
from ..core.script import hook, writing
from ..engine.memory_runtime import TOOLS, Home
from ..packages import package

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


def test_illegal_pairs_of_stage_and_ruling_are_spec_errors(tmp_path: Path) -> None:
    """One rule for each pair, in one spec."""
    pairs = [(stage, ruling) for stage in LEGAL_RULINGS for ruling in RULINGS]
    keys = {"modify": {"tool_call": ", set: {n: 1}"}}
    lines = []
    for stage, ruling in pairs:
        key = keys.get(ruling, {}).get(stage, ', mask: ["x"]' if ruling == "modify" else ', when: "spend.turns > 3"')
        lines.append(f'    - {{id: {stage}-{ruling}, on: {stage}, {ruling}: "*"{key}}}')
    (tmp_path / "a.yaml").write_text(AGENT_WITH_RULES + "\n".join(lines) + "\n")
    done = agentrun("validate", "a.yaml", "--json", cwd=tmp_path)
    first = AGENT_WITH_RULES.count("\n") + 1
    found = {pairs[each["line"] - first] for each in done.lines() if each["code"] == "spec.illegal_ruling"}
    assert (done.code, found) == (2, {pair for pair in pairs if pair[1] not in LEGAL_RULINGS[pair[0]]})


AGENT_WITH_RULES = """\
agentrun: "1"
name: a
model: {provider: openai, name: gpt-4.1-mini}
instructions: Be brief.
budgets: {turns: 2}
sinks: {s: {kind: stdout}}
tools: {t: {kind: shell, description: d, argv: [df], args: {type: object, properties: {n: {type: integer}}}}}
policy:
  default: allow
  rules:
"""


def _raise(question: Any) -> Any:
    raise KeyError(question)


@pytest.mark.parametrize("answer", [_raise, lambda question: None, lambda question: "continue"])
def test_hook_before_a_tool_that_fails_denies_the_call(answer: Any) -> None:
    agent = package(tools={"pay": writing()}, policy={"default": "allow"}, hooks=[hook("before_tool", id="careful")])
    home = Home(calls("pay", n=1), text("Done."), hooks={"careful": answer})
    assert home.run(agent).exit_code == 0
    assert home.pay.count == 0
    (refused,) = [fact for fact in home.facts() if isinstance(fact, CallRefused)]
    assert refused.code == "tool.denied"


# --- the journal --------------------------------------------------------------------------------------------------


def paying(journals: Any = None) -> tuple[Home, list[tuple[str, str]]]:
    """A runtime, and what its model and its tool found at the end of the journal when they were called."""
    seen: list[tuple[str, str]] = []
    script = scripted(calls("pay", n=1), text("Done."))

    class Model:
        async def ask(self, effect: Any, delta: Any) -> Any:
            seen.append(("model", home.kinds()[-1]))
            return await script.ask(effect, delta)

    class Pay:
        async def run(self, call: RunTool) -> ToolReturn:
            seen.append(("pay", home.kinds()[-1]))
            return ToolReturn((Text("paid"),))

    ports: dict[str, Any] = {"providers": {"openai": Model()}, "executors": {"search": Pay(), "pay": Pay()}}
    home = Home(**ports, **({} if journals is None else {"journals": journals}))
    if journals is not None:
        home.journals = journals
    return home, seen


def test_intent_is_in_the_journal_before_its_effect() -> None:
    home, seen = paying()
    assert home.run(TOOLS).exit_code == 0
    assert seen == [("model", "ModelAsked"), ("pay", "ToolStarted"), ("model", "ModelAsked")]


def test_effect_whose_intent_cannot_be_written_does_not_happen() -> None:
    home, _ = paying()
    home.run(TOOLS)
    whole = home.kinds()
    for at in range(2, len(whole) + 1):
        home, seen = paying(FailingJournals(at))
        with pytest.raises(AgentrunError, match=r"storage\.failed|journal\.poisoned"):
            home.run(TOOLS)
        assert home.kinds() == whole[: at - 1]
        assert len(seen) == sum(kind in ("ModelAsked", "ToolStarted") for kind in home.kinds())


def test_slow_subscriber_loses_deltas_but_no_record_and_gets_a_cursor() -> None:
    home = Home(scripted(reply("Hello.", pieces=tuple("Hello."))), events=EventBus(queue=2))
    slow = home.runtime.subscribe()
    home.run()
    events = list(slow)
    (gap,) = [event.what for event in events if isinstance(event.what, Gap)]
    assert sum(isinstance(event.what, ReplyDelta) for event in events) < len("Hello.")
    assert [event.what for event in events if isinstance(event.what, Record)] == list(home.journals.records("r1"))
    assert events[-1].is_terminal
    repaired = home.runtime.subscribe(cursor=gap.since)
    assert [event.what for event in repaired] == list(home.journals.records("r1"))


def test_index_that_is_damaged_or_lost_is_made_again(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    with shop.provider() as (_, environment):
        assert shop.run("--mode", "live", **environment).code == 8
    before = agentrun("runs", "--json", cwd=tmp_path).out
    index = tmp_path / ".agentrun" / "index.sqlite"
    for data in (b"", b"no database", index.read_bytes()[:-1]):
        index.write_bytes(data)
        assert agentrun("runs", "--json", cwd=tmp_path).out == before
    index.unlink()
    assert agentrun("runs", "--json", cwd=tmp_path).out == before


def test_owner_that_wakes_up_without_its_lock_is_fenced_out(tmp_path: Path) -> None:
    """Its process is stopped in a call, its lock is lost, and another process finishes the run."""
    bank = Bank(tmp_path)
    bank.hold("save")
    story = PAYS.replace("tool: pay", "tool: save")
    with bank.provider(story), bank.started() as owner:
        wait_until(lambda: bank.traces() == ["save one"])
        (run,) = bank.run_ids()
        os.kill(owner.pid, signal.SIGSTOP)
        assert bank.command("resume", run).code == 9, "it is stopped, and has its lock"
        (bank.store / run / "lock").unlink()
        bank.release("save")
        assert bank.command("resume", run).out == "Paid.\n"
        records = (bank.store / run / "journal.jsonl").read_bytes()
        os.kill(owner.pid, signal.SIGCONT)
        _, err = owner.communicate(timeout=60)
    assert (owner.returncode, b"journal.stale_owner" in err) == (7, True), err
    assert (bank.store / run / "journal.jsonl").read_bytes() == records
    assert agentrun("verify", run, cwd=tmp_path).code == 0


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
