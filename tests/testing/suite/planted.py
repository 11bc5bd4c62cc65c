"""The support project in a folder of its own, with one case whose journal was accepted, to plant changes in."""

from __future__ import annotations

import shutil
from pathlib import Path

from agentrun.testing.suite.evaluate import evaluate
from agentrun.testing.suite.found import Found, read
from agentrun.testing.suite.played import play
from agentrun.testing.suite.prepared import Preparations
from agentrun.testing.suite.snapshots import accepted, path_of, snapshot_of
from agentrun.testing.suite.verdict import Verdict

ROOT = Path(__file__).parents[3]
CASES = """\
agentrun: "1"
cases:
  - name: default
    assert: [{type: journal-snapshot}]
"""


class Planted:
    """The project."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self) -> None:
        root = self.root
        left_out = shutil.ignore_patterns("__pycache__", "__snapshots__")
        shutil.copytree(ROOT / "specs", root / "specs", ignore=left_out)
        (root / "cassettes" / "support").mkdir(parents=True)
        shutil.copy(ROOT / "cassettes" / "support" / "default.yaml", self.tape)
        (root / "pyproject.toml").write_text('[tool.agentrun]\nimport_roots = ["specs"]\n', encoding="utf-8")
        (root / "specs" / "support.cases.yaml").write_text(CASES, encoding="utf-8")

    @property
    def tape(self) -> Path:
        return self.root / "cassettes" / "support" / "default.yaml"

    @property
    def found(self) -> Found:
        (found,) = read(self.root / "specs" / "support.cases.yaml")
        return found

    def accept(self) -> None:
        found = self.found
        path_of(found).parent.mkdir(parents=True, exist_ok=True)
        text = snapshot_of(play(found, Preparations().of(found)).runs)
        path_of(found).write_text(text, encoding="utf-8")

    def plant(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def verdict(self) -> Verdict:
        return evaluate(self.found, Preparations(), accepted)
