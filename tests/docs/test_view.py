"""docs/view.md: its command is run, and the page that it writes has the keys and the record that the text names."""

from __future__ import annotations

import shutil
from pathlib import Path

from .terminal import ROOT, Terminal, blocks

PAGE = (ROOT / "docs" / "view.md").read_text(encoding="utf-8")


def test_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    for name in ("specs", "cassettes"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with Terminal(tmp_path) as terminal:
        for kind, block in blocks(PAGE):
            if kind == "console":
                terminal.follow(block)
    written = (tmp_path / "approval.html").read_text(encoding="utf-8")
    assert '"seq":16' in written
    for key in ("j", "k", '"/"', "e", "d"):
        assert f"\n  {key}: " in written
