"""Only `agentrun.files` writes, changes or removes files.
repository brings, or leave half a file behind."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .sources import Module, Tree, assert_no_findings, plant, product

WRITER = "agentrun.files"
MODULES = {"shutil", "sqlite3", "tempfile"}
METHODS = {
    *("write_text", "write_bytes", "touch", "mkdir", "makedirs", "rmdir", "removedirs", "rmtree", "unlink"),
    *("rename", "renames", "symlink", "symlink_to", "hardlink_to", "link", "mkfifo", "truncate"),
}
FLAGS = {"O_CREAT", "O_WRONLY", "O_RDWR", "O_TRUNC", "O_APPEND"}
EXCEPTIONS = {
    ("agentrun.cli.console", "shutil"): "asks how wide the terminal is",
    ("agentrun.cli.doctor", "shutil"): "asks how much room the disk has",
    ("agentrun.distribution", "shutil"): "looks for git",
    ("agentrun.store.index", "sqlite3"): "a database whose path agentrun.files has checked",
    ("agentrun.cli.stdout_guard", "open"): "a stream on a descriptor that is open already",
    ("agentrun.engine.driver", "open"): "a journal, by whatever keeps it",
    ("agentrun.cli.journal_file", "open"): "a journal, by whatever keeps it",
    ("agentrun.engine.inbox", "open"): "a journal, by whatever keeps it",
}


def file_writes(tree: Tree) -> list[str]:
    """Every place outside the writing module that could write a file, without those of EXCEPTIONS."""
    return [
        module.at(line, f"{what}: only {WRITER} writes files")
        for module in tree.values()
        if module.name != WRITER
        for line, what in _writes(module)
        if (module.name, what) not in EXCEPTIONS
    ]


def _writes(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            yield from ((node.lineno, name) for name in names if name.split(".")[0] in MODULES)
            if isinstance(node, ast.ImportFrom) and node.module == "os":
                yield from ((node.lineno, each.name) for each in node.names if each.name in {*METHODS, "replace"})
        elif isinstance(node, ast.Call):
            yield from ((node.lineno, what) for what in _call(node))


def _call(call: ast.Call) -> Iterator[str]:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = function.value if isinstance(function, ast.Attribute) else None
    of_os = isinstance(owner, ast.Name) and owner.id == "os"
    if name == "open" and of_os:
        if _flags(call) and not _is_null_device(call):
            yield "os.open"
    elif name == "open":
        if _mode(call, 0 if owner is not None else 1):
            yield "open"
    elif name == "replace" and owner is not None:
        # A string's takes two arguments, a date's and a struct's take keywords.
        if of_os or (len(call.args) == 1 and not call.keywords):
            yield "replace"
    elif name == "remove":
        if of_os:
            yield "remove"
    elif owner is not None and name in METHODS:
        yield name


def _flags(call: ast.Call) -> bool:
    found = {node.attr for each in call.args[1:] for node in ast.walk(each) if isinstance(node, ast.Attribute)}
    return bool(found & FLAGS)


def _is_null_device(call: ast.Call) -> bool:
    first = call.args[0]
    return isinstance(first, ast.Attribute) and first.attr == "devnull"


def _mode(call: ast.Call, place: int) -> bool:
    """Whether `open` opens for writing. A mode that is no literal may be any."""
    given = [each.value for each in call.keywords if each.arg == "mode"] + call.args[place : place + 1]
    return any(not isinstance(each, ast.Constant) or bool(set("wax+") & set(str(each.value))) for each in given)


def test_only_the_files_module_writes_files() -> None:
    assert_no_findings(file_writes(product()))


def test_write_exceptions_are_needed() -> None:
    found = {(module.name, what) for module in product().values() for _, what in _writes(module)}
    assert EXCEPTIONS.keys() - found == set(), "an exception that nothing needs any more"


@pytest.mark.parametrize(
    "text",
    [
        "open('a', 'w')",
        "open('a', mode='ab')",
        "open('a', mode)",
        "path.open('xb')",
        "path.open('r+')",
        "path.write_text('x')",
        "path.write_bytes(b'x')",
        "import os\nos.open(path, os.O_RDWR | os.O_CREAT)",
        "import os\nos.open(path, os.O_WRONLY, 0o600)",
        "path.mkdir(parents=True)",
        "import os\nos.makedirs('a')",
        "import os\nos.rename('a', 'b')",
        "import os\nos.replace('a', 'b')",
        "path.replace(other)",
        "path.rename(other)",
        "from os import replace",
        "path.symlink_to('b')",
        "import os\nos.symlink('a', 'b')",
        "import shutil",
        "from shutil import copy",
        "import tempfile",
        "from tempfile import mkstemp",
        "import sqlite3",
        "path.unlink()",
        "import os\nos.remove('a')",
        "path.touch()",
    ],
)
def test_file_write_is_found(tmp_path: Path, text: str) -> None:
    assert len(file_writes(plant(tmp_path, {"cli/x.py": text}))) == 1
    assert file_writes(plant(tmp_path / "writer", {"files.py": text})) == []


def test_reading_and_similar_calls_are_allowed(tmp_path: Path) -> None:
    text = (
        "import os\nopen('a')\nopen('a', 'rb')\npath.open('rb')\npath.open()\n'a'.replace('a', 'b')\n"
        "replace(struct, a=1)\ntime.replace(tzinfo=UTC)\nos.open(os.devnull, os.O_WRONLY)\n"
        "os.open(path, os.O_RDONLY | os.O_NOFOLLOW)\nitems.remove(1)\ntree.write(path, b'')\n"
    )
    assert file_writes(plant(tmp_path, {"cli/x.py": text})) == []
