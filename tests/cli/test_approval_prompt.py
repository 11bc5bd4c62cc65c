"""Approvals at a terminal, with the question on the screen and what each answer means."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from threading import Event
from typing import Any

import pytest

from agentrun.cli.approval_prompt import APPROVAL_PROMPT, build_approval_question
from agentrun.engine.approvals import DetailedQuestion
from agentrun.report.approval_question import choice_lines, short_question_lines

from ..core.script import tool as tool_of
from ..packages import package
from ..report.terminals import unexpected_sequences
from .command import ROOT, SCRIPT
from .shop_project import STORY, Project
from .terminal_user import at_terminal

ONCE = STORY.replace('    faults: [{status: 429, headers: {retry-after: "0"}}]\n', "")
"""The story without a retry: what is shown is the same every time."""
QUESTION_TEXT = """\
  → refund {"amount":20,"order":"1042"}
  ? refund: needs approval (by money: money)
approval needed: run the tool refund
  rule      money
  reason    money
  function  desk:refund
  argument  amount = 20
  argument  order = "1042"
y  yes, once
s  yes, for all identical questions in this run
d  show everything
n  no (the same as Enter, or no answer within 120 s)
Go ahead? [y/s/d/N]"""
TWO = """\
agentrun: "1"
turns:
  - calls:
      - {tool: refund, args: {order: "1", amount: 1.0}}
      - {tool: refund, args: {order: "2", amount: 2.0}}
  - text: Done.
"""


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return Project(tmp_path)


def answers(shop: Project) -> list[tuple[str, str]]:
    facts = [json.loads(line)["fact"] for line in (shop.root / "run.jsonl").read_text().splitlines()]
    return [(fact["answer"], fact["by"]) for fact in facts if fact["type"] == "approval_answered"]


@pytest.mark.parametrize(
    ("typed", "echo", "answer", "told"),
    [
        ("y\n", " y", "approved", "refund: approved by terminal"),
        ("YES\n", " YES", "approved", "refund: approved by terminal"),
        ("s\n", " s", "approved_for_session", "refund: approved for the session by terminal"),
        ("n\n", " n", "denied", "refund: denied by terminal"),
        ("\n", "", "denied", "refund: denied by terminal"),
        ("\x04", "", "denied", "refund: denied by terminal"),
        ("y\x04\x04", " y", "denied", "refund: denied by terminal"),
    ],
    ids=["y", "yes", "s", "n", "enter", "end", "half"],
)
def test_typed_answer_is_recorded_and_the_screen_is_complete(
    shop: Project, typed: str, echo: str, answer: str, told: str
) -> None:
    """The whole screen before and after: the question stands between the lines of the story, and nothing is lost."""
    with (
        shop.provider(ONCE) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl", "--no-color", fresh=typed == "y\n") as person,
    ):
        before = person.until("Go ahead?")
        assert before.endswith(QUESTION_TEXT), before
        assert person.seen.cursor_visible
        person.type(typed)
        code, after = person.end()
    assert (code, person.out) == (0, "Done.\n")
    assert after.startswith(before + echo), after
    assert told in after[len(before) :]
    assert answers(shop) == [(answer, "terminal")]
    assert ("refund 1042 20" in shop.traces()) == answer.startswith("approved")
    assert unexpected_sequences(person.seen.raw) == []
    assert person.seen.cursor_visible


DEFAULT_ASKED = """\
  → refund {"order":"1042"}
  refund: by default {"amount":20}
  ? refund: needs approval (by money: money)
    the condition of money cannot be evaluated: Key not found in map : "refund"
approval needed: run the tool refund
  rule      money
  reason    money
  warning   the condition of money cannot be evaluated: Key not found in map :
            "refund"
  function  desk:refund
  argument  order = "1042"
  argument  amount = 20
