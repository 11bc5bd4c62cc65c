"""Python source read as data: which modules there are, and which module imports which.

The checkers in this folder are functions from a tree of sources to a list of findings, so that each can be
shown a small tree with a planted fault (`plant`) as well as the real one (`product`).
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "runner" / "agentrun"


@dataclass(frozen=True)
class Import:
    """One imported module: `target` is a module of the tree where there is one, else the name as written."""

    target: str
    line: int
    late: bool
    """Inside a function, so it happens when the function runs."""


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
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def at(self, line: int, message: str) -> str:
        return f"{self.name}:{line}: {message}"


Tree = dict[str, Module]


def read(folder: Path) -> Tree:
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
    return read(PACKAGE)


def plant(folder: Path, files: dict[str, str]) -> Tree:
    """A tree named `agentrun` of the given files."""
    for name, text in files.items():
        path = folder / "agentrun" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read(folder / "agentrun")


def nothing(findings: list[str]) -> None:
    """Fail with the whole list; pytest would cut a comparison with `[]` short."""
    assert not findings, "\n" + "\n".join(findings)


def imports(module: Module, tree: Tree) -> list[Import]:
    """What `module` imports at run time. Imports under `if TYPE_CHECKING` do not happen and are left out."""
    return list(dict.fromkeys(_imports(module.tree, module, tree, late=False)))


def _imports(node: ast.AST, module: Module, tree: Tree, *, late: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from _imports(ast.Module([other], []), module, tree, late=late)
            continue
        inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(child, ast.Import | ast.ImportFrom | ast.Call):
            for target in _targets(child, module, tree):
                yield Import(target, child.lineno, inside)
        yield from _imports(child, module, tree, late=inside)


def _targets(node: ast.AST, module: Module, tree: Tree) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=written, names=names, level=level):
            base = _absolute(module, written, level)
            # `from a import b` imports the module a.b where there is one, else something out of a.
            for inner in (f"{base}.{alias.name}" for alias in names):
                yield inner if inner in tree else base
        case ast.Call(
            func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            yield name


def _absolute(module: Module, written: str | None, level: int) -> str:
    if level == 0:
        return written or ""
    parts = module.name.split(".")
    keep = len(parts) - level + module.is_package
    return ".".join([*parts[:keep], *([written] if written else [])])
