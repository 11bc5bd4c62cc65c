"""docs/api.md is up to date, and everything public has a docstring."""

import runpy
from pathlib import Path
from typing import Any

import pytest

import agentrun

ROOT = Path(__file__).parents[2]
REFERENCE = runpy.run_path(str(ROOT / "docs" / "api_reference.py"))


def test_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert REFERENCE["api"]() == page, "run `make docs`"


@pytest.mark.parametrize("module", REFERENCE["PUBLIC_MODULES"])
def test_every_public_name_has_a_docstring(module: str) -> None:
    assert REFERENCE["missing_docstrings"](module) == []


def undocumented(first: Any) -> None: ...


def test_planted_missing_docstring_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agentrun, "undocumented", undocumented, raising=False)
    monkeypatch.setattr(agentrun, "__all__", [*agentrun.__all__, "undocumented"])
    assert REFERENCE["missing_docstrings"]("agentrun")[-1:] == ["undocumented"]