y  yes, once
s  yes, for all identical questions in this run
d  show everything
n  no (the same as Enter, or no answer within 120 s)
Go ahead? [y/s/d/N]"""


def test_question_shows_defaults_and_why_the_condition_has_no_value(shop: Project) -> None:
    shop.edit("desk.py", "amount: float)", "amount: float = 20.0)")
    shop.edit("shop.yaml", "ask: refund,", 'ask: refund, when: "args.amount > 50.0 || calls.refund > 1",')
    with (
        shop.provider(ONCE.replace(", amount: 20.0", "")) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl", "--no-color") as person,
    ):
        before = person.until("Go ahead?")
        assert before.endswith(DEFAULT_ASKED), before
        person.type("y\n")
        assert person.end()[0] == 0
    assert "refund 1042 20" in shop.traces()
    assert answers(shop) == [("approved", "terminal")]


def test_input_typed_before_the_question_is_discarded(shop: Project) -> None:
    """Whole lines and half a line from before are thrown away."""
    typed = Event()
    with (
        shop.provider(ONCE, listen=lambda received: typed.wait(60)) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl") as person,
    ):
        person.until("turn 1")
        person.type("y\ny\nyes\ny")
        typed.set()
        person.until("Go ahead?")
        person.type("\n")
        assert person.end()[0] == 0
    assert answers(shop) == [("denied", "terminal")]
    assert "refund 1042 20" not in shop.traces()


def test_unknown_input_is_asked_about_once(shop: Project) -> None:
    with (
        shop.provider(ONCE) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl") as person,
    ):
        person.until("Go ahead?")
        person.type("perhaps\ny\n")  # what was pasted with it is no answer
        person.until("Please type y, s, d or n:")
        person.type("ja\n")
        person.end()
    assert answers(shop) == [("denied", "terminal")]


def test_question_without_an_answer_in_time_is_denied(shop: Project) -> None:
    shop.edit("shop.yaml", "  default: deny", "  default: deny\n  approval_timeout: 1s")
    with (
        shop.provider(ONCE) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl", "--no-color") as person,
    ):
        person.until("no answer within 1 s", "Go ahead?")
        person.type("y")
        code, shown = person.end()
    assert code == 0
    assert "no answer within 1 s: denied\n  refund: no answer in time" in shown
    assert answers(shop) == [("timed_out", "clock")]
    assert "refund 1042 20" not in shop.traces()


def test_ctrl_c_cancels_the_run(shop: Project) -> None:
    with (
        shop.provider(ONCE) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl") as person,
    ):
        person.until("Go ahead?")
        person.type("\x03")
        code, shown = person.end()
    assert (code, answers(shop)) == (130, [])
    assert "cancelling" in shown
    assert "refund 1042 20" not in shop.traces()


def test_closed_terminal_parks_the_run_without_the_call(shop: Project) -> None:
    with (
        shop.provider(ONCE) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl", fresh=True) as person,
    ):
        person.until("Go ahead?")
        person.seen.hang_up()
        with suppress(OSError):  # it is gone already if nobody was reading at its other end
            person.seen.stream.write("?")  # whoever reads there finds it closed
            person.seen.stream.flush()
        assert person.run.wait(timeout=60) == 8
    assert "refund 1042 20" not in shop.traces()
    last = json.loads((shop.root / "run.jsonl").read_text().splitlines()[-1])["fact"]
    assert last["type"] == "approval_asked", "it is asked again when the run is resumed"


# --- several questions -------------------------------------------------------------------------------------------


def test_two_questions_are_put_one_after_the_other(shop: Project) -> None:
    with (
        shop.provider(TWO) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl") as person,
    ):
        first = person.until("Go ahead?")
        assert first.count("approval needed") == 1
        assert 'order = "1"' in first
        person.type("n\n")
        person.until('order = "2"')
        person.until_times("Go ahead?", 2)
        person.type("y\n")
        assert person.end()[0] == 0
    assert sorted(answers(shop)) == [("approved", "terminal"), ("denied", "terminal")]
    assert shop.traces() == ["refund 2 2"]


TIME_BY_HAND = """\
import asyncio, pathlib
asyncio.BaseEventLoop.time = lambda loop: pathlib.Path("later").exists() * 3.0
"""
"""The time of event loops is 3 seconds when there is a file, and 0 before."""


def test_approval_timeout_begins_when_the_question_is_shown(shop: Project) -> None:
    shop.edit("shop.yaml", "  default: deny", "  default: deny\n  approval_timeout: 60s")
    (shop.root / "site").mkdir()
    (shop.root / "site/sitecustomize.py").write_text(TIME_BY_HAND)
    with (
        shop.provider(TWO) as (_, environment),
        at_terminal(
            shop, {**environment, "PYTHONPATH": str(shop.root / "site")}, "--journal", "run.jsonl", fresh=True
        ) as person,
    ):
        person.until("Go ahead?")
        (shop.root / "later").touch()  # while the second question waits
        person.type("n\n")
        shown = person.until_times("Go ahead?", 2)
        person.type("y\n")
        person.end()
    assert 'order = "2"' in shown
    left = re.findall("no answer within ([0-9]+) s", shown)
    assert left == ["60", "60"]  # 57 if its time had begun with that of the first one
    assert shop.traces() == ["refund 2 2"]


def test_approval_for_the_session_covers_only_the_same_arguments(shop: Project) -> None:
    again = ONCE.replace("  - text: Done.", "").rstrip() + (
        '\n  - calls: [{tool: refund, args: {order: "1042", amount: 20.0}}]'
        '\n  - calls: [{tool: refund, args: {order: "1042", amount: 21.0}}]\n  - text: Done.\n'
    )
    with (
        shop.provider(again) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl") as person,
    ):
        person.until("Go ahead?")
        person.type("s\n")
        person.until("amount = 21")
        person.until_times("Go ahead?", 2)
        person.type("n\n")
        person.end()
    assert shop.traces() == ["look 1042", "refund 1042 20", "refund 1042 20"]


def test_question_says_session_when_the_run_has_one(shop: Project) -> None:
    with shop.provider(ONCE) as (_, environment), at_terminal(shop, environment, "--new-session", "mine") as person:
        person.until("s  yes, for all identical questions in this session")


# --- what is shown -----------------------------------------------------------------------------------------------


def script_with_refund(order: str) -> str:
    """A script in which the model wants a refund of this."""
    text = json.dumps({"order": order, "amount": 1.0})
    return f'agentrun: "1"\nturns:\n  - calls: [{{tool: refund, args: {text}}}]\n  - text: Done.\n'


HOSTILE = "\x1b]52;c;eA==\x07\x1b[2J\x1b[1;1Hsafe\r\x9b5m\u202egnp.exe\u200bp\u0430y"


@pytest.mark.parametrize(("columns", "rows", "term"), [(80, 24, "xterm"), (24, 60, "xterm"), (80, 24, "dumb")])
def test_control_characters_in_arguments_are_escaped(shop: Project, columns: int, rows: int, term: str) -> None:
    with (
        shop.provider(script_with_refund(HOSTILE)) as (_, environment),
        at_terminal(shop, environment, columns=columns, rows=rows, term=term) as person,
    ):
        shown = person.until("Go ahead?")
        person.type("n\n")
        person.end()
    joined = re.sub(r"\n *", "", shown)
    for text in (r"\x1b]52;c;eA==\x07", r"\x1b[2J", r"safe\r\x9b5m\u202egnp.exe\u200bp"):
        assert text in joined, shown
    assert "U+001B" in joined
    assert "U+0430" in joined
    assert unexpected_sequences(person.seen.raw) == []


@pytest.mark.parametrize("filling", ["\n", " ", "x", "\n \t"], ids=["lines", "blanks", "letters", "mixed"])
def test_long_argument_is_shortened_so_that_the_question_stays_visible(shop: Project, filling: str) -> None:
    """200 kB: the beginning, the end, the length and the hash are on the screen, with the question. Escaped twice, it
    is more than a stored record may have."""
    order = "harmless" + filling * (200_000 // len(filling)) + "rm -rf ~"
    with (
        shop.provider(script_with_refund(order)) as (_, environment),
        at_terminal(shop, {**environment, "AGENTRUN_STORE": "none"}, rows=24) as person,
    ):
        person.until("Go ahead?")
        screen = "\n".join(person.seen.screen.display)
        person.type("n\n")
        person.end()
    for text in ("approval needed: run the tool refund", "harmless", "rm -rf ~", " characters, sha256:", "Go ahead?"):
        assert text in screen, screen


def test_details_are_shown_page_by_page(shop: Project) -> None:
    order = "begin" + "x" * 3000 + "end"
    with (
        shop.provider(script_with_refund(order)) as (_, environment),
        at_terminal(shop, environment, rows=20) as person,
    ):
        person.until("Go ahead?")
        person.type("d\n")
        for piece in (1, 2):
            person.until_times("Enter shows more", piece)
            person.type("\n")
        shown = re.sub(r"\nEnter shows more, q goes back:\s*\n", "\n", person.until_times("Go ahead?", 2))
        assert "begin" + "x" * 3000 + "end" in re.sub(r"\n +", "", shown)
        person.type("d\n")
        person.until_times("Enter shows more", 3)
        person.type("q\n")
        person.until_times("Go ahead?", 3)
        person.type("y\n")
        person.end()
    assert [line for line in shop.traces() if line.startswith("refund begin")]


SHELL = """\
  wipe:
    kind: shell
    description: Removes a file.
    argv: [ls, "--", "{{ args.path }}"]
    args: {type: object, properties: {path: {type: string}}, required: [path]}
  post:
    kind: http
    description: Sends it.
    method: POST
    url: "https://api.example.com/orders/{{ args.id }}"
    query: {"q": "{{ args.id }}"}
    body: {"id": "{{ args.id }}"}
    args: {type: object, properties: {id: {type: string}}, required: [id]}
