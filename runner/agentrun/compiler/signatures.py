"""Python functions as tools, read from their source: nothing is imported.

Rule 1  A module is a file under the project's import roots, found by its path. `os:system` is not one.
Rule 2  The source is parsed, never run. What it cannot tell (an unknown annotation) must be declared as `args:`.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any

from msgspec import Struct

from agentrun.canon import text_hash
from agentrun.spec.files import FileRefused, Project, read_inside
from agentrun.spec.problems import Source, did_you_mean, quoted

_SIMPLE = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}


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


def find_function(project: Project, reference: str) -> Function:
    """The function that `module:function` names, or why there is none."""
    module, _, name = reference.partition(":")
    source = _module_source(project, module)
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Refused("spec.python", f"{source.shown} is not valid Python") from None
    functions = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    if name not in functions:
        hint = did_you_mean(name, functions) or "it must be a function at the top level of the module"
        raise Refused("spec.python", f"{source.shown} has no function {quoted(name)}", hint)
    return _function(module, functions[name], text_hash(source.text))


def _module_source(project: Project, module: str) -> Source:
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        raise Refused("spec.python", f"{quoted(module)} is not a module's name")
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


def _function(module: str, node: ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> Function:
    given = [*node.args.posonlyargs, *node.args.args]
    optional = {arg.arg for arg in given[len(given) - len(node.args.defaults) :]}
    optional |= {arg.arg for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default}
    parameters = [*given, *node.args.kwonlyargs]
    properties: dict[str, Any] = {}
    unread = None
    for arg in parameters:
        schema = _schema(arg.annotation)
        unread = unread or (arg.arg if schema is None else None)
        properties[arg.arg] = schema
    required = tuple(arg.arg for arg in parameters if arg.arg not in optional)
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    doc = ast.get_docstring(node)
    return Function(
        module=module,
        name=node.name,
        source=source,
        description=inspect.cleandoc(doc).split("\n\n")[0].replace("\n", " ") if doc else None,
        parameters=tuple(arg.arg for arg in parameters),
        required=required,
        takes_any=node.args.kwarg is not None,
        schema=None if unread or node.args.kwarg or node.args.vararg else schema,
        unread=unread,
    )


def _schema(node: ast.expr | None) -> dict[str, Any] | None:
    """The schema of an annotation; None when it says nothing that can be checked."""
    match node:
        case ast.Name(id=name) if name in _SIMPLE:
            return {"type": _SIMPLE[name]}
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(text)):
            return _schema(_parsed(text))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _any_of([_schema(left), _schema(right)])
        case ast.Subscript(value=ast.Name(id="Optional") | ast.Attribute(attr="Optional"), slice=inner):
            return _any_of([_schema(inner), {"type": "null"}])
        case ast.Subscript(value=ast.Name(id="Literal") | ast.Attribute(attr="Literal"), slice=inner):
            return _literal(inner)
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            items = _schema(inner)
            return items and {"type": "array", "items": items}
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[ast.Name(id="str"), value])):
            values = _schema(value)
            return values and {"type": "object", "additionalProperties": values}
        case _:
            return None


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _any_of(schemas: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    known = [schema for schema in schemas if schema is not None]
    if len(known) < len(schemas):
        return None
    flat = [inner for schema in known for inner in schema.get("anyOf", [schema])]
    return {"anyOf": flat}


def _literal(node: ast.expr) -> dict[str, Any] | None:
    values = node.elts if isinstance(node, ast.Tuple) else [node]
    plain = [value.value for value in values if isinstance(value, ast.Constant)]
    return {"enum": plain} if len(plain) == len(values) else None
