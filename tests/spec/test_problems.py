"""Rendering, masking, escaping and sorting of problems."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.spec.problems import (
    PROBLEM_CODES,
    DocumentError,
    Problem,
    Source,
    SourcePlace,
    did_you_mean,
    escape_invisible,
    quote_text,
    render_problem,
    sort_problems,
)

SPEC = "name: triage\npolicy:\n    tools: [serch, read_file]\n"
KEY = "sk-proj-" + "Ab3" * 16


def source(text: str, shown: str = "specs/triage.yaml") -> Source:
    return Source(Path("/p") / shown, shown, text)


def problem(text: str, line: int = 1, column: int = 1, width: int = 1, **rest: str) -> Problem:
    place = SourcePlace(source(text), line, column, width)
    return Problem(place, **{"code": "spec.unknown_tool", "message": "wrong", **rest})  # type: ignore[arg-type]  # the test gives the right kind


def caret(text: str) -> tuple[str, str]:
    """The excerpt and what stands under it, both without the gutter."""
    lines = text.split("\n")
    return lines[1][8:], lines[2][8:]


class TestRenderProblem:
    def test_place_message_excerpt_and_hint(self) -> None:
        reported = problem(SPEC, 3, 13, 5, message='tool "serch" is not declared', hint='did you mean "search"?')
        assert render_problem(reported) == (
            'specs/triage.yaml:3:13  spec.unknown_tool  tool "serch" is not declared\n'
            "    3 |     tools: [serch, read_file]\n"
            '      |             ^^^^^  did you mean "search"?'
        )

    def test_problem_without_hint_or_source_text(self) -> None:
        assert render_problem(problem("a: 1")).endswith("    1 | a: 1\n      | ^")
        assert render_problem(problem("")) == "specs/triage.yaml:1:1  spec.unknown_tool  wrong"
        assert render_problem(problem("", hint="save it")).endswith("wrong\n      save it")
        assert render_problem(problem("a", line=9)) == "specs/triage.yaml:9:1  spec.unknown_tool  wrong"

    def test_warning_label_and_colors(self) -> None:
        warned = problem("a: 1", severity="warning")
        assert "spec.unknown_tool  warning: wrong" in render_problem(warned)
        assert "\x1b" not in render_problem(warned)
        assert "\x1b[33m^\x1b[0m" in render_problem(warned, color=True)
        assert "\x1b[31mspec.unknown_tool\x1b[0m" in render_problem(problem("a: 1"), color=True)

    def test_caret_is_cut_at_the_end_of_the_line(self) -> None:
        assert caret(render_problem(problem("abc", column=2, width=50))) == ("abc", " ^^")
        assert caret(render_problem(problem("abc", column=90))) == ("abc", "   ^")

    @pytest.mark.parametrize(
        ("before", "cells"),
        [("日本", 4), ("é", 1), ("e\u0301", 1), ("\t", 1), ("\u202e", 6), ("😀", 2), ("\u200d", 6)],
    )
    def test_caret_position_counts_terminal_cells(self, before: str, cells: int) -> None:
        line, under = caret(render_problem(problem(before + "wrong", column=len(before) + 1, width=5)))
        assert under == " " * cells + "^^^^^"
        assert line.endswith("wrong")

    def test_caret_width_counts_terminal_cells(self) -> None:
        assert caret(render_problem(problem("a日本b", column=2, width=2))) == ("a日本b", " ^^^^")

    @pytest.mark.parametrize("column", [1, 39, 40, 500, 960, 999, 1000, 1001])
    def test_long_line_is_cut_around_the_caret(self, column: int) -> None:
        text = "".join(chr(ord("a") + i % 26) for i in range(1000))
        line, under = caret(render_problem(problem(text, column=column)))
        assert len(line) <= 102
        assert line.startswith("…") == (column > 41)
        assert line.endswith("…") == (column < 939)
        if column <= 1000:
            assert line[len(under) - 1] == text[column - 1]

    def test_line_is_cut_only_above_120_characters(self) -> None:
        assert caret(render_problem(problem("x" * 120)))[0] == "x" * 120
        assert caret(render_problem(problem("x" * 121)))[0] == "x" * 100 + "…"

    def test_two_problems_of_a_line_have_their_own_carets(self) -> None:
        reported = [render_problem(problem(SPEC, 3, column)) for column in (13, 20)]
        assert reported[0].split("\n")[1] == reported[1].split("\n")[1]
        assert caret(reported[0])[1] != caret(reported[1])[1]


class TestMasking:
    def test_secret_in_the_excerpt_is_masked(self) -> None:
        line, under = caret(render_problem(problem(f"key: {KEY} # x", column=6, width=len(KEY))))
        assert (line, under) == ("key: *** # x", "     ^^^")

    def test_caret_fits_the_masked_excerpt(self) -> None:
        assert caret(render_problem(problem(f"key: {KEY} # x", column=30, width=2)))[1] == "     ^^^"
        assert caret(render_problem(problem(f"key: {KEY} # x", column=7 + len(KEY))))[1] == "         ^"

    def test_value_under_a_credential_key_is_masked(self) -> None:
        assert caret(render_problem(problem("  password: hunter2")))[0] == "  password: ***"
        assert caret(render_problem(problem("api_key:\n  aB3dE6gH9jK2", 2)))[0] == "  ***"
        assert caret(render_problem(problem("api_key: |\n\n  aB3dE6gH9jK2", 3)))[0] == "  ***"
        assert caret(render_problem(problem("name:\n  aB3dE6gH9jK2", 2)))[0] == "  aB3dE6gH9jK2"

    def test_line_of_a_private_key_is_masked(self) -> None:
        text = "k: |\n  -----BEGIN PRIVATE " + "KEY-----\n  c2VjcmV0\n  -----END PRIVATE KEY-----\nname: x"
        assert caret(render_problem(problem(text, 3)))[0] == "  ***"
        assert caret(render_problem(problem(text, 5)))[0] == "name: x"

    def test_secret_cut_by_the_excerpt_is_masked(self) -> None:
        text = "x" * 200 + " " + KEY * 5 + " " + "y" * 200
        for column in range(1, len(text), 7):
            assert "Ab3" not in render_problem(problem(text, column=column))

    def test_secret_is_masked_in_message_hint_file_and_repr(self) -> None:
        reported = Problem(SourcePlace(source(f"a: {KEY}", f"{KEY}.yaml"), 1, 1), "spec.key", f"no {KEY}", f"not {KEY}")
        assert KEY not in render_problem(reported) + str(reported.as_json()) + quote_text(KEY)
        assert KEY not in repr(reported.place.source)

    def test_long_messages_are_cut(self) -> None:
        assert len(render_problem(problem("a", message="m" * 10_000))) < 700


class TestEscapeInvisible:
    @pytest.mark.parametrize(
        ("char", "shown"),
        [
            ("\x1b", "\\x1b"),
            ("\x9b", "\\x9b"),
            ("\r", "\\r"),
            ("\n", "\\n"),
            ("\t", "\\t"),
            ("\x7f", "\\x7f"),
            ("\u202e", "\\u202e"),
            ("\u2066", "\\u2066"),
            ("\u200b", "\\u200b"),
            ("\u2028", "\\u2028"),
            ("\ud800", "\\ud800"),
            ("\xa0", "\\xa0"),
            ("\xad", "\\xad"),
            ("\ufeff", "\\ufeff"),
            ("\u3164", "\\u3164"),
            ("\U000e0041", "\\U000e0041"),
            ("\U000e0100", "\\U000e0100"),
            ("\0", "\\x00"),
        ],
    )
    def test_invisible_character_is_escaped(self, char: str, shown: str) -> None:
        assert escape_invisible(f"a{char}b") == f"a{shown}b"

    @pytest.mark.parametrize("text", ["", "plain", "日本語\u3000é", "😀", 'a\\x1b"', "שלום"])
    def test_visible_text_is_unchanged(self, text: str) -> None:
        assert escape_invisible(text) == text

    @given(st.text(st.characters()))
    def test_escaped_text_is_printable(self, text: str) -> None:
        assert escape_invisible(text).replace("\u3000", " ").isprintable()

    @given(st.text(st.characters(), max_size=300), st.integers(1, 400), st.integers(1, 400))
    def test_rendered_problem_has_no_control_characters(self, text: str, column: int, width: int) -> None:
        reported = render_problem(problem(text, 1, column, width, message=text, hint=text))
        assert all(line.replace("\u3000", " ").isprintable() for line in reported.split("\n"))
        assert len(reported.split("\n")) in (1, 2, 3)


class TestOrder:
    def test_problems_are_sorted_without_duplicates(self) -> None:
        wanted = [
            Problem(SourcePlace(source("", file), line, column), code, message)
            for file in ("a.yaml", "b.yaml")
            for line in (2, 10)
            for column in (2, 10)
            for code in ("spec.key", "spec.tag")
            for message in ("one", "two")
        ]
        mixed = wanted * 2
        random.Random(1).shuffle(mixed)  # noqa: S311  the same order in every run
        assert sort_problems(mixed) == wanted
        assert DocumentError(mixed).problems == wanted

    def test_problem_as_json(self) -> None:
        assert problem("a", 3, 4, hint="h").as_json() == {
            "file": "specs/triage.yaml",
            "line": 3,
            "column": 4,
            "code": "spec.unknown_tool",
            "message": "wrong",
            "hint": "h",
            "severity": "error",
        }
        assert problem("a").as_json()["hint"] is None


class TestDidYouMean:
    @pytest.mark.parametrize(
        ("word", "options", "hint"),
        [
            ("serch", ["search", "read"], 'did you mean "search"?'),
            ("Search", ["search"], 'did you mean "search"?'),
            ("read-file", ["read_file", "read"], 'did you mean "read_file"?'),
            ("search", ["search"], None),
            ("search", ["search", "searches"], 'did you mean "searches"?'),
            ("zebra", ["search"], None),
            ("x", [], None),
            ("s" * 101, ["s" * 100], None),
            ("a\u202eb", ["a\u202ec"], 'did you mean "a\\u202ec"?'),
        ],
    )
    def test_hint_names_the_nearest_option(self, word: str, options: list[str], hint: str | None) -> None:
        assert did_you_mean(word, options) == hint


def test_quote_text_cuts_long_text() -> None:
    assert quote_text("a") == '"a"'
    assert quote_text("a" * 60) == f'"{"a" * 60}"'
    assert quote_text("a" * 61) == f'"{"a" * 60}…"'


def test_problem_codes_are_sorted_one_line_texts() -> None:
    assert all(code.startswith("spec.") and "\n" not in text for code, text in PROBLEM_CODES.items())
    assert list(PROBLEM_CODES) == sorted(PROBLEM_CODES)