policy:
  default: ask
"""


def test_question_shows_the_exact_command_and_request(shop: Project) -> None:
    shop.edit("shop.yaml", "policy:\n  default: deny\n", SHELL)
    script = """\
agentrun: "1"
turns:
  - calls: [{tool: wipe, args: {path: "a b; rm -rf ~"}}]
  - calls: [{tool: post, args: {id: "1 2?x"}}]
  - calls: [{tool: post, args: {id: "../1"}}]
  - text: Done.
"""
    with shop.provider(script) as (_, environment), at_terminal(shop, environment, columns=100) as person:
        shown = person.until("Go ahead?")
        assert re.search(r'  command   "/[^"]*/ls" "--" "a b; rm -rf ~"\n  in        the project\'s folder\n', shown)
        assert "  rule      the policy's default\n" in shown
        person.type("n\n")
        person.until_times("Go ahead?", 2)
        shown = person.shown
        assert '  request   POST "https://api.example.com/orders/1%202%3Fx?q=1%202%3Fx"\n' in shown
        assert '  host      "api.example.com"\n' in shown
        assert '  body      "{\\"id\\":\\"1 2?x\\"}"\n' in shown
        person.type("n\n")
        person.until("  request   will not be sent: a value for the path of the address contains a slash\n")
        person.until_times("Go ahead?", 3)
        person.type("n\n")
        person.end()


def test_question_shows_the_arguments_that_a_rule_modified(shop: Project) -> None:
    shop.edit(
        "shop.yaml",
        "    - {id: money,",
        "    - {id: at-most-five, modify: refund, when: args.amount > 5.0, set: {amount: 5.0}}\n    - {id: money,",
    )
    shop.edit("shop.yaml", "ask: refund,", 'ask: refund, when: "args.amount <= 5.0",')
    with shop.provider(ONCE) as (_, environment), at_terminal(shop, environment) as person:
        shown = person.until("Go ahead?")
        person.type("y\n")
        person.end()
    assert "argument  amount = 5\n" in shown
    assert "amount = 20" not in shown
    assert "refund 1042 5" in shop.traces()


CHILD = """\
agentrun: "1"
name: cleaner
description: Cleans up.
model: {provider: openai, name: gpt-4.1-mini}
instructions: You clean up.
params: {place: {type: string}}
tools:
  wipe: {kind: shell, description: Lists it., argv: [ls, "{{ place }}/x"]}
