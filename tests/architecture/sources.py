"""Python source files read as data: the modules of a tree and their imports.

The checkers in this folder are functions from a tree of sources to a list of findings, so that each can be
shown a small tree with a planted fault (`plant`) as well as the real one (`product`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "runner" / "agentrun"


@dataclass(frozen=True)
class Import:
    """One imported module: `target` is a module of the tree where there is one, else the name as written."""

    target: str
    line: int
    late: bool
    """Inside a function, so it happens when the function runs."""


class _ImportStatement(NamedTuple):
    """One import as it is written: of `inner` if that is a module, else of `base`."""

    base: str
    inner: str
    line: int
    late: bool


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    text: str
    is_package: bool

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree. Many checks look at them, and to walk a tree takes longer than to make it."""
        return list(ast.walk(self.tree))

    @cached_property
    def imported(self) -> list[_ImportStatement]:
        return list(_imports(self.tree, self, late=False))

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def at(self, line: int, message: str) -> str:
        return f"{self.name}:{line}: {message}"


Tree = dict[str, Module]


def read_tree(folder: Path) -> Tree:
    """Every module under `folder`, which is itself a package and gives its name to the tree."""
    tree = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        tree[name] = Module(name, path, path.read_text(encoding="utf-8"), is_package)
    return tree


@cache
def product() -> Tree:
    return read_tree(PACKAGE)


def plant(folder: Path, files: dict[str, str]) -> Tree:
    """A tree named `agentrun` of the given files."""
    for name, text in files.items():
        path = folder / "agentrun" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_tree(folder / "agentrun")


def assert_no_findings(findings: list[str]) -> None:
    """Fail with the whole list; pytest would cut a comparison with `[]` short."""
    assert not findings, "\n" + "\n".join(findings)


def imports(module: Module, tree: Tree) -> list[Import]:
    """What `module` imports at run time. Imports under `if TYPE_CHECKING` do not happen and are left out."""
    found = (Import(inner if inner in tree else base, line, late) for base, inner, line, late in module.imported)
    return list(dict.fromkeys(found))


def _imports(node: ast.AST, module: Module, *, late: bool) -> Iterator[_ImportStatement]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _is_for_types(child.test):
            for other in child.orelse:
                yield from _imports(ast.Module([other], []), module, late=late)
            continue
        inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(child, ast.Import | ast.ImportFrom | ast.Call):
            for base, inner in _targets(child, module):
                yield _ImportStatement(base, inner, child.lineno, inside)
        yield from _imports(child, module, late=inside)


def _is_for_types(test: ast.expr) -> bool:
    return any("TYPE_CHECKING" in (getattr(node, "id", ""), getattr(node, "attr", "")) for node in ast.walk(test))


def _targets(node: ast.AST, module: Module) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Import(names=names):
            yield from ((alias.name, alias.name) for alias in names)
        case ast.ImportFrom(module=written, names=names, level=level):
            base = _absolute(module, written, level)
            # `from a import b` imports the module a.b where there is one, else something out of a.
            yield from ((base, f"{base}.{alias.name}") for alias in names)
        case ast.Call(
            func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            yield name, name


def _absolute(module: Module, written: str | None, level: int) -> str:
    if level == 0:
        return written or ""
    parts = module.name.split(".")
    keep = len(parts) - level + module.is_package
    return ".".join([*parts[:keep], *([written] if written else [])])
