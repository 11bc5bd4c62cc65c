"""No text installs a package by name from an index.

Rule 1  Outside of `distribution.py`, which knows where agentrun came from, every install command names the checkout
        (`.`) or a file of requirements.
Rule 2  In the product no other module has an install command: hints are those of `install_hint`.

Tests are left out: they compare hints, and so quote them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .sources import ROOT, assert_no_findings
from .test_local_names import files_of

COMMAND = re.compile(
    r"\b(?:pip[\d.]*|pipx|poetry|pdm|conda|uv|uv tool)\W{1,6}(?:install|add)\b(?P<words>[^`\n;&|\\]*)"
    r"|\b(?:uvx|pipx run)(?P<run>\s+\w[^`\n;&|\\]*)",
    re.IGNORECASE,
)
CHECKOUT = re.compile(r"\.(?:\[[a-z,]+\])?")
WITH_VALUE = {"-r", "--requirement", "--python"}
HINTS = "runner/agentrun/distribution.py"
WORKFLOW = "runner/agentrun/cli/starter/workflow.yml"


def installs(folder: Path, names: list[str]) -> list[tuple[str, str]]:
    """The file, and what is installed, of each command in these files."""
    return [
        (name, (found["words"] or found["run"] or "").strip())
        for name in names
        for found in COMMAND.finditer((folder / name).read_text(encoding="utf-8", errors="replace"))
    ]


def names_from_an_index(words: str) -> list[str]:
    """The words of an install command that an index would be asked for."""
    found, value = [], False
    for word in words.replace("'", " ").replace('"', " ").split():
        if not value and not word.startswith("-") and not CHECKOUT.fullmatch(word):
            found.append(word)
        value = word in WITH_VALUE
    return found


def texts() -> list[str]:
    return [name for name in files_of(ROOT) if not name.startswith("tests/")]


def test_no_install_command_names_an_index_package() -> None:
    found = [(name, words) for name, words in installs(ROOT, texts()) if name != HINTS]
    assert_no_findings([f"{name}: installs {words}" for name, words in found if names_from_an_index(words)])


def test_install_commands_of_the_product_are_in_one_module() -> None:
    assert {name for name, _ in installs(ROOT, texts()) if name.startswith("runner/")} == {HINTS, WORKFLOW}


@pytest.mark.parametrize("name", ["README.md", "docs/testing.md"])
def test_the_pages_install_from_the_checkout(name: str) -> None:
    assert (name, "'.[test]'") in installs(ROOT, [name])


@pytest.mark.parametrize(
    "text",
    [
        *("pip install agentrun", "`pip install 'agentrun-harness[test]'`", "pip3 install -q agentrun==0.1.0"),
        *(
            "`pip\ninstall PyYAML`",
            "python -m pip install . agentrun",
            "$(PIP) install -e . x",
            '["pip", "install", "x"]',
        ),
        *("uv pip install x", "uv tool install x", "uv add x", "pipx install x", "pipx run x", "uvx x"),
        *("pip install -r a.txt x", "pip install agentrun-harness @ git+https://git.example/a"),
    ],
)
def test_install_from_an_index_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.md").write_text(text, encoding="utf-8")
    ((_, words),) = installs(tmp_path, ["x.md"])
    assert names_from_an_index(words) != []


@pytest.mark.parametrize(
    "text",
    [
        *(
            "pip install .",
            "run `pip install '.[mcp,test]'` in the checkout",
            "$$pip install -qq '.[dev]'; $$pip freeze",
        ),
        *(
            "pip install -r requirements-agents.txt",
            "uv pip install --python $(BIN)/python --no-deps -r $<",
            "`pip install`",
        ),
    ],
)
def test_install_from_the_checkout_or_a_file_is_allowed(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.md").write_text(text, encoding="utf-8")
    ((_, words),) = installs(tmp_path, ["x.md"])
    assert names_from_an_index(words) == []