policy: {default: ask}
budgets: {turns: 3, tokens: 2k}
"""


def test_look_alike_characters_in_sub_agent_params_are_reported(shop: Project) -> None:
    """The params of a sub-agent come from its parent's model: a look-alike among them is as bad as in an argument."""
    (shop.root / "cleaner.yaml").write_text(CHILD, encoding="utf-8")
    shop.edit("shop.yaml", "tools:\n", "tools:\n  clean: {kind: agent, spec: cleaner.yaml}\n")
    shop.edit("shop.yaml", "allow: look}", "allow: [look, clean]}")
    script = """\
agentrun: "1"
turns:
  - calls: [{tool: clean, args: {message: "Go.", place: "d\u0430ta"}}]
  - calls: [{tool: wipe, args: {}}]
  - text: Cleaned.
  - text: Done.
"""
    with shop.provider(script) as (_, environment), at_terminal(shop, environment, columns=100) as person:
        shown = person.until("Go ahead?")
        assert '"d\u0430ta/x"\n' in shown
        assert "! look-alike characters: U+0430 (cyrillic small letter a)\n" in shown
        person.type("n\n")
        person.end()


def test_input_output_and_delivery_can_be_approved(shop: Project) -> None:
    sinks = "sinks: {report: {kind: file, path: report.txt, delivery: required}}\n"
    rules = """\
    - {id: in, on: input, ask: "*"}
    - {id: out, on: output, ask: "*"}
    - {id: send, on: delivery, ask: report}
"""
    shop.edit("shop.yaml", "    - {id: money,", f"{rules}    - {{id: money,")
    shop.spec.write_text(shop.spec.read_text() + sinks)
    script = 'agentrun: "1"\nturns: [{text: "It is \\u001b[2J late."}]\n'
    with shop.provider(script) as (_, environment), at_terminal(shop, environment, rows=60) as person:
        for number, title in enumerate(
            (
                'approval needed: send the input to the model\n  rule      in\n  text      "Where is order 1042?"\n',
                'approval needed: return the answer\n  rule      out\n  text      "It is \\x1b[2J late."\n',
                'approval needed: send the answer to the sink report\n  rule      send\n  file      "report.txt"\n',
            ),
            1,
        ):
            person.until(title)
            person.until_times("Go ahead?", number)
            person.type("y\n")
        assert person.end()[0] == 0


