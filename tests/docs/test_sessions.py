"""docs/sessions.md: its commands are run and print what the page shows."""

from __future__ import annotations

from pathlib import Path

from .terminal import ROOT, Terminal, blocks

PAGE = (ROOT / "docs" / "sessions.md").read_text(encoding="utf-8")


def test_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.agentrun]\n", encoding="utf-8")
    with Terminal(tmp_path) as terminal:
        for kind, block in blocks(PAGE):
            if kind == "yaml":
                (tmp_path / block.split("\n")[0].removeprefix("# ")).write_text(block, encoding="utf-8")
            elif kind == "console":
                terminal.follow(block)


def test_lines_have_at_most_120_characters() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120 and not line.startswith("|")] == []
