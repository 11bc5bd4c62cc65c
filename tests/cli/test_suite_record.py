"""`agentrun test --record`, `--live-tools` and `--live-model`."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from agentrun.cassette.file import load_cassette
from agentrun.testing.provider import ScriptedProvider

from .desk_project import TURNS
from .suite_project import CASES, CASSETTE, DEFAULT_CASE, SNAPSHOT_CASE, Suite

YES = "approvals: {refund: approved}"
TWO = f"  - name: talk\n    {YES}\n    turns: [Please refund 20 of order 1042., Thanks.]\n"
CONVERSATION = TURNS + "  - text: You are welcome.\n"
TALK_CASSETTE = "cassettes/desk/talk.yaml"


@pytest.fixture
def trace(suite: Suite) -> Iterable[str]:
    """The tools that ran, in the order in which they did."""
    file = suite.root / "trace.txt"
    file.write_text("", encoding="utf-8")
    for name, doc in (("lookup_order", "Finds an order."), ("refund", "Pays an amount of an order back.")):
        line = f"    with open({str(file)!r}, 'a') as file: file.write('{name}\\n')\n"
        suite.edit("python/shop.py", f'"""{doc}"""\n', f'"""{doc}"""\n{line}')
    return Trace(file)


class Trace:
    def __init__(self, file: Path) -> None:
        self._file = file

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.read_text(encoding="utf-8").split())


def test_new_case_is_recorded_and_evaluated(suite: Suite, trace: Iterable[str]) -> None:
    suite.write(f"  - {{name: fresh, {YES}, assert: [{{type: contains, value: paid back}}]}}\n")
    with suite.provider(TURNS):
        ran = suite.test("--record", "all", "--yes")
    spent = "Recording 1 case spent 3 requests, 45 tokens (no price is pinned for 3 of them).\n\n"
    assert (ran.code, ran.out) == (0, spent + "1 passed\n")
    assert f"{CASES}::fresh  recorded: cassettes/desk/fresh.yaml (7 interactions)" in ran.err
    assert list(trace) == ["lookup_order", "refund"]
    assert suite.test().code == 0
    assert list(trace) == ["lookup_order", "refund"]
    about = load_cassette(suite.root / "cassettes/desk/fresh.yaml").metadata
    assert (about["spec"], about["case"]) == ("specs/desk.yaml", "fresh")


def test_recorded_case_fails_if_its_assertion_fails(suite: Suite) -> None:
    suite.write(f"  - {{name: fresh, {YES}, assert: [{{type: contains, value: nowhere}}]}}\n")
    with suite.provider(TURNS):
        assert suite.test("--record", "all", "--yes").code == 1


def test_conversation_is_recorded_on_one_cassette(suite: Suite, trace: Iterable[str]) -> None:
    suite.write(TWO + "    assert: [{type: turns, value: 4}, {type: contains, value: welcome}]\n")
    with suite.provider(CONVERSATION):
        ran = suite.test("--record", "all", "--yes")
    assert ran.code == 0, ran.out
    assert "recorded: cassettes/desk/talk.yaml (8 interactions)" in ran.err
    assert list(trace) == ["lookup_order", "refund"]
    assert suite.test().code == 0
    last = load_cassette(suite.root / TALK_CASSETTE).interactions[-1]
    assert b"Done, 20.50 is paid back." in last.call.body


def test_turns_of_a_conversation_share_a_connection(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run in worlds of their own, with one HTTP client."""
    connections: list[socket.socket] = []
    add = ScriptedProvider.add_connection

    def count(server: ScriptedProvider, connection: socket.socket) -> None:
        connections.append(connection)
        add(server, connection)

    monkeypatch.setattr(ScriptedProvider, "add_connection", count)
    suite.write(TWO)
    with suite.provider(CONVERSATION):
        suite.test("--record", "all", "--yes")
        assert len(connections) == 1
        suite.test("--live-model")
    assert len(connections) == 2


def test_failed_conversation_does_not_replace_its_cassette(suite: Suite) -> None:
    suite.write(TWO)
    with suite.provider(CONVERSATION):
        suite.test("--record", "all", "--yes")
    before = (suite.root / TALK_CASSETTE).read_bytes()
    with suite.provider(TURNS + "  - faults: [{status: 401}]\n    text: no\n"):
        ran = suite.test("--record", "all", "--yes")
    assert ran.code == 3
    assert "record: not recorded: the run failed with provider.fatal" in ran.out
    assert (suite.root / TALK_CASSETTE).read_bytes() == before


