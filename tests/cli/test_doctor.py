"""`agentrun doctor`: missing packages and other distributions that provide agentrun."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from agentrun.distribution import install_hint

from ..distributions import ROOT, install, install_agentrun
from .command import agentrun

MISSING = ("mcp", "syrupy", "genai_prices")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All packages of this environment but agentrun and those of MISSING, in one folder."""
    folder = tmp_path / "site"
    folder.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("agentrun", "_agentrun", *MISSING)):
            (folder / path.name).symlink_to(path)
    monkeypatch.syspath_prepend(folder)
    return folder


def doctor(site: Path) -> dict[str, dict[str, Any]]:
    code = f"import sys; sys.path[:0] = [{str(site)!r}]; from agentrun.cli import main; sys.exit(main())"
    command = [sys.executable, "-I", "-S", "-c", code, "doctor", "--json"]
    done = subprocess.run(command, cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    return {row["what"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize(
    "direct_url",
    [None, {"url": "file:///srv/a", "dir_info": {}}, {"url": "file:///srv/a.whl", "archive_info": {}}],
    ids=["index", "checkout", "file"],
)
def test_missing_packages_are_listed_with_their_install_hint(site: Path, direct_url: Any) -> None:
    """Each fix is the hint of the installation, also for a dependency that an index has under its own name."""
    rows = doctor(install_agentrun(site, direct_url))
    assert rows["agentrun"]["text"] == "7.8.9 (distribution agentrun-harness)"
    assert [rows["mcp"]["fix"], rows["syrupy"]["fix"], rows["genai-prices"]["fix"]] == [
        install_hint("mcp"),
        install_hint("test"),
        install_hint(),
    ]
    assert [name for name, row in rows.items() if row["fix"] and "install" in row["fix"]] == [
        "genai-prices",
        "syrupy",
        "mcp",
    ]


def test_other_distributions_that_provide_agentrun_are_reported(tmp_path: Path) -> None:
    command = "[console_scripts]\nagentrun = other:main\n"
    install(tmp_path / "site", "agentrun", RECORD="agentrun/__init__.py,,\n", **{"entry_points.txt": command})
    info = install(tmp_path / "site", "odd", RECORD="agentrun.py,,\n")
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: o\x1b[2Jdd; x\nVersion: 1\n")
    (tmp_path / "empty").mkdir()
    done = agentrun("doctor", cwd=tmp_path / "empty", PYTHONPATH=str(tmp_path / "site"))
    assert done.code == 0
    assert "note  agentrun: the distribution agentrun also provides a module and a command called agentrun" in done.out
    assert f"→ run pip uninstall agentrun, then {install_hint()}" in done.out
    assert "note  agentrun: the distribution o??2Jdd??x also provides a module called agentrun" in done.out
    assert "also provides" not in agentrun("doctor", cwd=tmp_path / "empty").out