# --- who is asked ------------------------------------------------------------------------------------------------


def test_answer_of_an_approve_file_is_used_before_the_terminal(shop: Project) -> None:
    (shop.root / "some.yaml").write_text("refund: denied\n")
    with (
        shop.provider(ONCE) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl", "--approve", "some.yaml") as person,
    ):
        assert person.end()[0] == 0
    assert answers(shop) == [("denied", "--approve some.yaml")]


def test_terminal_asks_about_tools_missing_in_the_approve_file(shop: Project) -> None:
    (shop.root / "some.yaml").write_text("look: denied\n")
    with (
        shop.provider(ONCE) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl", "--approve", "some.yaml") as person,
    ):
        person.until("Go ahead?")
        person.type("y\n")
        assert person.end()[0] == 0
    assert answers(shop) == [("approved", "terminal")]


@pytest.mark.parametrize("args", [("--json",), ("-q",), ("--mode", "live")], ids=lambda args: args[0])
def test_terminal_does_not_ask_with_json_quiet_or_ci(shop: Project, args: tuple[str, ...]) -> None:
    """Nor is anybody in CI."""
    environment = {"CI": "1"} if args[0] == "--mode" else {}
    with (
        shop.provider(ONCE) as (_, given),
        at_terminal(shop, {**given, **environment}, "--journal", "run.jsonl", *args) as person,
    ):
        assert person.end()[0] == 8
    assert "Go ahead?" not in person.shown
    assert answers(shop) == []


@pytest.mark.parametrize("args", [("--json",), ("-q",)], ids=lambda args: args[0])
def test_approve_ask_asks_at_the_terminal_with_json_or_quiet(shop: Project, args: tuple[str, ...]) -> None:
    with (
        shop.provider(ONCE) as (_, environment),
        at_terminal(shop, environment, "--journal", "run.jsonl", "--approve", "ask", *args) as person,
    ):
        person.until("Go ahead?")
        person.type("y\n")
        assert person.end()[0] == 0
    assert answers(shop) == [("approved", "terminal")]


def test_without_a_terminal_the_run_is_suspended_and_approve_ask_is_refused(shop: Project) -> None:
    """Nobody is asked, and it takes no time. Whoever insists hears of it before anything happens."""
    with shop.provider(ONCE) as (server, environment):
        done = shop.run("--journal", "run.jsonl", **environment)
        assert (done.code, answers(shop)) == (8, [])
        asked = len(server.requests)
        done = shop.run("--approve", "ask", **environment)
        assert (done.code, done.out, len(server.requests)) == (2, "", asked)
        assert "--approve ask needs a terminal" in done.err


def test_run_stopped_by_a_missing_approval_suggests_approve(shop: Project) -> None:
    shop.edit("shop.yaml", 'call: "desk:refund"', 'call: "desk:refund", on_denied: stop')
    with shop.provider(ONCE) as (_, environment):
        done = shop.run(AGENTRUN_STORE="none", **environment)
    assert done.code == 4
    assert "approval.unavailable" in done.err
    assert "--approve" in done.err


def test_run_in_the_background_does_not_ask(shop: Project) -> None:
    """A process that reads from a terminal that is not its own is stopped, and would wait for ever."""
    with shop.provider(ONCE) as (_, environment), at_terminal(shop, environment, "--mode", "replay") as person:
        run = subprocess.Popen(
            [SCRIPT, "shop.yaml", "--journal", "run.jsonl"],
            cwd=shop.root,
            env={"PATH": os.environ["PATH"], "TERM": "xterm", **environment},
            stdin=person.seen.stream.fileno(),
            stdout=subprocess.PIPE,
            stderr=person.seen.stream.fileno(),
            process_group=0,
        )
        run.communicate(timeout=60)
    assert (run.returncode, answers(shop)) == (8, [])