def test_case_that_could_not_be_recorded_is_missed(suite: Suite) -> None:
    suite.write("  - {name: fresh, xfail: anything, assert: [{type: contains, value: x}]}\n")
    ran = suite.test("--record", "all", "--yes")
    assert ran.code == 3
    assert "not recorded: " in ran.out
    assert "OPENAI_API_KEY" in ran.out
    assert "1 missed" in ran.out


def test_recording_without_approver_keeps_the_cassette(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    before = (suite.root / CASSETTE).read_bytes()
    with suite.provider(TURNS):
        ran = suite.test("--record", "all", "--yes")
    assert ran.code == 3
    assert "refund needs approval, but there is no terminal and no --approve; the existing cassette was kept" in ran.out
    assert (suite.root / CASSETTE).read_bytes() == before


@pytest.mark.parametrize(("answer", "tools"), [("all", ["lookup_order", "refund"]), ("none", ["lookup_order"])])
def test_approve_option_answers_during_recording(
    suite: Suite, trace: Iterable[str], answer: str, tools: list[str]
) -> None:
    suite.write("  - {name: fresh}\n")
    with suite.provider(TURNS):
        assert suite.test("--record", "all", "--yes", "--approve", answer).code == 0
    assert list(trace) == tools


@pytest.mark.parametrize(
    ("option", "by_case", "tools"),
    [("none", "approved", ["lookup_order"]), ("all", "denied", ["lookup_order", "refund"])],
)
def test_approve_wins_over_the_case_during_recording(
    suite: Suite, trace: Iterable[str], option: str, by_case: str, tools: list[str]
) -> None:
    """A person who writes `--approve none` is not overruled by a file. The case expects something else and fails."""
    suite.write(f"  - {{name: fresh, approvals: {{refund: {by_case}}}}}\n")
    with suite.provider(TURNS):
        assert suite.test("--record", "all", "--yes", "--approve", option).code in (1, 3)
    assert list(trace) == tools


def test_stubs_are_used_and_not_recorded(suite: Suite, trace: Iterable[str]) -> None:
    suite.write(f"  - {{name: fresh, {YES}, stubs: {{lookup_order: {{result: a stubbed order}}}}}}\n")
    with suite.provider(TURNS):
        assert suite.test("--record", "all", "--yes").code == 0
    assert list(trace) == ["refund"]
    cassette = load_cassette(suite.root / "cassettes/desk/fresh.yaml")
    assert not [each for each in cassette.interactions if each.call.url.startswith("tool://lookup_order")]
    assert suite.test().code == 0


def test_record_new_keeps_matching_interactions(suite: Suite, trace: Iterable[str]) -> None:
    suite.write(f"  - {{name: default, {YES}}}\n")
    with suite.provider(TURNS) as server:
        assert suite.test("--record", "new", "--yes").code == 0
        assert len(server.requests) == 0
    assert list(trace) == []
    suite.edit("specs/desk.yaml", "Look an order up", "Look every order up")
    with suite.provider(TURNS) as server:
        assert suite.test("--record", "new", "--yes").code == 0
        assert len(server.requests) == 4
    assert list(trace) == []


def test_record_from_n_keeps_the_interactions_before_n(suite: Suite) -> None:
    suite.write(f"  - {{name: default, {YES}}}\n")
    with suite.provider(TURNS.replace("Done, 20.50 is paid back.", "Paid.")) as server:
        ran = suite.test("--record", "from:7", "--yes")
        assert len(server.requests) == 1, ran.out
    assert "(7 interactions, 6 of them kept)" in ran.err
    assert load_cassette(suite.root / CASSETTE).interactions[-1].reply.body.find(b"Paid") > 0
    ran = suite.test("--record", "from:9", "--yes")
    assert ran.code == 3
    assert "cannot record from:9: the cassette has 7 interactions" in ran.out


def test_shared_cassette_is_recorded_by_the_case_of_its_name(suite: Suite) -> None:
    sharing = "  - {name: sharing, cassette: fresh, input: Please refund 20 of order 1042.}\n"
    suite.write(sharing, f"  - {{name: fresh, {YES}}}\n")
    with suite.provider(TURNS):
        ran = suite.test("--record", "all", "--yes", "--json")
    assert ran.statuses() == {"sharing": "missed", "fresh": "passed"}
    assert not (suite.root / "cassettes/desk/sharing.yaml").exists()
    assert suite.test("--json").statuses() == {"sharing": "passed", "fresh": "passed"}


def test_live_tools_execute_the_tools(suite: Suite, trace: Iterable[str]) -> None:
    suite.write("  - {name: default}\n")
    ran = suite.test("--live-tools", "--approve", "all")
    assert ran.code == 0, ran.out
    assert list(trace) == ["lookup_order", "refund"]


@pytest.mark.parametrize(
    "case",
    [
        "{name: default}",
        "{name: default, approvals: {refund: approved}}",
        "{name: default, faults: [{at: 'approval:refund', inject: {answer: approved}}]}",
    ],
    ids=["cassette", "cases file", "fault"],
)
def test_live_tool_is_not_approved_by_a_file(suite: Suite, trace: Iterable[str], case: str) -> None:
    """The cassette has an approved answer, and the case may have another."""
    suite.write(f"  - {case}\n")
    ran = suite.test("--live-tools")
    assert list(trace) == ["lookup_order"]
    assert ran.code == 3
    no_answer = "refund needs approval, but there is no terminal and no --approve; the cassette has approved"
    assert f"likely cause: {no_answer}" in ran.out
    assert "--record" not in ran.out, "recording it again is no answer to the question"


def test_miss_caused_by_approve_names_the_changed_approval(suite: Suite) -> None:
    suite.write("  - {name: default}\n")
    ran = suite.test("--live-tools", "--approve", "none")
    assert ran.code == 3
    assert (
        "likely cause: the approval of refund is now denied (by --approve none), but the cassette has approved"
        in ran.out
    )


def test_changed_result_of_a_live_tool_is_a_miss(suite: Suite) -> None:
    suite.write(f"  - {{name: default, {YES}}}\n")
    suite.edit("python/shop.py", "39.9", "40.9")
    assert suite.test().code == 0
    missed = suite.test("--live-tools", "--approve", "all")
    assert missed.code == 3
    assert "record again: agentrun test specs/desk.cases.yaml::default --record all" in missed.out, "new keeps results"


def test_live_model_asks_the_model_and_runs_no_tool(suite: Suite, trace: Iterable[str]) -> None:
    suite.write("  - {name: default, assert: [{type: contains, value: another model}]}\n")
    with suite.provider(TURNS.replace("Done, 20.50 is paid back.", "I am another model.")):
        ran = suite.test("--live-model")
    assert ran.code == 0, ran.out
    assert list(trace) == []


def test_record_with_update_accepts_the_journal(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE.replace("{name: default", f"{{name: fresh, {YES}"))
    with suite.provider(TURNS):
        assert suite.test("--record", "all", "--yes", "--update").code == 0
    assert suite.test().out == "1 passed\n"


def test_recording_writes_no_key_to_any_file(suite: Suite) -> None:
    suite.write(f"  - {{name: fresh, {YES}}}\n")
    with suite.provider(TURNS):
        suite.test("--record", "all", "--yes", "--junit", "junit.xml")
    for path in suite.root.rglob("*"):
        assert not path.is_file() or b"sk-desk-1234567890abcdef" not in path.read_bytes()


@pytest.mark.parametrize(
    "given", [(), ("--record", "all", "--yes"), ("--record", "new", "--yes"), ("--live-tools",), ("--live-model",)]
)
def test_cassette_path_that_is_a_directory_is_reported_and_nothing_runs(
    suite: Suite, trace: Iterable[str], given: tuple[str, ...]
) -> None:
    suite.write(DEFAULT_CASE)
    (suite.root / CASSETTE).unlink()
    (suite.root / CASSETTE).mkdir()
    with suite.provider(TURNS) as server:
        ran = suite.test(*given)
        assert (ran.code, server.requests, list(trace)) == (3 if "--record" in given else 1, [], [])
    assert f"the cassette {CASSETTE} cannot be read: it is a directory" in ran.out
