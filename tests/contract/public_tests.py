"""Whether a test runs agents as a user does: with a command, `agentrun.run` or a `Runtime`.

A test does if what it uses, and what its helpers in `tests` use, leads to one of these. This follows names: of
functions, classes and constants of a module, of what it imports, and of parameters, which can be fixtures.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePath
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
API_NAMES = ("", "Runtime", "arun", "audit", "replay", "resume", "run")
"""What leads to a run in `agentrun`; the empty one is the module."""
ENTRIES = {
    ("agentrun.engine.runtime", "Runtime"),
    ("agentrun.cli", "main"),
    ("agentrun.cli.group", "run_command"),
    *(("agentrun", name) for name in API_NAMES),
}
COMMANDS = ("cli/command.py", "cli/forked_command.py")
"""The modules of `tests` that run the command."""


class Names(NamedTuple):
    """The names of a module."""

    defined: dict[str, ast.AST]
    imported: dict[str, tuple[int, str, str]]
    """The number of dots, the module and the name in it, which is empty for the module itself."""


@cache
def names_in(file: str) -> Names:
    path = TESTS / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    defined: dict[str, ast.AST] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                defined[name] = node
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                defined[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                defined[name] = value
    imported: dict[str, tuple[int, str, str]] = {}
    for found in ast.walk(tree):
        if isinstance(found, ast.ImportFrom):
            imported |= {each.asname or each.name: (found.level, found.module or "", each.name) for each in found.names}
        elif isinstance(found, ast.Import):
            imported |= {each.asname or each.name: (0, each.name, "") for each in found.names}
    return Names(defined, imported)


def is_public(file: str, name: str, seen: set[tuple[str, str]] | None = None) -> bool:
    """Whether a name of a module of `tests` leads to a run that a user could start."""
    seen = set() if seen is None else seen
    if file in COMMANDS:
        return True
    if (file, name) in seen:
        return False
    seen.add((file, name))
    names = names_in(file)
    if name in names.imported:
        dots, module, inner = names.imported[name]
        found = _find_module(file, dots, module, inner)
        return (module, inner) in ENTRIES if found is None else is_public(*found, seen)
    return any(is_public(file, each, seen) for each in _used_names(names.defined.get(name)))


def _used_names(node: ast.AST | None) -> Iterator[str]:
    for each in () if node is None else ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.arg):
            yield each.arg


def _find_module(file: str, dots: int, module: str, name: str) -> tuple[str, str] | None:
    """The module of `tests` that an import means, and the name in it. None: it is another module."""
    if dots == 0:
        return None
    folder = PurePath(file)
    for _ in range(dots):
        folder = folder.parent
    path = folder.joinpath(*module.split(".")) if module else folder
    for candidate, inner in ((path / f"{name}.py", ""), (path.with_name(f"{path.name}.py") if module else path, name)):
        if (TESTS / candidate).is_file():
            return candidate.as_posix(), inner
    return None
