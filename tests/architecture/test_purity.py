"""The core and the modules it imports do no IO and use no clock or randomness.

Rule 1  `core/` imports only what is named here, and none of it reaches a file, a clock, a socket or chance.
Rule 2  Nor do the modules below it, which the core imports: a pure core on an impure floor would be a wish.
Rule 3  No `async`, no `global`, and no call of a builtin that reads, writes, runs text, or differs between
        two processes (`hash` of a string, `id`).
"""

import ast
from pathlib import Path

import pytest

from .layers import GROUND, part, under
from .sources import Module, Tree, assert_no_findings, imports, plant, product

FLOOR = tuple(f"agentrun.{name}" for name in sorted(GROUND))
PURE = (
    *("__future__", "abc", "collections", "dataclasses", "enum", "types", "typing"),
    *("bisect", "copy", "functools", "heapq", "itertools", "operator"),
    *("base64", "decimal", "fractions", "hashlib", "math"),
    *("string", "textwrap", "unicodedata", "urllib.parse"),
    # Native code without IO. `re` is missing on purpose: its patterns can take forever, RE2's cannot.
    *("cel_expr_python", "jsonschema_rs", "msgspec", "re2"),
    *FLOOR,
)
MAY_IMPORT = {
    "core": (*PURE, "agentrun.core"),
    **dict.fromkeys(GROUND, (*PURE, "hmac", "json", "rfc8785")),
}
FORBIDDEN_CALLS = {
    *("open", "print", "input", "breakpoint"),
    *("eval", "exec", "compile", "__import__"),
    *("hash", "id"),
}


def impurities(tree: Tree) -> list[str]:
    return [
        finding
        for module in tree.values()
        if part(module.name) in MAY_IMPORT
        for finding in [*_imports(module, tree), *_code(module)]
    ]


def _imports(module: Module, tree: Tree) -> list[str]:
    return [
        module.at(item.line, f"imports {item.target}")
        for item in imports(module, tree)
        if not under(item.target, *MAY_IMPORT[part(module.name)])
    ]


def _code(module: Module) -> list[str]:
    found = []
    for node in module.nodes:
        match node:
            case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
                found.append(module.at(node.lineno, "async"))
            case ast.comprehension(is_async=1):
                found.append(module.at(node.target.lineno, "async"))
            case ast.Global():
                found.append(module.at(node.lineno, "global"))
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                found.append(module.at(node.lineno, f"calls {name}()"))
    return found


def test_core_is_pure() -> None:
    assert_no_findings(impurities(product()))


@pytest.mark.parametrize(
    "text",
    [
        *(f"import {name}" for name in ("os", "io", "time", "random", "asyncio", "httpx", "yaml", "re")),
        "from datetime import datetime",
        "from os.path import join",
        "import urllib.request",
        "def f():\n    import subprocess",
        "from agentrun.spec import models",
        "async def f(): ...",
        "def f():\n    global x",
        "x = open('f')",
        "x = hash('a')",
    ],
)
def test_impure_code_in_the_core_is_found(tmp_path: Path, text: str) -> None:
    assert len(impurities(plant(tmp_path, {"core/x.py": text}))) == 1
    assert impurities(plant(tmp_path, {"core/x.py": "", "engine/x.py": text})) == []


def test_impure_module_below_the_core_is_found(tmp_path: Path) -> None:
    assert impurities(plant(tmp_path, {"secret.py": "import os"})) == ["agentrun.secret:1: imports os"]


def test_pure_imports_are_allowed(tmp_path: Path) -> None:
    text = "import re2, msgspec\nfrom collections.abc import Iterator\nfrom agentrun.core import x\n"
    assert impurities(plant(tmp_path, {"core/x.py": text})) == []
