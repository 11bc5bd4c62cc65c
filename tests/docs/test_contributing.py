"""CONTRIBUTING.md names existing make targets and paths."""

from __future__ import annotations

import re

import pytest

from .terminal import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MENU = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_named_make_targets_exist() -> None:
    named = set(re.findall(r"make (?:PYTHON=\S+ )?([a-z][a-z-]*)", PAGE)) - {"and"}
    assert {"cassettes", "model", "snapshots", "schemas", "docs"} < named <= MENU


@pytest.mark.parametrize("path", re.findall(r"`((?:specs|tests|docs|bench|requirements)/[\w./-]*)`", PAGE))
def test_named_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_lines_have_at_most_120_characters() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120] == []
