"""`import agentrun` and the common commands import no heavy package.

`import pydantic` alone takes longer than validating a spec; httpx and vcrpy together take a second.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .sources import ROOT

HEAVY = {"genai_prices", "httpx", "jmespath", "mcp", "pydantic", "pytest", "syrupy", "vcr"}

# Runs the code and then writes the names of all imported modules to a file.
SPY = """
import json, sys
try:
    {code}
except SystemExit as stop:
    if stop.code:
        raise
finally:
    with open({report!r}, "w", encoding="utf-8") as file:
        json.dump(list(sys.modules), file)
"""
COMMAND = "from agentrun.cli import main; sys.argv[:] = {argv!r}; main()"


def heavy_imports(code: str, report: Path) -> set[str]:
    """The heavy packages that the code imports in a fresh interpreter. The code must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", SPY.format(code=code, report=str(report))],
        cwd=ROOT,
        env={"CI": "true"},  # a replay that finds no cassette must not go live
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return HEAVY & {name.partition(".")[0] for name in json.loads(report.read_text(encoding="utf-8"))}


def test_import_of_agentrun_loads_no_heavy_package(tmp_path: Path) -> None:
    assert heavy_imports("import agentrun", tmp_path / "modules") == set()


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["--version"],
        ["validate", "specs/triage.yaml"],
        ["specs/triage.yaml"],
        ["specs/support.yaml"],
        ["specs/support.yaml", "--mode", "replay", "--case", "approval"],
        ["cassette", "audit", "specs/support.yaml"],
        ["runs"],
        ["test", "specs/ops.yaml", "specs/support.yaml", "--coverage"],
    ],
    ids=" ".join,
)
def test_command_loads_no_heavy_package(tmp_path: Path, argv: list[str]) -> None:
    assert heavy_imports(COMMAND.format(argv=["agentrun", *argv]), tmp_path / "modules") == set()


def test_heavy_imports_finds_httpx(tmp_path: Path) -> None:
    assert heavy_imports("import agentrun, httpx", tmp_path / "modules") >= {"httpx"}


def test_heavy_imports_fails_if_the_code_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        heavy_imports("sys.exit(3)", tmp_path / "modules")
