"""Text of models and tools is never markup, a mention or a link in a comment."""

import re
from html import unescape

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentrun.report.change import (
    MAX_COMMENT_LENGTH,
    MAX_MARKDOWN_DIFF_LINES,
    RunChange,
    changes_markdown,
    code_block,
    inline_code,
)

HOSTILE = [
    "</code><script>alert(1)</script>",
    "`` ``` `",
    "a | b \\| c \\\\| d",
    "@octocat see #1 and GH-1 and 0123456789abcdef",
    "![x](https://evil.example/x.png) [y](javascript:alert(1)) <https://evil.example> www.evil.example",
    "</summary></details> **bold** _under_ ~~gone~~ &lt;b&gt; :tada:",
    "```\n</details>\n@all <img src=x onerror=y>\n````````",
    "~~~\n# heading\n- [ ] task",
    "http://evil.example me@evil.example",
]

# Letters, digits and what has no meaning to Markdown; anything else is a character reference, which never has one.
INERT = re.compile(
    r"<code>(?:[A-Za-z0-9 ,;()/=%?+]|[.:](?= |<)|(?<=\w)[-_](?=\w|&)|(?<=\d)[.](?=\d)|[^\x00-\x7f]|&#\d+;)*</code>"
)
ROW = re.compile(rf"\| (?:new|gone|changed|moved) \| [a-z]+ \| {INERT.pattern} \|")
HEAD = re.compile(rf"### a|\*\*\d+ differences?\*\*|\| \| what \| change \||\|---\|---\|---\||{ROW.pattern}|")
FOLD = re.compile(rf"<details><summary>{INERT.pattern}</summary>|</details>|")


def lines_outside_of_code_blocks(document: str) -> list[str]:
    """The lines of a document that stand in no block."""
    found, fence = [], ""
    for line in document.split("\n"):
        if fence:
            fence = "" if re.fullmatch(rf" {{0,3}}{fence}`*[ \t]*", line) else fence
        elif opened := re.match(r"`{3,}", line):
            fence = opened[0]
        else:
            found.append(line)
    assert not fence
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_not_markup(text: str) -> None:
    line = text.replace("\n", " ")
    changes = [RunChange(text=line, before=text, after=f"{text}\n{text}"), RunChange(text="quiet")]
    document = changes_markdown("a", changes)
    assert all(HEAD.fullmatch(each) or FOLD.fullmatch(each) for each in lines_outside_of_code_blocks(document))
    assert unescape(document).count(f"<code>{line}</code>") == 2


@given(st.text(alphabet="ab|\\`<>&@#*_[]()!~:./-=+{}\"'\u00e9\u2192 1", max_size=30))
@example("__1 a__")
def test_any_text_as_inline_code_is_not_markup(text: str) -> None:
    assert INERT.fullmatch(inline_code(text))
    assert unescape(inline_code(text)) == f"<code>{text}</code>"


@given(st.lists(st.text(alphabet="`~ a<", max_size=8), max_size=5))
def test_any_text_stays_inside_its_code_block(lines: list[str]) -> None:
    assert lines_outside_of_code_blocks(f"before\n{code_block(lines)}\nafter") == ["before", "after"]


def test_no_changes_give_no_differences() -> None:
    assert changes_markdown("a → b", []) == "### a → b\n\nNo differences.\n"


def test_long_comments_are_cut() -> None:
    changes = [RunChange(text="x" * 300, before="a\n" * 200, after="b\n" * 200) for _ in range(1000)]
    document = changes_markdown("a", changes)
    assert len(document) <= MAX_COMMENT_LENGTH + 100
    assert "more differences.\n" in document
    one = changes_markdown("a", changes[:1])
    assert one.count("\n-a") + one.count("\n+b") < MAX_MARKDOWN_DIFF_LINES
    assert "\n…\n" in one
    assert "more difference" not in one