SHELL_THAT_TAKES_IT_BACK = """\
import os, pathlib, signal, subprocess, sys, time
run = subprocess.Popen(sys.argv[1:], process_group=0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, run.pid)
while not pathlib.Path("taken").exists():
    time.sleep(0.01)
os.tcsetpgrp(0, os.getpgrp())
sys.exit(run.wait())
"""
"""What a shell does for Ctrl-Z and `bg`: a command begins in the foreground and goes on in the background."""


def test_question_moved_to_the_background_times_out(shop: Project) -> None:
    """Who sets a terminal from the background is stopped too, and would wait for ever."""
    shop.edit("shop.yaml", "  default: deny\n", "  default: deny\n  approval_timeout: 2s\n")
    command = [sys.executable, "-c", SHELL_THAT_TAKES_IT_BACK, SCRIPT, "shop.yaml", "--journal", "run.jsonl"]
    with shop.provider(ONCE) as (_, environment), at_terminal(shop, environment, command=command) as person:
        person.until("Go ahead?")
        (shop.root / "taken").touch()
        assert person.run.wait(60) == 0
        assert "no answer within 2 s: denied" in person.shown
    assert answers(shop) == [("timed_out", "clock")]


def test_recorded_terminal_answer_is_replayed_without_asking(shop: Project) -> None:
    """The answer is on the cassette without a name, and nobody is asked again."""
    with shop.provider(ONCE) as (_, environment), at_terminal(shop, environment, "--mode", "record", "--yes") as person:
        person.until("Go ahead?")
        person.type("y\n")
        assert person.end()[0] == 0
    assert re.search(r'"answer": "approved",\s*"by": "terminal"', shop.cassette.read_text())
    traces = shop.traces()
    for args in ((), ("--approve", "ask")):
        with at_terminal(shop, {}, *args) as person:
            code, shown = person.end()
        assert (code, "Go ahead?" in shown) == (0, False), shown
        assert "refund: approved by terminal" in shown
    assert shop.traces() == traces


def test_a_recorded_timeout_is_replayed(shop: Project) -> None:
    shop.edit("shop.yaml", "  default: deny", "  default: deny\n  approval_timeout: 1s")
    with shop.provider(ONCE) as (_, environment), at_terminal(shop, environment, "--mode", "record", "--yes") as person:
        assert person.end()[0] == 0
    done = shop.run()
    assert done.code == 0, done.err
    assert "refund: no answer in time" in done.err


def test_live_tools_ask_again_and_live_model_does_not(shop: Project) -> None:
    shop.record(story=ONCE)
    with at_terminal(shop, {}, "--live-tools") as person:
        person.until("Go ahead?")
        person.type("y\n")
        assert person.end()[0] == 0
    with shop.provider(ONCE) as (_, environment), at_terminal(shop, environment, "--live-model") as person:
        code, shown = person.end()
    assert (code, "Go ahead?" in shown) == (0, False), shown


def test_second_signal_ends_a_waiting_question_at_once(shop: Project) -> None:
    with shop.provider(ONCE) as (_, environment), at_terminal(shop, environment, fresh=True) as person:
        person.until("Go ahead?")
        for _ in range(2):
            person.run.send_signal(signal.SIGINT)
        assert person.run.wait(timeout=60) in (130, -signal.SIGINT)
        person.seen.drained()
        assert person.seen.cursor_visible


def test_help_describes_approve(shop: Project) -> None:
    done = shop.run("--help")
    assert "all|none|ask|FILE" in done.out
    shown: Any = re.sub(r"\s+", " ", done.out)
    assert "the person at the terminal" in shown


def test_guide_shows_the_real_approval_question() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"(?:^    .*\n)+", guide[guide.index("### Approvals") :].partition("\n## ")[0], re.MULTILINE)[
        :1
    ]
    tool = package(tools={"refund": tool_of(module="desk.refunds", function="refund")}).tools["refund"]
    asked = DetailedQuestion(
        *("c1.0", "sha256:q", "refund", {"amount": 900.0, "order_id": "1042"}, ("big-refunds",), None),
        agent="desk",
        tool=tool,
        sink=None,
        program=None,
        limit=120_000,
    )
    lines = [*short_question_lines(build_approval_question(asked, "desk"), 79, 24, 5), *choice_lines("run", 120, 79)]
    assert dedent(block) == "".join(f"{line.text}\n" for line in lines) + APPROVAL_PROMPT.rstrip() + "\n"
