"""Guards and repeated calls through the real command: polls, identical reads of one reply, and older cassettes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.cassette.file import load_cassette
from agentrun.core.facts import ResultShared, ToolStarted
from agentrun.journal.canonical import canonical
from agentrun.journal.storage import read_journal_file
from agentrun.wire import HttpReply

from ..servers import Server, reply_with_length
from .command import agentrun
from .shop_project import Project

COUNTING_TOOL = '''
def look(order: str) -> str:
    """Finds an order."""
    with TRACE.open("a") as file:
        file.write(f"look {order}\\n")
    return f"state {len(TRACE.read_text().splitlines())}"
'''
LOOK = '{tool: look, args: {order: "1042"}}'
TWICE = f"""\
agentrun: "1"
turns:
  - calls: [{LOOK}, {LOOK}]
  - calls: [{LOOK}]
  - text: Done.
"""
POLLS = f"""\
agentrun: "1"
turns:
  - calls: [{LOOK}]
    times: 50
  - text: Done.
"""
GUARDS = "guards: {repeated_call: {limit: 5, compare: calls}}\n"


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    """A project whose tool `look` has another result each time."""
    shop = Project(tmp_path)
    shop.edit("shop.yaml", "turns: 8, tokens: 20k", "turns: 60, tokens: 1M")
    with (tmp_path / "desk.py").open("a", encoding="utf-8") as file:
        file.write(COUNTING_TOOL)
    return shop


def add_line(shop: Project, line: str) -> None:
    with shop.spec.open("a", encoding="utf-8") as file:
        file.write(line)


def tool_urls(shop: Project) -> list[str]:
    return [each.call.url for each in load_cassette(shop.cassette).interactions if each.call.url.startswith("tool:")]


def recorded_before(shop: Project) -> None:
    """A cassette as earlier releases recorded it: with an interaction for every call."""
    add_line(shop, GUARDS)
    shop.record(story=TWICE)
    shop.edit("shop.yaml", GUARDS, "")
    assert tool_urls(shop) == ["tool://look"] * 3


def test_fifty_polls_with_changing_results_pass(shop: Project) -> None:
    with shop.provider(POLLS) as (_, environment):
        done = shop.run("--mode", "live", **environment)
    assert (done.code, done.out, len(shop.traces())) == (0, "Done.\n", 50)


@pytest.mark.parametrize("guard", ["repeated_call: {compare: calls}", "repeated_batch: {compare: calls}"])
def test_with_compare_calls_the_third_poll_does_not_run(shop: Project, guard: str) -> None:
    add_line(shop, f"guards: {{{guard}}}\n")
    with shop.provider(POLLS) as (_, environment):
        done = shop.run("--mode", "live", **environment)
    assert (done.code, len(shop.traces())) == (5, 2), done.err
    assert f"guard.{guard.partition(':')[0]}" in done.err


def test_third_poll_with_the_same_result_does_not_run(shop: Project) -> None:
    shop.edit("desk.py", "len(TRACE.read_text().splitlines())", "'late'")
    with shop.provider(POLLS) as (_, environment):
        done = shop.run("--mode", "live", **environment)
    assert (done.code, len(shop.traces())) == (5, 2), done.err
    assert "guard.repeated_call: look was called 3 times in a row with the same arguments" in done.err


def test_identical_reads_of_one_reply_run_once_and_are_recorded_once(shop: Project) -> None:
    done = shop.record("--journal", "live.jsonl", story=TWICE)
    assert (done.code, shop.traces()) == (0, ["look 1042"] * 2)
    assert "look c1.1: gets the result of the identical call c1.0" in done.err
    assert "← look c1.1: state 1" in done.err
    assert tool_urls(shop) == ["tool://look"] * 2
    replayed = shop.run("--journal", "replay.jsonl")
    assert (replayed.code, len(shop.traces())) == (0, 2)
    live, replay = (tuple(read_journal_file(shop.root / f"{name}.jsonl")) for name in ("live", "replay"))
    assert canonical(live) == canonical(replay)
    started = [record.fact for record in live if isinstance(record.fact, ToolStarted | ResultShared)]
    assert [(type(fact), fact.call) for fact in started] == [
        (ToolStarted, "c1.0"),
        (ResultShared, "c1.1"),
        (ToolStarted, "c2.0"),
    ]
    audited = agentrun("cassette", "audit", cwd=shop.root)
    assert audited.code == 0, audited.out


def test_cassette_with_every_call_still_replays(shop: Project) -> None:
    """Each call gets the result that was recorded for it, as the recorded request to the model has them."""
    recorded_before(shop)
    done = shop.run("--journal", "replay.jsonl")
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert "not played" not in done.err
    results = [line.partition(": ")[2] for line in done.err.splitlines() if "← look" in line]
    assert (sorted(results[:2]), results[2:]) == (["state 1", "state 2"], ["state 3"])
    audited = agentrun("cassette", "audit", cwd=shop.root)
    assert "unused" not in audited.out, audited.out


def test_cassette_with_every_call_can_be_recorded_on(shop: Project) -> None:
    """The first interactions are kept: two requests to the model and three calls."""
    recorded_before(shop)
    done = shop.record("--record", "from:6", story=TWICE.replace("Done.", "Done again."))
    assert (done.code, done.out) == (0, "Done again.\n"), done.err
    assert tool_urls(shop) == ["tool://look"] * 3
    assert shop.run().out == "Done again.\n"


@pytest.mark.parametrize(
    "what", ['stubs: {look: {result: "seen"}}', 'faults: [{at: "tool:look#1", inject: {error: x}}]']
)
def test_stub_or_fault_of_a_shared_call_is_shared_too(shop: Project, what: str) -> None:
    """Also on a cassette that has an interaction for every call: it counts as played."""
    recorded_before(shop)
    cases = shop.root / "shop.cases.yaml"
    cases.write_text(f'agentrun: "1"\ncases:\n  - name: default\n    {what}\n', encoding="utf-8")
    done = shop.run("--case", "default", "--journal", "replay.jsonl")
    text = "seen" if what.startswith("stubs") else "tool.execution: x"
    assert (f"← look c1.1: {text}" in done.err) or f"← look c1.1 failed: {text}" in done.err, done.err
    assert "not played" not in done.err, done.err


HTTP = """\

    kind: http
    url: "${DESK_URL}/orders/{{ args.order }}"
    private_network: true
    description: Finds an order.
    args: {type: object, properties: {order: {type: string}}}
"""


@pytest.mark.parametrize(("guards", "requests"), [(GUARDS, 3), ("", 2)], ids=["every call", "once"])
def test_shared_calls_of_an_http_tool_are_replayed(tmp_path: Path, guards: str, requests: int) -> None:
    """On a cassette with every call, and on one where the second call got the result of the first."""
    shop = Project(tmp_path)
    shop.edit("shop.yaml", '{kind: python, call: "desk:look", effect: read}\n', HTTP)
    add_line(shop, guards)
    replies = [reply_with_length(HttpReply(200, (), b'{"state": %d}' % number)) for number in range(3)]
    with Server(*replies) as server, shop.provider(TWICE) as (_, environment):
        done = shop.run("--mode", "record", "--yes", DESK_URL=server.url, **environment)
        assert (done.code, len(server.requests)) == (0, requests), done.err
    shop.edit("shop.yaml", guards, "")
    done = shop.run()
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert "not played" not in done.err
    results = {line.partition(": ")[2] for line in done.err.splitlines() if "← look c1." in line}
    assert results == ({'{"state": 0}', '{"state": 1}'} if guards else {'{"state": 0}'})
