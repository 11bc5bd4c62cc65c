"""Which tests `make quick` runs for a change."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .affected import ALWAYS, affected_tests, changed_files
from .documents import write

FILES = [
    *("runner/agentrun/cli/run.py", "runner/agentrun/store/locks.py", "runner/agentrun/wire.py"),
    *("tests/cli/test_run.py", "tests/cli/shared.py", "tests/testing/suite/test_a.py", "tests/golden/a.yaml"),
    *("tests/test_wire.py", "tests/shared.py", "README.md"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, dict.fromkeys(FILES, ""))
    write(tmp_path, {"tests/engine/test_locks.py": "from agentrun.store.locks import lock\n"})
    write(tmp_path, {"tests/test_wire.py": "from agentrun.wire import HttpCall\n"})
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("runner/agentrun/cli/run.py", ["tests/cli"]),
        ("runner/agentrun/cli/starter/specs/hello.yaml", ["tests/cli"]),
        ("runner/agentrun/testing/suite/assertions/a.py", ["tests/testing/suite"]),
        ("runner/agentrun/store/locks.py", ["tests/engine/test_locks.py"]),
        ("runner/agentrun/wire.py", ["tests/test_wire.py"]),
        ("tests/cli/test_run.py", ["tests/cli/test_run.py"]),
        ("tests/cli/test_removed.py", []),
        ("tests/cli/shared.py", ["tests/cli"]),
        ("tests/shared.py", []),
        ("tests/golden/a.yaml", []),
        ("README.md", ["tests/docs"]),
        ("docs/index.html", ["tests/docs"]),
        ("specs/support.yaml", ["tests/examples"]),
        ("Makefile", []),
    ],
)
def test_changed_file_selects_its_tests(root: Path, changed: str, tests: list[str]) -> None:
    assert affected_tests([changed], root) == sorted([ALWAYS, *tests])


def test_changed_files_are_committed_modified_and_new_files(tmp_path: Path) -> None:
    def git(*args: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example", *args], cwd=tmp_path, check=True)

    git("init", "--quiet", "--initial-branch=trunk")
    write(tmp_path, {"kept": "1", "changed": "1", "committed": "1"})
    git("add", ".")
    git("commit", "--quiet", "--message=one")
    git("checkout", "--quiet", "-b", "topic")
    write(tmp_path, {"committed": "2", "changed": "2", "new": "1"})
    git("commit", "--quiet", "--message=two", "committed")
    assert changed_files("trunk", tmp_path) == ["changed", "committed", "new"]
