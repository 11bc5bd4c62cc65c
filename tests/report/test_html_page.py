"""The page is one file that loads nothing, and text of models and tools can only be text in it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agentrun.report.html_page import SCRIPTS, render_page

PAGE = Path(__file__).parents[2] / "runner" / "agentrun" / "report" / "page"
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "]]></style><style>*{display:none}",
    "javascript:alert(1)",
    "\"'&lt;\u2028\u2029\x00\x1b]52;c;",
)
FORBIDDEN = {
    "innerHTML": r"\binnerHTML\b",
    "outerHTML": r"\bouterHTML\b",
    "insertAdjacentHTML": r"\binsertAdjacentHTML\b",
    "document.write": r"\bdocument\s*\.\s*write",
    "eval": r"\beval\s*\(",
    "Function": r"\bFunction\s*\(",
    "an event attribute": r"\.on[a-z]+\s*=|[\"']on[a-z]+[\"']\s*[:,]",
    "href": r"\bhref\b",
    "src": r"\bsrc\b",
    "style": r"\.style\b|[\"']style[\"']|\bstyle\s*:",
    "a load": r"\bfetch\s*\(|XMLHttpRequest|\bimport\s*\(|WebSocket|sendBeacon",
}


def page(view: Any) -> str:
    return render_page({"views": [view]})


def data_of(text: str) -> str:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("text", HOSTILE)
def test_data_cannot_leave_its_element(text: str) -> None:
    written = page({"title": text, text: [text]})
    data = data_of(written)
    assert json.loads(data) == {"views": [{"title": text, text: [text]}]}
    assert not set("<>&\u2028\u2029") & set(data)
    assert written.count("<script") == 2


def test_policy_allows_exactly_the_script_and_the_style_of_the_page() -> None:
    written = page({})
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', written)
    script, style = (
        re.search(r"<script>(.*?)</script>", written, re.DOTALL),
        re.search(r"<style>(.*?)</style>", written, re.DOTALL),
    )
    assert policy is not None
    assert script is not None
    assert style is not None
    hashes = {name: _hash(found[1]) for name, found in (("script-src", script), ("style-src", style))}
    parts = dict(part.strip().split(" ", 1) for part in policy[1].split(";"))
    assert parts["default-src"] == "'none'"
    assert {name: parts[name] for name in hashes} == {name: f"'sha256-{digest}'" for name, digest in hashes.items()}


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def test_page_names_no_address() -> None:
    written = page({})
    addresses = set(re.findall(r"https?://[^\s\"'`]+", written))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of the SVG elements, which nothing loads


def test_all_scripts_are_joined() -> None:
    assert sorted(path.name for path in PAGE.glob("*.js")) == sorted(SCRIPTS)


@pytest.mark.parametrize("name", FORBIDDEN)
def test_scripts_do_not_turn_data_into_code(name: str) -> None:
    for path in PAGE.glob("*.js"):
        assert not re.search(FORBIDDEN[name], path.read_text()), f"{path.name} uses {name}"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("innerHTML", "node.innerHTML = text"),
        ("an event attribute", "node.onclick = text"),
        ("an event attribute", 'node.setAttribute("onclick", text)'),
        ("href", 'element("a", { href: text })'),
        ("style", "node.style.width = text"),
        ("eval", "eval(text)"),
    ],
)
def test_the_check_finds_a_planted_use(name: str, line: str) -> None:
    assert re.search(FORBIDDEN[name], line)
