"""docs/api.md is up to date, and everything public has a docstring."""

import importlib
import re
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


PUBLIC = {*REFERENCE["PUBLIC_MODULES"], "agentrun.testing.laws", "agentrun.testing.provider", "agentrun.vcr"}
"""The modules that programs and tests may import."""
EXAMPLES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/recipes").iterdir())]


def private_imports(text: str) -> list[str]:
    """The imports of a page or a program that are not of public modules, or not of public names."""
    found = []
    for module, names in re.findall(r"\bfrom (agentrun[\w.]*) import \(?([\w, ]+)", text):
        public = [*getattr(importlib.import_module(module), "__all__", [])] if module in PUBLIC else []
        known = {*public, *(each.rpartition(".")[2] for each in PUBLIC if each.startswith(f"{module}."))}
        found += [f"{module}.{name}" for name in re.findall(r"\w+", names) if name not in known]
    return found + [
        name for name in re.findall(r"^\s*import (agentrun[\w.]*)", text, re.MULTILINE) if name not in PUBLIC
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_import_public_names_only(path: Path) -> None:
    if path.is_file() and path.name not in ("architecture.md", "api.md"):
        assert private_imports(path.read_text(encoding="utf-8")) == []


def test_planted_private_import_is_detected() -> None:
    text = "import agentrun\nfrom agentrun import run, nothing\nfrom agentrun.engine.memory import MemoryJournals\n"
    assert private_imports(text) == ["agentrun.nothing", "agentrun.engine.memory.MemoryJournals"]
