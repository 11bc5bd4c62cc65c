"""The blocks, files and tables of docs/guide.md."""

from __future__ import annotations

import re

from .terminal import ROOT, blocks, steps

GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
BLOCKS = blocks(GUIDE)
PATH = re.compile(r"(?:#|\{#-?) ([\w./-]+\.\w+)(?: -?#\})?")
FILES = {found[1]: block for _, block in BLOCKS if (found := PATH.fullmatch(block.split("\n", 1)[0]))}
SPEC_PARTS = [block for kind, block in BLOCKS if kind == "yaml" and block not in FILES.values()]
BASE = {
    "agentrun": 'agentrun: "1"',
    "name": "name: shown",
    "model": "model: {provider: openai, name: gpt-4.1-mini}",
    "instructions": "instructions: Be brief.",
    "budgets": "budgets: {tokens: 5k}",
}
"""What a part of a spec needs to be a spec."""
STEPS = [step for kind, block in BLOCKS if kind == "console" for step in steps(block)]


def with_required_keys(part: str) -> str:
    """A part of a spec with the keys that it lacks."""
    return part + "\n".join(line for key, line in BASE.items() if not re.search(rf"^{key}:", part, re.MULTILINE))


def table(first: str) -> list[list[str]]:
    """The rows of the table whose first column has this title."""
    found = re.search(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", GUIDE, re.MULTILINE)
    assert found, first
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found[1].splitlines()]


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def code_between(start: str, end: str) -> list[str]:
    """What stands in backticks between two texts."""
    return code(GUIDE[GUIDE.index(start) + len(start) :].partition(end)[0])
