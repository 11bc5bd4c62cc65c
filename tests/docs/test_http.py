"""docs/http.md: its specs are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentrun.compiler.validate import validate_document
from agentrun.tools.http import MAX_REDIRECTS

from .terminal import ROOT, blocks

PAGE = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
BLOCKS = [block for kind, block in blocks(PAGE) if kind == "yaml"]
REST = """\
agentrun: "1"
name: shown
model: {provider: openai, name: gpt-4.1-mini}
instructions: Be brief.
budgets: {tokens: 5k}
"""


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_spec_is_valid(tmp_path: Path, block: str) -> None:
    path = tmp_path / "shown.yaml"
    path.write_text(REST + block, encoding="utf-8")
    assert [problem.message for problem in validate_document(path)] == []


def test_links_exist_and_lines_have_at_most_120_characters() -> None:
    for link in re.findall(r"\]\(((?!https:)[^)#]+)", PAGE):
        assert (ROOT / "docs" / link).exists()
    assert [line for line in PAGE.splitlines() if len(line) > 120] == []


def test_documented_number_of_redirects_matches_the_code() -> None:
    assert (len(BLOCKS), MAX_REDIRECTS) == (2, 5)
    assert "at most five" in PAGE
