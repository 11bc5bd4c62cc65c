"""The pages with Python in them are programs: their blocks are run in order, in the project's root."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": 2, "docs/python.md": 11}
"""Pages with so many blocks."""


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == PAGES[name]
    names: dict[str, Any] = {}
    for block in blocks:
        line = page[: page.index(block)].count("\n")
        exec(compile("\n" * line + block, name, "exec"), names)  # noqa: S102  # our own page
