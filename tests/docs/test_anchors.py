"""Links to a section point at an existing heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .terminal import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKS = [
    (page, *link)
    for page in PAGES
    for link in re.findall(r"\]\(((?!https:)[^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
]


def anchors(page: Path) -> set[str]:
    """The headings of a page as they are linked to: small letters, no punctuation, a dash for each space."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    return named | {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    ("page", "file", "anchor"), LINKS, ids=[f"{page.name}-{file}-{at}" for page, file, at in LINKS]
)
def test_linked_heading_exists(page: Path, file: str, anchor: str) -> None:
    assert anchor in anchors(page.parent / file if file else page)


def test_every_page_is_linked_from_the_readme() -> None:
    """Every page of the manual is linked from the README, and the one about HTTP tools from the guide too."""
    readme, guide = (page.read_text(encoding="utf-8") for page in (PAGES[0], ROOT / "docs" / "guide.md"))
    more = readme.partition("## More")[2]
    assert [page.name for page in PAGES[2:] if f"(docs/{page.name})" not in more] == []
    assert "](http.md)" in guide.partition("## 3. ")[2].partition("## 4. ")[0]
