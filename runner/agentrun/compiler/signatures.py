"""Python functions as tools, read from their source: nothing is imported.

Rule 1  A module is a file under the project's import roots, found by its path. `os:system` is not one, also not when
        the project has an os.py: importing it would give Python's own.
Rule 2  The source is parsed, never run. What it cannot tell (an unknown annotation) must be declared as `args:`.
Rule 3  A module is parsed once, and only when it is of a size that a person would write: a syntax tree takes a
        thousand times the memory of its text.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import warnings
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec import Struct

from agentrun.canon import text_hash
from agentrun.compiler.annotations import Annotations, default_of, is_text
from agentrun.compiler.docstrings import described
from agentrun.spec.files import FileRefused, read_inside
from agentrun.spec.problems import Source, did_you_mean, quoted
from agentrun.spec.project import Project

MOST_WORDS = 40_000
"""Words and signs in one module: some 4,000 lines."""

_word = re.compile(r"\w+|[^\w\s]|\n")


class Refused(Exception):
    """Why a function cannot be a tool."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        self.code, self.message, self.hint = code, message, hint
        super().__init__(message)


class Function(Struct, frozen=True):
    """A function as its source shows it."""

    module: str
    name: str
    source: str
    """Hash of the module's source."""
    description: str | None
    parameters: tuple[str, ...]
    """The names of its parameters."""
    required: tuple[str, ...]
    takes_any: bool
    """Whether it has **keywords."""
    schema: dict[str, Any] | None
    """The schema of its arguments; None when an annotation cannot be read."""
    unread: str | None = None
    """The parameter whose annotation cannot be read."""
    by_position: str | None = None
    """A parameter that cannot be given by its name."""
    types: dict[str, str] = {}
    """The JSON type of each parameter that has exactly one."""
    takes_one: bool = True
    """Whether it can be called with one value, as a hook is."""
    is_async: bool = False


def find_function(project: Project, reference: str) -> Function:
    """The function that `module:function` names, or why there is none."""
    module, _, name = reference.partition(":")
    source = module_source(project, module)
    functions = _functions(module, source.shown, source.text)
    if isinstance(functions, Refused):
        raise functions
    if name not in functions:
        hint = did_you_mean(name, functions) or "it must be a function at the top level of the module"
        raise Refused("spec.python", f"{source.shown} has no function {quoted(name)}", hint)
    function = functions[name]
    if function.by_position is not None:
        message = f"{quoted(reference)} takes {quoted(function.by_position)} by position only"
        raise Refused("spec.python", message, "arguments are given by name: take the / out of its parameters")
    return function


def module_source(project: Project, module: str) -> Source:
    """The file of a module."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        raise Refused("spec.python", f"{quoted(module)} is not a module's name")
    if parts[0] in sys.stdlib_module_names:
        hint = "tools are functions of your project; a module of its own may not be called like one of Python's"
        raise Refused("spec.python", f"{quoted(parts[0])} is a module of Python itself", hint)
    path = "/".join(parts)
    for root in project.import_roots:
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            try:
                return read_inside(project.root, project.root / root, candidate)
            except FileRefused as refused:
                if refused.code != "spec.file_missing":
                    raise Refused(refused.code, refused.message, refused.hint) from None
    roots = ", ".join(project.import_roots)
    hint = f"looked for {path}.py under {roots} (import_roots of [tool.agentrun] in pyproject.toml)"
    raise Refused("spec.python", f"module {quoted(module)} is not in this project", hint)


def words_in(source: Source, most: int = MOST_WORDS) -> int:
    """How large a module is, counted up to one more than `most`."""
    return sum(1 for _ in islice(_word.finditer(source.text), most + 1))


@lru_cache(maxsize=128)
def _functions(module: str, shown: str, text: str) -> dict[str, Function] | Refused:
    """The functions at the top level of a module, by name, or why it cannot be read."""
    if sum(1 for _ in islice(_word.finditer(text), MOST_WORDS + 1)) > MOST_WORDS:
        hint = f"move the functions into a module of less than {MOST_WORDS:,} words and signs"
        return Refused("spec.python", f"{shown} is too large to be read", hint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of an escape is between it and the author
            tree = ast.parse(text)
        nodes = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
        source = text_hash(text)
        read = Annotations(tree)
        return {name: _function(module, node, source, read) for name, node in nodes.items()}
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        return Refused("spec.python", f"{shown} is not valid Python{line}")
    except (ValueError, RecursionError, MemoryError):
        return Refused("spec.python", f"{shown} cannot be read as Python")


def _function(
    module: str, node: ast.FunctionDef | ast.AsyncFunctionDef, source: str, annotations: Annotations
) -> Function:
    given = [*node.args.posonlyargs, *node.args.args]
    optional = [arg.arg for arg in given[len(given) - len(node.args.defaults) :]]
    defaults = dict(zip(optional, node.args.defaults, strict=True))
    for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        defaults |= {} if default is None else {arg.arg: default}
    parameters = [*given, *node.args.kwonlyargs]
    words = described(_docstring(node), [arg.arg for arg in parameters])
    properties: dict[str, Any] = {}
    unread = None
    for arg in parameters:
        if arg.arg in properties:  # Python finds this only when it compiles
            raise SyntaxError
        schema = annotations.schema(arg.annotation)
        unread = unread or (arg.arg if schema is None else None)
        properties[arg.arg] = schema and _said(schema, words.get(arg.arg), default_of(defaults.get(arg.arg)))
    required = tuple(arg.arg for arg in parameters if arg.arg not in defaults)
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return Function(
        module=module,
        name=node.name,
        source=source,
        description=_first_paragraph(node),
        parameters=tuple(arg.arg for arg in parameters),
        required=required,
        takes_any=node.args.kwarg is not None,
        schema=None if unread or node.args.kwarg or node.args.vararg else schema,
        unread=unread,
        by_position=next((arg.arg for arg in node.args.posonlyargs), None),
        takes_one=bool(node.decorator_list) or _takes_one(node.args),
        is_async=isinstance(node, ast.AsyncFunctionDef),
        types={name: kind for name, each in properties.items() if isinstance(kind := (each or {}).get("type"), str)},
    )


def _takes_one(args: ast.arguments) -> bool:
    given = len(args.posonlyargs) + len(args.args)
    needed = given - len(args.defaults)
    return (given > 0 or args.vararg is not None) and needed <= 1 and None not in args.kw_defaults


def _said(schema: dict[str, Any], words: str | None, default: object) -> dict[str, Any]:
    """The schema of a parameter, with what is said about it in words and what it is when it is absent."""
    said = {} if words is None or not is_text(words) else {"description": words}
    return {**said, **schema, **({} if default is ... else {"default": default})}


def _first_paragraph(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    text = _docstring(node).split("\n\n")[0].replace("\n", " ").strip()
    return text if text and is_text(text) else None


def _docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return inspect.cleandoc(ast.get_docstring(node) or "")
