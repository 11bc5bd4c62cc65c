"""Print the tests affected by the changes of this branch, as pytest arguments for `make quick`.

Rule 1  A changed module runs the tests of its package: the folder of the same name, or of a package around it.
Rule 2  A module at the top of `agentrun`, or one without such a folder, runs the test files that import it.
Rule 3  A changed test file runs itself; a changed file that the tests of a folder share runs the folder.
Rule 4  `tests/architecture` always runs. What is true of the whole product is left to `make check`.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
ALWAYS = "tests/architecture"
BESIDE = {"docs": "tests/docs", "specs": "tests/examples", "cassettes": "tests/examples", "schemas": "tests/spec"}
"""Tests of folders that are not Python."""


def changed_files(base: str, root: Path = ROOT) -> list[str]:
    """Files that differ from the commit where this branch left `base`, and files that git does not know yet."""
    start = _git(root, "merge-base", "HEAD", base)
    listed = _git(root, "diff", "--name-only", start) + "\n" + _git(root, "ls-files", "--others", "--exclude-standard")
    return sorted({name for name in listed.splitlines() if name})


def _git(root: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def affected_tests(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """The test files and folders to run."""
    return sorted({ALWAYS, *(test for name in changed for test in _tests_of(PurePosixPath(name), root))})


def _tests_of(path: PurePosixPath, root: Path) -> Iterator[str]:
    match path.parts:
        case ("runner", "agentrun", *_, _):
            yield from _tests_of_module(path.relative_to("runner/agentrun"), root)
        case ("tests", _):
            if path.name.startswith("test_") and (root / path).exists():
                yield str(path)
        case ("tests", folder, *_):
            if path.name.startswith("test_"):
                yield from [str(path)] if (root / path).exists() else []
            elif folder != "golden":
                yield f"tests/{folder}"
        case (folder, *_) if folder in BESIDE or path.suffix == ".md":
            yield BESIDE.get(folder, "tests/docs")


def _tests_of_module(path: PurePosixPath, root: Path) -> Iterator[str]:
    folder = next((each for each in path.parents if each.name and (root / "tests" / each).is_dir()), None)
    if folder:
        yield f"tests/{folder}"
        return
    imported = re.compile(rf"\bagentrun\.{path.parts[0].removesuffix('.py')}\b")
    for test in sorted((root / "tests").rglob("test_*.py")):
        if imported.search(test.read_text(encoding="utf-8")):
            yield test.relative_to(root).as_posix()


if __name__ == "__main__":
    sys.stdout.write(" ".join(affected_tests(changed_files(sys.argv[1]))))
