"""Escaping of foreign text: it can be read back, contains no control characters, and warns about look-alikes."""

import ast
import json
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentrun.report.approval_question import escape_name, escape_text, escape_value, text_warnings

from .rendered_runs import HOSTILE
from .terminals import FOREIGN

TEXT = st.text(
    alphabet=st.characters(codec=None) | st.sampled_from('\\"\n\r\t\x1b\u202e\u0301\u0338\u3000\ufe0f\u0430x ')
)
VALUE = st.recursive(
    TEXT | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


def is_safe(shown: str) -> bool:
    return FOREIGN.search(shown) is None and shown.isprintable()


@given(TEXT)
@example("\\x1b")
@example("\x1b")
@example('" + "')
def test_escaped_text_reads_back(text: str) -> None:
    """So two texts are never shown alike: an escape that was typed is not one that was made."""
    assert ast.literal_eval(escape_text(text)) == text


@given(VALUE)
def test_escaped_value_reads_back(value: Any) -> None:
    shown = escape_value(value)
    assert is_safe(shown)
    if "\\x" not in shown and "\\U" not in shown:  # which JSON does not have
        assert json.loads(shown) == value


@given(TEXT)
def test_escaped_text_has_no_control_characters(text: str) -> None:
    assert is_safe(escape_text(text))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_escaped(text: str) -> None:
    assert is_safe(escape_text(text))
    assert ast.literal_eval(escape_text(text)) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2J", r'"a\x1b[2J"'),
        (r"a\x1b[2J", r'"a\\x1b[2J"'),
        ("\x9b\u202e\u200b\ufeff", r'"\x9b\u202e\u200b\ufeff"'),
        ("a\u3000b\u00a0c", r'"a\u3000b\xa0c"'),
        ("e\u0301", r'"e\u0301"'),
        ("=\u0338", r'"=\u0338"'),
        ("क\u093f", '"क\u093f"'),
        ("क\u0902\u0902\u0902", '"क\u0902\u0902\\u0902"'),
        ("Grüße, 漢字", '"Grüße, 漢字"'),
        ("\U0001f468\u200d\U0001f469", '"\U0001f468\\u200d\U0001f469"'),
        ("\U000e0041", r'"\U000e0041"'),
    ],
)
def test_escaped_form_of_texts(text: str, shown: str) -> None:
    assert escape_text(text) == shown


def test_combining_marks_are_limited() -> None:
    """They would be drawn over the rows above."""
    shown = escape_text("漢" + "\u0336" * 50)
    assert sum(unicodedata.category(char) == "Mn" for char in shown) == 2


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("pay\u200bpal", "hidden characters: U+200B (zero width space)"),
        ("\x1b[2J\x07", "hidden characters: U+001B, U+0007"),
        ("p\u0430ypal", "look-alike characters: U+0430 (cyrillic small letter a)"),
        ("\u0440\u0430\u0443", "look-alike characters: U+0440"),
        ("https://evil.com\u2044x", "look-alike characters: U+2044 (fraction slash)"),
        ("\uff52\uff4d -rf", "look-alike characters: U+FF52"),
        ("\U0001d42b\U0001d426", "look-alike characters: U+1D42B"),
        ("ls\u037e rm", "look-alike characters: U+037E"),
        ("שלום 123", "right-to-left"),
        ("ls" + " " * 200 + "rm", "a gap of 200 blanks"),
        ("ls" + "\n" * 200 + "rm", "a gap of 200 blanks or empty lines"),
        ("\x01\x02\x03\x04\x05", "U+0001, U+0002, U+0003, and 2 more"),
    ],
)
def test_deceptive_text_gives_a_warning(text: str, warning: str) -> None:
    (found,) = text_warnings(text)
    assert warning in found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "Привет, как дела? Хорошо.",
        "Καλημέρα κόσμε",
        "naïve café",
        "5 m², 10 €, 3\u20134 “quotes”…",
        "漢字 かな",
        "a\n\tb",
    ],
)
def test_ordinary_text_gives_no_warning(text: str) -> None:
    assert list(text_warnings(text)) == []


@given(TEXT)
def test_warnings_are_safe_to_print(text: str) -> None:
    assert all(map(is_safe, text_warnings(text)))


@pytest.mark.parametrize(
    ("name", "shown"), [("refund", "refund"), ("desk:a.b", "desk:a.b"), ("a b", '"a b"'), ("", '""')]
)
def test_escaped_names_are_quoted_if_needed(name: str, shown: str) -> None:
    assert escape_name(name) == shown


def test_long_texts_are_escaped_quickly() -> None:
    text = "\x1b\u0430x\n" * 50_000
    assert len(escape_text(text)) > len(text)
    assert list(text_warnings(text))
