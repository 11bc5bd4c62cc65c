"""Programs that use the public API pass pyright. mypy checks the same files in `make types`, in its strict mode."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYRIGHT = ROOT / ".node/node_modules/pyright/index.js"
PROGRAMS = [ROOT / "tests/docs/user_program.py", *sorted((ROOT / "docs/recipes").glob("*.py"))]
WRONG = """\
import agentrun

agentrun.run("specs/triage.yaml", "Hello?", parms={})
print(agentrun.run("specs/triage.yaml", "Hello?").anwser)
"""

needs_pyright = pytest.mark.skipif(
    not PYRIGHT.exists() or shutil.which("node") is None, reason="pyright is installed by `make check` if there is npm"
)


def pyright(*files: Path) -> list[dict[str, Any]]:
    """What pyright reports, without a configuration, as for the project of a user."""
    command = ["node", str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable, *map(str, files)]
    done = subprocess.run(command, cwd=files[0].parent, capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)["generalDiagnostics"]
    return found


@needs_pyright
def test_programs_pass_pyright(tmp_path: Path) -> None:
    """One call for all, because each reads agentrun again. The last file has mistakes, which it must find."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    found = pyright(*PROGRAMS, wrong)
    assert [each for each in found if Path(each["file"]) != wrong] == []
    assert [each["range"]["start"]["line"] for each in found] == [2, 3]


def test_mypy_checks_the_programs_in_its_strict_mode() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"] is True
    folders = [ROOT / each for each in settings["files"]]
    assert all(any(program.is_relative_to(folder) for folder in folders) for program in PROGRAMS)
