"""docs/architecture.md shows the enforced layers and names existing files."""

from __future__ import annotations

import re

import pytest

from ..architecture.layers import GROUND, LAYERS
from .terminal import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "runner" / "agentrun"


def test_the_layers_drawn_are_the_layers_enforced() -> None:
    drawn = PAGE.partition("do not import each other.\n\n```\n")[2].partition("```")[0]
    assert [set(re.findall(r"\w+", line)) for line in drawn.splitlines()] == LAYERS[1:]


def test_every_package_is_described() -> None:
    described = re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE)
    assert described == sorted(described, key=lambda name: next(i for i, each in enumerate(LAYERS) if name in each))
    assert set(described) == set().union(*LAYERS[1:-1])
    assert not set(described) & GROUND


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+(?:\.py|/))`", PAGE))))
def test_named_file_exists(path: str) -> None:
    assert (PACKAGE / path).exists() or (ROOT / path).exists()


def test_contributing_links_to_the_page() -> None:
    assert "(docs/architecture.md)" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_lines_have_at_most_120_characters() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120 and not line.startswith("|")] == []
