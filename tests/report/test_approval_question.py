"""Rendering of an approval question: it fits the terminal, marks what is cut, and escapes foreign text."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.report import approval_question
from agentrun.report.approval_question import (
    ApprovalQuestion,
    QuestionItem,
    choice_lines,
    full_question_lines,
    make_question,
    short_question_lines,
    text_item,
    value_item,
)

from ..steps import no_hang
from .rendered_runs import HOSTILE
from .terminals import FOREIGN, terminal_text


def question_with(value: Any, *items: QuestionItem) -> ApprovalQuestion:
    named = (value_item("argument", each, name) for name, each in value.items()) if isinstance(value, dict) else ()
    return make_question("approval needed: run the tool t", [text_item("rule", "money")], items or tuple(named), value)


def texts(lines: Any) -> list[str]:
    return [line.text for line in lines]


def test_short_question_shows_every_argument() -> None:
    given = question_with({"amount": 20, "note": "late\nagain", "order": "1042"})
    assert (
        "\n".join(texts([*short_question_lines(given, 60, 24, 4), *choice_lines("run", 120, 60)]))
        == """\
approval needed: run the tool t
  rule      money
  argument  amount = 20
  argument  note = 2 lines
            1 "late"
            2 "again"
  argument  order = "1042"
y  yes, once
s  yes, for all identical questions in this run
d  show everything
n  no (the same as Enter, or no answer within 120 s)"""
    )


def test_long_argument_shows_start_end_length_and_hash() -> None:
    """A long text: its beginning, its end, its length, its hash."""
    value = {"command": "ls\n" + "\n" * 500 + "rm -rf ~", "order": "1042"}
    given = question_with(value)
    size = f"{len(sorted_json(value).decode()):,} characters, {text_hash(sorted_json(value).decode())[:39]}"
    assert (
        "\n".join(texts(short_question_lines(given, 100, 20, 4)))
        == f"""\
approval needed: run the tool t
  rule      money
  argument  command = 502 lines
              1 "ls"
              2 ""
              3 ""
              4 ""
    … 494 rows …
            499 ""
            500 ""
            501 ""
            502 "rm -rf ~"
  argument  order = "1042"
! a gap of 501 blanks or empty lines
! only a part is shown ({size}); d shows the rest"""
    )


def test_long_argument_does_not_hide_the_others() -> None:
    given = question_with({"a": "x" * 200_000, "b": "the end", "c": ["y" * 100_000], "d": 4})
    shown = "\n".join(texts(short_question_lines(given, 80, 24, 6)))
    for text in ('a = "xxx', 'b = "the end"', 'c = ["yyy', "d = 4", "only a part is shown (300,"):
        assert text in shown


def test_many_arguments_show_the_first_and_the_last() -> None:
    given = question_with({f"n{number}": number for number in range(500)})
    shown = texts(short_question_lines(given, 80, 24, 6))
    assert "  argument  n0 = 0" in shown
    assert "  argument  n499 = 499" in shown
    assert any("more …" in row for row in shown)
    assert any("only a part is shown" in row for row in shown)


def test_very_many_arguments_are_rendered_quickly() -> None:
    """More than a call may have: the work that their question takes grows as they do, and no faster."""
    given = question_with({f"n{number}": 1 for number in range(200_000)})
    with no_hang():  # it took minutes when each argument added up all before it
        assert len(short_question_lines(given, 80, 24, 6)) <= 24


TEXTS = st.text(alphabet='ab \n\t\x1b漢\u0430\u202e"\\', max_size=300)


@given(
    st.dictionaries(TEXTS, TEXTS | st.integers() | st.lists(TEXTS, max_size=3), max_size=30),
    st.integers(20, 120),
    st.integers(16, 60),
)
@example({"a": "\n" * 1000}, 20, 16)
def test_question_fits_the_terminal(value: dict[str, Any], width: int, height: int) -> None:
    """In a terminal with room for it the title never scrolls away, and no row is folded by the terminal."""
    given = question_with(value)
    below = choice_lines("session", 120, width)
    lines = [*short_question_lines(given, width, height, len(below) + 1), *below]
    least = len(short_question_lines(given, width, 0, 0)) + len(below) + 1
    assert len(lines) + 1 <= max(height - 1, least)
    shown = "\n".join(texts(lines))
    assert terminal_text(shown, width, 400) == "\n".join(row.rstrip() for row in texts(lines)).rstrip()
    assert FOREIGN.search(shown.replace("\n", "")) is None


@given(st.dictionaries(TEXTS, TEXTS | st.integers(), max_size=10), st.integers(20, 120))
def test_foreign_text_is_always_indented(value: dict[str, Any], width: int) -> None:
    given = question_with(value)
    for line in [*short_question_lines(given, width, 24, 6), *full_question_lines(given, width)]:
        if line.text and not line.text.startswith("  "):
            assert line.tone != "plain"


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("width", [10, 20, 79])
def test_hostile_text_is_escaped(text: str, width: int) -> None:
    given = question_with({"q": text.encode("utf-8", "replace").decode()[:5000]})
    for lines in (short_question_lines(given, width, 24, 6), full_question_lines(given, width)):
        assert FOREIGN.search("".join(texts(lines))) is None


def test_full_question_shows_everything() -> None:
    """All of it, however long."""
    given = question_with({"a": "x" * 10_000})
    shown = "".join(row[12:] for row in texts(full_question_lines(given, 80)) if row.startswith("  "))
    assert shown == 'moneya = "' + "x" * 10_000 + '"'
    assert texts(full_question_lines(given, 80))[-1].startswith("10,008 characters, sha256:")


def test_planted_missing_escape_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """With texts as they are a hostile one would act."""
    monkeypatch.setattr(approval_question, "escape_value", lambda value: f'"{value}"')
    given = question_with({"q": HOSTILE[1]})
    assert FOREIGN.search("".join(texts(short_question_lines(given, 79, 24, 6)))) is not None
