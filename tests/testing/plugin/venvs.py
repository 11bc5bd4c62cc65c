"""The venvs in which pytest runs without other plugins, and with many (`make plugins`)."""

from __future__ import annotations

import os
from importlib.metadata import distribution
from pathlib import Path
from typing import Literal

import pytest

from ...distributions import install
from .projects import Project

ROOT = Path(__file__).parents[3]
VENVS = ROOT / ".venv-plugins"


def run_in_venv(project: Project, plugins: Literal["none", "all"], *args: str) -> pytest.RunResult:
    """Run pytest there. agentrun is added as by an editable install: its metadata, and the path of its code."""
    if not (VENVS / "ready").exists():
        pytest.skip("the venvs with other plugins are not made: run `make plugins`")
    site = project.root / ".site"
    if not site.exists():
        ours = distribution("agentrun-harness")
        install(site, ours.name, ours.version, **{"entry_points.txt": ours.read_text("entry_points.txt") or ""})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT / "runner")]))
        return project.pytester.run(VENVS / plugins / "bin" / "python", "-m", "pytest", *args, timeout=120)
