"""What a recording announces, when it asks for consent, and that nothing happens without it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agentrun.cli.approval_options import RECORD_PROMPT
from agentrun.journal.records import JOURNAL_PREFIX

from .command import agentrun
from .shop_project import STORY, Project
from .terminal_user import at_terminal

READS = {
    '  refund: {kind: python, call: "desk:refund"}\n': "",
    "    - {id: money, ask: refund, reason: money}\n": "",
}
LOOKS = STORY.replace(
    '  - calls: [{tool: refund, args: {order: "1042", amount: 20.0}}]\n'
    '    faults: [{status: 429, headers: {retry-after: "0"}}]\n',
    "",
)
PRICED = "name: gpt-4.1-mini, price: {input: 2, output: 8}"
SENTENCE = "this recording may run tools without `effect: read` (refund); confirm it at a terminal, or add --yes"


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return Project(tmp_path)


def make_read_only(shop: Project) -> None:
    for old, new in READS.items():
        shop.edit("shop.yaml", old, new)


def announcement_lines(err: str) -> list[str]:
    """The lines between the first one, which says the mode, and the story."""
    lines = err.splitlines()[1:]
    return lines[: next(i for i, line in enumerate(lines) if line.startswith("estimated cost")) + 1]


@pytest.mark.parametrize("how", [("--mode", "record"), ("--record", "new", "-q")])
def test_without_a_terminal_it_needs_yes(shop: Project, how: tuple[str, ...]) -> None:
    with shop.provider() as (server, environment):
        done = shop.run(*how, "--approve", "all", "--journal", "run.jsonl", **environment)
        assert (done.code, done.out, len(server.requests)) == (2, "", 0)
    assert done.err.endswith(f"Error: {SENTENCE}\n")
    assert (shop.traces(), shop.cassette.exists(), (shop.root / "run.jsonl").exists()) == ([], False, False)


def test_recording_with_json_needs_yes(shop: Project) -> None:
    with shop.provider() as (server, environment):
        done = shop.run("--mode", "record", "--json", **environment)
        assert (done.code, len(server.requests)) == (2, 0)
    assert done.lines()[-1]["error"]["message"] == SENTENCE


def test_announcement_lists_tools_approvers_and_cost(shop: Project) -> None:
    shop.edit("shop.yaml", "name: gpt-4.1-mini", PRICED)
    first = shop.record()
    assert announcement_lines(first.err) == [
        "tools that may run: look, refund",
        "of these at_most_once: refund",
        "approvals answered by: --approve all",
        "estimated cost: unknown, because this is the first recording",
    ]
    assert "spent: 3 requests, 45 tokens, $0.00018\n" in first.err
    again = shop.record("--record", "new")
    assert announcement_lines(again.err) == [
        "tools that may run: look, refund (only calls without a recorded result)",
        "of these at_most_once: refund",
        "approvals answered by: --approve all, then the cassette",
        "estimated cost: about 3 requests, 45 tokens, $0.00018, as in the last recording",
    ]
    assert "spent: 0 requests, 0 tokens\n" in again.err, "all of it was kept"


def test_recording_of_read_only_tools_needs_no_consent(shop: Project) -> None:
    make_read_only(shop)
    with shop.provider(LOOKS) as (_, environment):
        done = shop.run("--mode", "record", **environment)
    assert done.code == 0, done.err
    assert announcement_lines(done.err) == [
        "tools that may run: look",
        "approvals answered by: no one (the policy asks for no approval)",
        "estimated cost: unknown, because this is the first recording",
    ]


@pytest.mark.parametrize("by", ["cases file", "file"])
def test_recording_with_approvals_from_a_file_needs_consent(shop: Project, by: str) -> None:
    make_read_only(shop)
    shop.edit("shop.yaml", "{id: reads, allow: look}", "{id: reads, ask: look, reason: privacy}")
    approvals = ", approvals: {look: approved}" if by == "cases file" else ""
    (shop.root / "shop.cases.yaml").write_text(f'agentrun: "1"\ncases:\n  - {{name: default{approvals}}}\n')
    (shop.root / "answers.yaml").write_text("look: approved\n")
    args = () if by == "cases file" else ("--approve", "answers.yaml")
    with shop.provider(LOOKS) as (server, environment):
        refused = shop.run("--mode", "record", *args, **environment)
        assert (refused.code, len(server.requests)) == (2, 0)
        who = "case default" if by == "cases file" else "--approve answers.yaml"
        assert f"a file answers approvals of this recording ({who}); " in refused.err
        done = shop.run("--mode", "record", "--yes", *args, **environment)
    assert (done.code, shop.traces()) == (0, ["look 1042"]), done.err
    assert f"approvals answered by: {who}\n" in done.err


def test_stubbed_tool_is_not_run_and_needs_no_consent(shop: Project) -> None:
    cases = 'agentrun: "1"\ncases:\n  - {name: default, stubs: {refund: {result: paid}}}\n'
    (shop.root / "shop.cases.yaml").write_text(cases)
    with shop.provider() as (_, environment):
        done = shop.run("--case", "default", "--mode", "record", "--approve", "all", **environment)
    assert (done.code, shop.traces()) == (0, ["look 1042"]), done.err
    assert "tools that may run: look\n" in done.err


@pytest.mark.parametrize(
    ("typed", "code", "traces"),
    [("y\n", 0, ["look 1042", "refund 1042 20"]), ("\n", 130, []), ("\x04", 130, []), ("\x03", 130, [])],
    ids=["yes", "enter", "end", "interrupt"],
)
def test_terminal_asks_once_before_recording(shop: Project, typed: str, code: int, traces: list[str]) -> None:
    journal = shop.root / "run.jsonl"
    before = JOURNAL_PREFIX + b'1,"fact":{"type":"run_stopped"}}\n'
    journal.write_bytes(before)
    command = ("--mode", "record", "--approve", "all", "--journal", journal.name)
    with shop.provider() as (server, environment), at_terminal(shop, environment, *command) as person:
        shown = person.until("Record? [y/N]")
        assert "of these at_most_once: refund" in shown
        assert len(server.requests) == 0
        person.type(typed)
        ended, shown = person.end()
    assert (ended, shop.traces()) == (code, traces), shown
    assert shown.count(RECORD_PROMPT.strip()) == 1
    assert shop.cassette.exists() == (code == 0)
    assert shown.endswith("cancelled: nothing was recorded") == (code == 130), shown
    assert (journal.read_bytes() == before) == (code == 130), "there was no run"


def test_termination_at_the_question_leaves_nothing_behind(shop: Project) -> None:
    command = ("--mode", "record", "--approve", "all")
    with shop.provider() as (server, environment), at_terminal(shop, environment, *command) as person:
        person.until("Record? [y/N]")
        person.run.send_signal(signal.SIGTERM)
        ended, shown = person.end()
        assert (ended, len(server.requests), shop.traces()) == (130, 0, []), shown
    assert not shop.cassette.exists()


def test_terminal_asks_for_consent_and_then_for_approvals(shop: Project) -> None:
    command = ("--mode", "record")
    with shop.provider() as (_, environment), at_terminal(shop, environment, *command, rows=60) as person:
        person.until("approvals answered by: you", "Record? [y/N]")
        person.type("y\n")
        person.until("Go ahead?")
        person.type("y\n")
        ended, shown = person.end()
    assert (ended, len(shop.traces())) == (0, 2), shown


def test_yes_without_a_recording_is_refused(shop: Project) -> None:
    done = shop.run("--yes", "--mode", "live")
    assert (done.code, "--yes needs --mode record or --record" in done.err) == (2, True)
    done = agentrun("test", "--yes", cwd=shop.root)
    assert (done.code, "--yes needs --record" in done.err) == (2, True)


def test_impossible_recording_is_refused_before_asking_for_consent(shop: Project) -> None:
    done = shop.run("--record", "from:3")
    assert (done.code, "tools that run" in done.err) == (2, False)
    assert "there is no cassette yet" in done.err
