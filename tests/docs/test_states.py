"""docs/states.md is up to date, and its diagrams show exactly the transitions of the code."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from agentrun.core.facts import Decision, Fact
from agentrun.core.transitions import CALL_TRANSITIONS, PHASE_TRANSITIONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "states.md").read_text(encoding="utf-8")
DIAGRAMS = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)
Way = tuple[str, str, str]


def name(fact: Any) -> str:
    return str(fact.__struct_config__.tag)


def drawn(diagram: str) -> set[Way]:
    """Every (phase, fact, phase) of a diagram; what leads out of the group leads out of each phase in it."""
    group = re.search(r"as group \{\n(.*?)\n    \}", diagram, re.DOTALL)
    assert group is not None
    members = group[1].split()
    ways = set()
    for source, target, facts in re.findall(r"^    (\w+) --> (\w+): (.+)$", diagram, re.MULTILINE):
        for fact in facts.split(", "):
            ways |= {(one, fact, target) for one in (members if source == "group" else [source])}
    return ways


def moves(table: Mapping[Any, Mapping[Any, Any]]) -> set[Way]:
    return {
        (source, name(fact), target)
        for source, leads in table.items()
        for fact, targets in leads.items()
        for target in targets
        if target != source
    }


def stays(table: Mapping[Any, Mapping[Any, Any]]) -> dict[str, list[str]]:
    return {
        phase: [name(fact) for fact, targets in leads.items() if phase in targets] for phase, leads in table.items()
    }


def test_page_is_up_to_date() -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "build.py"))["PAGES"]
    assert pages["states.md"]() == PAGE, "run `make docs`"


@pytest.mark.parametrize(("index", "table"), [(0, PHASE_TRANSITIONS), (1, CALL_TRANSITIONS)], ids=["runs", "calls"])
def test_diagram_shows_every_transition(index: int, table: Mapping[Any, Mapping[Any, Any]]) -> None:
    assert len(DIAGRAMS) == 2
    assert drawn(DIAGRAMS[index]) == moves(table)


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=["runs", "calls"])
def test_diagrams_are_mermaid(diagram: str) -> None:
    first, *lines = diagram.splitlines()
    assert first == "stateDiagram-v2"
    forms = (
        r"    (\[\*\]|\w+) --> (\[\*\]|\w+)(: [a-z_]+(, [a-z_]+)*)?",
        r'    state "[a-z ]+" as group \{',
        r"        \w+",
        r"    \}",
    )
    for line in lines:
        assert any(re.fullmatch(form, line) for form in forms), line


@pytest.mark.parametrize(("title", "table"), [("phase", PHASE_TRANSITIONS), ("status", CALL_TRANSITIONS)])
def test_every_phase_has_its_row(title: str, table: Mapping[Any, Mapping[Any, Any]]) -> None:
    rows = PAGE.partition(f"| {title} | meaning |")[2].partition("\n\n")[0]
    shown = re.findall(r"^\| (\w+) \| [^|]+\. \| (.*) \|$", rows, re.MULTILINE)
    assert {phase: re.findall(r"\w+", facts) for phase, facts in shown} == stays(table)


def test_every_fact_has_its_row() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (decision|observation) \| .+ \|$", PAGE, re.MULTILINE))
    assert rows == {name(fact): "decision" if issubclass(fact, Decision) else "observation" for fact in get_args(Fact)}


def test_planted_missing_transition_is_detected() -> None:
    less = {**PHASE_TRANSITIONS, "waiting": {}}
    assert drawn(DIAGRAMS[0]) != moves(less)
