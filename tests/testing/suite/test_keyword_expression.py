"""`-k` expressions agree with the parser of pytest."""

from __future__ import annotations

import pytest
from _pytest.mark.expression import Expression
from hypothesis import example, given
from hypothesis import strategies as st

from agentrun.testing.suite.selection import MAX_KEYWORD_DEPTH, MAX_KEYWORD_LENGTH, KeywordSyntaxError, parse_keyword

TEXTS = ["specs/support.cases.yaml::late-refund", "net", "slow"]


def fits(text: str, texts: list[str] = TEXTS) -> bool:
    return parse_keyword(text)([each.lower() for each in texts])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("refund", True),
        ("REFUND", True),
        ("support.cases.yaml::late", True),
        ("net", True),
        ("ne", True),
        ("nothing", False),
        ("not net", False),
        ("not not net", True),
        ("net and nothing", False),
        ("nothing or net", True),
        ("nothing and net or slow", True),
        ("nothing and (net or slow)", False),
        ("not (nothing or gone) and net", True),
        ("not nothing and not net", False),
        ("(((net)))", True),
        ("android", False),
        ("notes", False),
    ],
)
def test_expression_selects_or_not(text: str, wanted: bool) -> None:
    assert fits(text) is wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: expected a word, not, or a left parenthesis, not the end"),
        ("and", "column 1: expected a word, not, or a left parenthesis, not 'and'"),
        ("net or", "column 7: expected a word, not, or a left parenthesis, not the end"),
        ("net slow", "column 5: expected and, or, or the end, not 'slow'"),
        ("(net", "column 5: expected a right parenthesis, not the end"),
        ("net)", "column 4: expected and, or, or the end, not ')'"),
        ("net and  *", "column 10: '*' is not allowed in a word"),
    ],
)
def test_syntax_error_names_its_place(text: str, message: str) -> None:
    with pytest.raises(
        KeywordSyntaxError, match="^" + message.replace("(", r"\(").replace(")", r"\)").replace("*", r"\*")
    ):
        parse_keyword(text)


def test_depth_and_length_limits() -> None:
    assert fits("(" * MAX_KEYWORD_DEPTH + "net" + ")" * MAX_KEYWORD_DEPTH)
    with pytest.raises(KeywordSyntaxError, match="parentheses"):
        parse_keyword("(" * (MAX_KEYWORD_DEPTH + 1) + "net" + ")" * (MAX_KEYWORD_DEPTH + 1))
    assert fits("net".ljust(MAX_KEYWORD_LENGTH))
    with pytest.raises(KeywordSyntaxError, match="characters"):
        parse_keyword("net".ljust(MAX_KEYWORD_LENGTH + 1))
    assert fits("not " * 2000 + "net")


def _is_known(word: str, /, **_: str | int | bool | None) -> bool:
    return any(word.lower() in each for each in TEXTS)


EXPRESSION_WORDS = st.sampled_from(["net", "slow", "gone", "Late-Refund", "and", "or", "not", "(", ")", "a:b", "x.y"])


@given(st.lists(EXPRESSION_WORDS, min_size=1, max_size=8).map(" ".join))
@example("not ( net or gone )")
def test_expressions_agree_with_pytest(text: str) -> None:
    try:
        theirs = Expression.compile(text)
    except SyntaxError:
        with pytest.raises(KeywordSyntaxError):
            parse_keyword(text)
        return
    assert fits(text) is theirs.evaluate(_is_known)
