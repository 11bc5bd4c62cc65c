"""What CONTRIBUTING says about the tree and the targets is so."""

from __future__ import annotations

import re

import pytest

from ..architecture.layers import LAYERS
from .terminal import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MENU = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_drawing() -> None:
    drawn = PAGE.partition("do not know each other.\n\n```\n")[2].partition("```")[0]
    assert [set(re.findall(r"\w+", line)) for line in drawn.splitlines()] == LAYERS[1:]


def test_targets() -> None:
    named = set(re.findall(r"make (?:PYTHON=\S+ )?([a-z][a-z-]*)", PAGE)) - {"and"}
    assert {"cassettes", "model", "snapshots", "schemas", "docs"} < named <= MENU


@pytest.mark.parametrize("path", re.findall(r"`((?:specs|tests|docs|bench|requirements)/[\w./-]*)`", PAGE))
def test_path(path: str) -> None:
    assert (ROOT / path).exists()


def test_lines_are_of_our_length() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120] == []
