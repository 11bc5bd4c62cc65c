"""No file contains the name of a local machine, home folder or package host.

Such a name works for one person and fails for the next; indexes and caches are each person's own setting.
"""

import re
import subprocess
from pathlib import Path

import pytest

from .sources import ROOT, assert_no_findings

# Spelled in pieces, or this file would be the first finding.
HOSTS = [
    *(f"{name}.org" for name in ("pypi", "pythonhosted", "npmjs", "debian", "anaconda")),
    *(f"{name}.com" for name in ("npmjs", "yarnpkg")),
    *(f"{name}.io" for name in ("crates",)),
]
FORBIDDEN = re.compile(
    r"(?<![\w.~-])/(?:work|root|home)/"  # a path from the root, not the middle of a URL or of a relative path
    rf"|\b(?:{'|'.join(re.escape(host) for host in HOSTS)})\b"
)

HOME = "/" + "home/"


def local_names(folder: Path, names: list[str]) -> list[str]:
    found = []
    for name in names:
        text = (folder / name).read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            found += [f"{name}:{number}: {match[0]}" for match in FORBIDDEN.finditer(line)]
    return found


def files_of(folder: Path) -> list[str]:
    """What git tracks, and what it would track if it were added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout.decode()
    return sorted(name for name in set(listed.split("\0")) if (folder / name).is_file())


def test_no_file_contains_a_local_name() -> None:
    names = files_of(ROOT)
    assert "pyproject.toml" in names
    assert_no_findings(local_names(ROOT, names))


@pytest.mark.parametrize(
    "text",
    [
        "see /" + "work/main",
        "'/" + "root/.ssh/key'",
        "file://" + HOME + "ada/x",
        "index-url = https://" + HOSTS[0] + "/simple",
        "https://files." + "pythonhosted" + ".org/x.whl",
    ],
)
def test_local_names_are_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.md").write_text(f"first\n{text}\n", encoding="utf-8")
    assert [found.rpartition(": ")[0] for found in local_names(tmp_path, ["x.md"])] == ["x.md:2"]


@pytest.mark.parametrize("text", ["https://shop.example" + HOME + "1", "src" + HOME, "~" + HOME, "the pypi index"])
def test_other_texts_are_allowed(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.md").write_text(text, encoding="utf-8")
    assert local_names(tmp_path, ["x.md"]) == []
