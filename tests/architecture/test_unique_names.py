"""A public name of a module is defined once in the tree, so that a search for it finds one place."""

import ast
from collections.abc import Iterator
from pathlib import Path

from .sources import Tree, assert_no_findings, plant, product

ALLOWED = {
    "command": "every module of a command has its click command, which `cli/group.py` loads by this name",
}
"""Name → why it may be defined in several modules."""


def public_names(body: list[ast.stmt]) -> Iterator[str]:
    """The functions, classes and constants that these statements define. Imported names are not defined here."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names = [name]
            case ast.Assign(targets=targets):
                names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.If() | ast.Try():
                handled = [statement for handler in getattr(node, "handlers", ()) for statement in handler.body]
                names = [*public_names([*node.body, *node.orelse, *handled])]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def repeated_names(tree: Tree) -> dict[str, list[str]]:
    """Each public name that several modules define, with these modules."""
    modules: dict[str, list[str]] = {}
    for module in tree.values():
        for name in dict.fromkeys(public_names(module.tree.body)):
            modules.setdefault(name, []).append(module.name)
    return {name: found for name, found in modules.items() if len(found) > 1}


def test_public_names_are_defined_once() -> None:
    found = {name: modules for name, modules in repeated_names(product()).items() if name not in ALLOWED}
    assert_no_findings([f"{name} is defined in {', '.join(modules)}" for name, modules in found.items()])


def test_every_exception_is_needed() -> None:
    assert ALLOWED.keys() <= repeated_names(product()).keys()


def test_name_of_two_modules_is_found(tmp_path: Path) -> None:
    first = "from a import imported\nimport os\nclass Limits: ...\ndef _private(): ...\nSIZE: int = 1\nmain = 1\n"
    second = "from a import imported\nimport os\nLimits = 1\ndef _private(): ...\nif SIZE:\n    main, SIZE = 2, 3\n"
    expected = {name: ["agentrun.a", "agentrun.b"] for name in ("Limits", "main", "SIZE")}
    assert repeated_names(plant(tmp_path, {"a.py": first, "b.py": second})) == expected


def test_name_that_one_module_defines_twice_is_allowed(tmp_path: Path) -> None:
    assert repeated_names(plant(tmp_path, {"a.py": "try:\n    x = 1\nexcept OSError:\n    x = 2\nx = 3\n"})) == {}
