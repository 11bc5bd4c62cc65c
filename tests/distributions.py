"""Installed distributions on disk, with a `.dist-info` folder and, for agentrun, its code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
VCS = {"vcs": "git", "commit_id": COMMIT}


def install(folder: Path, name: str, version: str = "1.0", **files: str) -> Path:
    """Write the metadata of a distribution into a folder that will be on `sys.path`."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    content = {"METADATA": f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n", **files}
    for file, text in content.items():
        (info / file).write_text(text, encoding="utf-8")
    return info


def install_agentrun(folder: Path, direct_url: Mapping[str, Any] | str | None = None) -> Path:
    """Install agentrun as version 7.8.9. Without `direct_url`, as from an index."""
    info = install(folder, "agentrun-harness", "7.8.9")
    (folder / "agentrun").symlink_to(ROOT / "runner" / "agentrun")
    (folder.parent / "schemas").symlink_to(ROOT / "schemas")
    if direct_url is not None:
        text = direct_url if isinstance(direct_url, str) else json.dumps(direct_url)
        (info / "direct_url.json").write_text(text, encoding="utf-8")
    return folder


def from_checkout(folder: Path, checkout: Path, *, editable: bool = False) -> Path:
    return install_agentrun(folder, {"url": checkout.as_uri(), "dir_info": {"editable": True} if editable else {}})
