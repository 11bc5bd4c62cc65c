"""Attacks on approvals at the terminal, where the question must show what runs and only a typed yes approves.

Each goes through a whole run, with the real command in a real terminal.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from threading import Event

import pytest

from ..cli.shop_project import Project
from ..cli.terminal_user import PATIENCE, Person, at_terminal
from ..report.terminals import unexpected_sequences

OPEN_ARGS = "{type: object, properties: {order: {type: string}}, additionalProperties: true}"
"""Arguments may have any other name."""
FAKE = "approval needed: run the tool look\\ny  yes, once\\nGo ahead? [y/s/d/N] "


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.edit("desk.py", "def refund(order: str, amount: float) -> str:", "def refund(**given: object) -> str:")
    project.edit("desk.py", 'file.write(f"refund {order} {amount}\\n")', 'file.write(f"refund {sorted(given)}\\n")')
    project.edit("shop.yaml", '"desk:refund"', f'"desk:refund", args: {OPEN_ARGS}')
    return project


def script_with_refund(args: object, text: str = "", wait: str = "") -> str:
    """A script in which the model calls `refund`, saying something first."""
    said = f'text: "{text}"\n    {wait}' if text else ""
    return f'agentrun: "1"\nturns:\n  - {said}calls: [{{tool: refund, args: {json.dumps(args)}}}]\n  - text: Done.\n'


def question(person: Person) -> str:
    """What is asked, from the title on."""
    return person.until("n  no (the same as Enter", "\nGo ahead? [y/s/d/N]").rpartition("approval needed: ")[2]


def deny_and_check(person: Person, shop: Project) -> None:
    person.type("n\n")
    person.end()
    assert shop.traces() == []
    assert unexpected_sequences(person.seen.raw) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("\x1b[2J", r'argument  "\x1b[2J" = 1'),
        ("rule", "argument  rule = 1"),
        ("x\n  rule      reads", r'argument  "x\n  rule      reads" = 1'),
        ("\u202exyz", r'argument  "\u202exyz" = 1'),
    ],
    ids=["control", "label", "row", "direction"],
)
def test_hostile_argument_names_are_quoted(shop: Project, name: str, shown: str) -> None:
    """Nothing that the model names can be taken for a word of ours."""
    with shop.provider(script_with_refund({name: 1})) as (_, environment), at_terminal(shop, environment) as person:
        assert f"\n  {shown}\n" in question(person)
        deny_and_check(person, shop)


def test_value_that_imitates_the_question_stays_quoted(shop: Project) -> None:
    """Blanks up to the next row, and then our own words: they stand in quotes, and not at the margin."""
    value = "x" + " " * 60 + "y  yes, once" + " " * 51 + "Go ahead? [y/s/d/N] y"
    with (
        shop.provider(script_with_refund({"order": value})) as (_, environment),
        at_terminal(shop, environment) as person,
    ):
        asked = question(person)
        margin = [line for line in asked.splitlines() if line and not line.startswith(" ")]
        assert [line[0] for line in margin[1:]] == ["!", "y", "s", "d", "n", "G"]
        assert "! a gap of 60 blanks" in asked
        deny_and_check(person, shop)


def test_answer_to_a_question_faked_by_the_model_is_discarded(shop: Project) -> None:
    """What is typed to a false question does not answer the true one."""
    script = script_with_refund({"order": "1"}, FAKE, "chunk: 5\n    ")
    typed = Event()
    with (
        shop.provider(script, listen=lambda received: typed.wait(60)) as (_, environment),
        at_terminal(shop, environment) as person,
    ):
        person.until("turn 1")
        person.type("y\ny\ny")
        typed.set()
        prompt = "Go ahead? [y/s/d/N]"
        person.seen.until(lambda shown: "n  no (the same as Enter" in shown and shown.endswith(prompt), PATIENCE)
        deny_and_check(person, shop)


def test_text_of_the_model_is_not_part_of_the_question(shop: Project) -> None:
    script = script_with_refund({"order": "1"}, "This only reads. It is safe.")
    with shop.provider(script) as (_, environment), at_terminal(shop, environment) as person:
        asked = question(person)
        assert "safe" not in asked
        assert asked.startswith("run the tool refund\n  rule      money\n")
        deny_and_check(person, shop)


def test_hundred_arguments_are_shortened_and_shown_in_the_details(shop: Project) -> None:
    """That some are not shown is said, and all of them can be seen."""
    args = {f"a{number}": "x" for number in range(100)} | {"path": "~"}
    with shop.provider(script_with_refund(args)) as (_, environment), at_terminal(shop, environment, rows=24) as person:
        asked = question(person)
        assert 'argument  path = "~"' in asked
        assert "only a part is shown" in asked
        person.type("d\n")
        for piece in range(1, 5):
            person.until_times("Enter shows more", piece)
            person.type("\n")
        shown = person.until_times("Go ahead?", 2)
        person.type("n\n")
        assert set(re.findall(r"argument  (a\d+) =", shown)) == {f"a{number}" for number in range(100)}
        person.end()
    assert shop.traces() == []


def test_question_stays_visible_in_a_small_terminal(shop: Project) -> None:
    """The last rows are the question's own words, whatever there is no room for."""
    with (
        shop.provider(script_with_refund({"order": "x\n" * 5000})) as (_, environment),
        at_terminal(shop, environment, columns=20, rows=8) as person,
    ):
        person.until("Go ahead?")
        assert "Go ahead? [y/s/d/N]" in "\n".join(person.seen.screen.display)
        deny_and_check(person, shop)


def test_recorded_approval_of_an_edited_question_approves_nothing(shop: Project) -> None:
    """An edited cassette: what was approved is another call, so nothing is approved."""
    with shop.provider(script_with_refund({"order": "1"})) as (_, environment):
        shop.run("--mode", "record", "--yes", "--approve", "all", **environment)
    traces = shop.traces()
    text = shop.cassette.read_text()
    at = text.index("uri: approval://refund")
    shop.cassette.write_text(text[:at] + text[at:].replace('"order": "1"', '"order": "2"', 1))
    done = shop.run()
    assert (done.code, shop.traces()) == (3, traces)


def test_approval_for_the_session_does_not_cover_a_look_alike(shop: Project) -> None:
    """A yes for one call is none for the next one, which differs in a single character."""
    script = """\
agentrun: "1"
turns:
  - calls: [{tool: refund, args: {order: "paypal"}}]
  - calls: [{tool: refund, args: {order: "p\\u0430ypal"}}]
  - text: Done.
"""
    with shop.provider(script) as (_, environment), at_terminal(shop, environment, rows=50) as person:
        assert "look-alike" not in question(person)
        person.type("s\n")
        shown = person.until_times("Go ahead?", 2)
        assert "look-alike characters: U+0430" in shown
        person.type("n\n")
        person.end()
    assert len(shop.traces()) == 1
