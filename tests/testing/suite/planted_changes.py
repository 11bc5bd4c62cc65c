"""A copy of the support project with one accepted case, to plant changes in."""

from __future__ import annotations

import shutil
from pathlib import Path

from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.evaluation import evaluate_case
from agentrun.testing.suite.replay import CompiledAgents, replay_case
from agentrun.testing.suite.snapshots import accepted_snapshots, snapshot_path, take_snapshot
from agentrun.testing.suite.verdict import CaseVerdict

ROOT = Path(__file__).parents[3]
CASES = """\
agentrun: "1"
cases:
  - name: default
    assert: [{type: journal-snapshot}]
"""


class PlantedProject:
    """The project."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self) -> None:
        root = self.root
        left_out = shutil.ignore_patterns("__pycache__", "__snapshots__")
        shutil.copytree(ROOT / "specs", root / "specs", ignore=left_out)
        (root / "cassettes" / "support").mkdir(parents=True)
        shutil.copy(ROOT / "cassettes" / "support" / "default.yaml", self.cassette)
        (root / "pyproject.toml").write_text('[tool.agentrun]\nimport_roots = ["specs"]\n', encoding="utf-8")
        (root / "specs" / "support.cases.yaml").write_text(CASES, encoding="utf-8")

    @property
    def cassette(self) -> Path:
        return self.root / "cassettes" / "support" / "default.yaml"

    @property
    def found(self) -> LocatedCase:
        (found,) = read_located_cases(self.root / "specs" / "support.cases.yaml")
        return found

    def accept(self) -> None:
        found = self.found
        snapshot_path(found).parent.mkdir(parents=True, exist_ok=True)
        text = take_snapshot(replay_case(found, CompiledAgents().for_case(found)).runs).text
        snapshot_path(found).write_text(text, encoding="utf-8")

    def plant(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def verdict(self) -> CaseVerdict:
        return evaluate_case(self.found, CompiledAgents(), accepted_snapshots)
