"""The plugin imports nothing heavy when it is not used, and works without syrupy."""

from __future__ import annotations

import os
import subprocess
import sys

from .projects import SNAPSHOT_ASSERTION, Project

HEAVY = {"asyncio", "httpx", "jinja2", "msgspec", "pydantic", "re2", "syrupy", "vcr", "yaml"}
PROGRAM = """
import sys

sys.modules["syrupy"] = None  # as if it were not there
import pytest

plain = pytest.main(["-q", "-p", "agentrun.testing.pytest_plugin", "test_plain.py"])
print("loaded:", *sorted(name for name in sys.modules if "." not in name))
print("ours:", *sorted(name for name in sys.modules if name.startswith("agentrun")))
cases = pytest.main(["-q", "-p", "agentrun.testing.pytest_plugin", "specs"])
print("exits:", int(plain), int(cases))
"""


def test_plugin_without_cases_imports_no_heavy_module(project: Project) -> None:
    project.cases("name: default", f"name: new, {SNAPSHOT_ASSERTION}")
    project.write("test_plain.py", "def test_plain(): pass\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=project.root,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    said = dict(
        line.split(": ", 1) for line in done.stdout.splitlines() if line.startswith(("loaded", "ours", "exits"))
    )
    assert HEAVY.isdisjoint(set(said["loaded"].split()) - {"syrupy"})
    assert said["ours"].split() == [
        "agentrun",
        "agentrun.cassette",
        "agentrun.cassette.match_tiers",
        "agentrun.engine",
        "agentrun.engine.ci",
        "agentrun.testing",
        "agentrun.testing.plugin",
        "agentrun.testing.plugin.options",
        "agentrun.testing.pytest_plugin",
    ]
    assert said["exits"] == "0 1", done.stdout
    assert "journal-snapshot: this case has no snapshot yet" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
