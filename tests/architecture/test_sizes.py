"""Size limits of files, functions and class hierarchies, and module names that say nothing.

Rule 1  Of ten files nine have at most 350 lines, and none has more than 600. A function has at most 60, a line of our
        own classes 2 (of errors, 3). A file is split because it holds two concepts, never to get under a number.
Rule 2  What must be larger is listed in EXCEPTIONS with its reason, and leaves it when it has shrunk.
Rule 3  A module is named for what it holds.
"""

import ast
from pathlib import Path

import pytest

from .sources import Module, Tree, assert_no_findings, plant, product

MAX_FILE = 600
MAX_NINE_OF_TEN = 350
MAX_FUNCTION = 60
MAX_DEPTH = 2
MAX_ERROR_DEPTH = 3

# "agentrun.core.evolve" for a file, "agentrun.core.evolve.evolve" for a function or class -> the reason.
EXCEPTIONS: dict[str, str] = {}

# With and without an s at the end.
EMPTY_NAMES = {"common", "handler", "helper", "manager", "misc", "util"}


def large(tree: Tree) -> dict[str, str]:
    """What is over a limit, by its dotted name."""
    found = {}
    for module in tree.values():
        if len(module.lines) > MAX_FILE:
            found[module.name] = f"{len(module.lines)} lines"
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION:
                    found[f"{module.name}.{node.name}"] = f"{length} lines"
    classes = _bases(tree)
    for name in classes:
        line = _line(name, classes)
        is_error = any(base in {"Exception", "BaseException"} or base.endswith("Error") for base in line)
        depth = sum(base in classes for base in line)
        if depth > (MAX_ERROR_DEPTH if is_error else MAX_DEPTH):
            found[name] = f"{depth} classes deep"
    return found


def ninth_of_ten(tree: Tree) -> int:
    """The size that nine of ten files do not exceed."""
    sizes = sorted(len(module.lines) for module in tree.values())
    return sizes[-(-9 * len(sizes) // 10) - 1]


def _bases(tree: Tree) -> dict[str, list[str]]:
    """Every class of the tree and its bases, all by their full names."""
    return {
        f"{module.name}.{node.name}": [_full_name(base, module, tree) for base in node.bases]
        for module in tree.values()
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
    }


def _full_name(base: ast.expr, module: Module, tree: Tree) -> str:
    if isinstance(base, ast.Subscript):  # Generic[T]
        base = base.value
    head, dot, rest = ast.unparse(base).partition(".")
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == head:
                    return f"{node.module}.{alias.name}{dot}{rest}"
        if isinstance(node, ast.ClassDef) and node.name == head:
            return f"{module.name}.{head}{dot}{rest}"
    return f"{head}{dot}{rest}"


def _line(name: str, classes: dict[str, list[str]]) -> list[str]:
    """The longest line of ancestors of a class, itself first."""
    above = [_line(base, classes) for base in classes.get(name, []) if base != name]
    return [name, *max(above, key=len, default=[])]


def stale_exceptions(exceptions: dict[str, str], found: dict[str, str]) -> list[str]:
    """Exceptions that have no reason, or are no longer needed."""
    unneeded = [f"{name}: no longer needed" for name in exceptions if name not in found]
    return unneeded + [f"{name}: say why" for name, reason in exceptions.items() if not reason.strip()]


def meaningless_names(tree: Tree) -> list[str]:
    return [name for name in tree if EMPTY_NAMES & {word.rstrip("s") for word in name.rpartition(".")[2].split("_")}]


def test_product_is_within_the_size_limits() -> None:
    found = large(product())
    assert_no_findings([f"{name}: {size}" for name, size in found.items() if name not in EXCEPTIONS])


def test_nine_of_ten_files_are_short() -> None:
    assert ninth_of_ten(product()) <= MAX_NINE_OF_TEN


def test_size_exceptions_are_needed_and_have_a_reason() -> None:
    assert_no_findings(stale_exceptions(EXCEPTIONS, large(product())))


def test_no_module_has_a_meaningless_name() -> None:
    assert_no_findings(meaningless_names(product()))


TWO = "class A: ...\nclass B(A): ...\n"
THREE = TWO + "class C(B): ...\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a.py": "\n" * 600}, []),
        ({"a.py": "\n" * 601}, ["agentrun.a"]),
        ({"a.py": "def f():\n" + "    x = 1\n" * 59}, []),
        ({"a.py": "class C:\n  async def f():\n" + "    x = 1\n" * 60}, ["agentrun.a.f"]),
        ({"a.py": "class A(Struct): ...\nclass B(A): ..."}, []),
        ({"a.py": TWO, "b.py": "from agentrun.a import B\nclass C(B): ..."}, ["agentrun.b.C"]),
        ({"a.py": TWO, "b.py": "from agentrun import a\nclass C(a.B[int]): ..."}, ["agentrun.b.C"]),
        ({"a.py": TWO, "b.py": "import agentrun.a\nclass C(agentrun.a.B): ..."}, ["agentrun.b.C"]),
        ({"a.py": THREE.replace("A:", "A(Exception):")}, []),
        ({"a.py": THREE.replace("A:", "A(Exception):") + "class D(C): ..."}, ["agentrun.a.D"]),
    ],
)
def test_oversized_code_is_found(tmp_path: Path, files: dict[str, str], found: list[str]) -> None:
    assert list(large(plant(tmp_path, files))) == found


@pytest.mark.parametrize(("large", "found"), [(1, 10), (2, 400)])
def test_ninth_of_ten_is_computed(tmp_path: Path, large: int, found: int) -> None:
    files = {f"f{number}.py": "\n" * (400 if number < large else 10) for number in range(9)}
    assert ninth_of_ten(plant(tmp_path, files | {"last.py": "\n" * 10})) == found


def test_stale_exceptions_are_found() -> None:
    exceptions = {"agentrun.a": "a table", "agentrun.b": " ", "agentrun.c": "a table"}
    found = {"agentrun.a": "400 lines", "agentrun.b": "400 lines"}
    assert stale_exceptions(exceptions, found) == ["agentrun.c: no longer needed", "agentrun.b: say why"]


def test_meaningless_names_are_found(tmp_path: Path) -> None:
    tree = plant(tmp_path, {"core/helpers.py": "", "utils/__init__.py": "", "io_utils.py": "", "wire.py": ""})
    assert sorted(meaningless_names(tree)) == ["agentrun.core.helpers", "agentrun.io_utils", "agentrun.utils"]
