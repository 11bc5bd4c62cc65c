"""The Python blocks of the README and docs/python.md run in order."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from agentrun.engine.api import RunArguments, run

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": 3, "docs/python.md": 25}
"""Pages with so many blocks."""
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_python_blocks_of_the_page_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == PAGES[name]
    names: dict[str, Any] = {}
    for block in blocks:
        line = page[: page.index(block)].count("\n")
        exec(compile("\n" * line + block, name, "exec"), names)  # noqa: S102  # our own page


def test_every_keyword_is_in_the_table() -> None:
    parameters = inspect.signature(run).parameters.values()
    own = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    shown = re.findall(r"^\| `([a-z_]+)` \| ", PAGE, re.MULTILINE)
    assert sorted(shown) == sorted([*own, *RunArguments.__annotations__])


def test_links_exist_and_lines_have_at_most_120_characters() -> None:
    for link in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / link).exists()
    assert [line for line in PAGE.splitlines() if len(line) > 120 and not line.startswith("|")] == []
