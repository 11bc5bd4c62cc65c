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
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import re2
from msgspec import Struct

from agentrun.canonical_json import text_hash
from agentrun.compiler.annotation_schemas import AnnotationReader, literal_default
from agentrun.spec.problems import Source, did_you_mean, is_utf8_text, quote_text
from agentrun.spec.project import Project
from agentrun.spec.source_files import FileRefused, read_project_file

MAX_MODULE_WORDS = 40_000
"""Words and signs in one module: some 4,000 lines."""

_word = re.compile(r"\w+|[^\w\s]|\n")


class FunctionRefused(Exception):
    """Why a function cannot be a tool."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        self.code, self.message, self.hint = code, message, hint
        super().__init__(message)


class PythonFunction(Struct, frozen=True):
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
    unreadable_parameter: str | None = None
    """The parameter whose annotation cannot be read."""
    positional_only_parameter: str | None = None
    """A parameter that cannot be given by its name."""
    types: dict[str, str] = {}
    """The JSON type of each parameter that has exactly one."""
    takes_one: bool = True
    """Whether it can be called with one value, as a hook is."""
    is_async: bool = False


def find_function(project: Project, reference: str) -> PythonFunction:
    """The function that `module:function` names, or why there is none."""
    module, _, name = reference.partition(":")
    source = module_source(project, module)
    functions = _functions(module, source.display_name, source.text)
    if isinstance(functions, FunctionRefused):
        raise functions
    if name not in functions:
        hint = did_you_mean(name, functions) or "it must be a function at the top level of the module"
        raise FunctionRefused("spec.python", f"{source.display_name} has no function {quote_text(name)}", hint)
    function = functions[name]
    if function.positional_only_parameter is not None:
        message = f"{quote_text(reference)} takes {quote_text(function.positional_only_parameter)} by position only"
        raise FunctionRefused("spec.python", message, "arguments are given by name: take the / out of its parameters")
    return function


def module_source(project: Project, module: str) -> Source:
    """The file of a module."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        raise FunctionRefused("spec.python", f"{quote_text(module)} is not a module's name")
    if parts[0] in sys.stdlib_module_names:
        hint = "tools are functions of your project; a module of its own may not be called like one of Python's"
        raise FunctionRefused("spec.python", f"{quote_text(parts[0])} is a module of Python itself", hint)
    path = "/".join(parts)
    for root in project.import_roots:
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            try:
                return read_project_file(project.root, project.root / root, candidate)
            except FileRefused as refused:
                if refused.code != "spec.file_missing":
                    raise FunctionRefused(refused.code, refused.message, refused.hint) from None
    roots = ", ".join(project.import_roots)
    hint = f"looked for {path}.py under {roots} (import_roots of [tool.agentrun] in pyproject.toml)"
    raise FunctionRefused("spec.python", f"module {quote_text(module)} is not in this project", hint)


def count_words(source: Source, most: int = MAX_MODULE_WORDS) -> int:
    """How large a module is, counted up to one more than `most`."""
    return sum(1 for _ in islice(_word.finditer(source.text), most + 1))


@lru_cache(maxsize=128)
def _functions(module: str, shown: str, text: str) -> dict[str, PythonFunction] | FunctionRefused:
    """The functions at the top level of a module, by name, or why it cannot be read."""
    if sum(1 for _ in islice(_word.finditer(text), MAX_MODULE_WORDS + 1)) > MAX_MODULE_WORDS:
        hint = f"move the functions into a module of less than {MAX_MODULE_WORDS:,} words and signs"
        return FunctionRefused("spec.python", f"{shown} is too large to be read", hint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of an escape is between it and the author
            tree = ast.parse(text)
        nodes = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
        source = text_hash(text)
        read = AnnotationReader(tree)
        return {name: _function(module, node, source, read) for name, node in nodes.items()}
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        return FunctionRefused("spec.python", f"{shown} is not valid Python{line}")
    except (ValueError, RecursionError, MemoryError):
        return FunctionRefused("spec.python", f"{shown} cannot be read as Python")


def _function(
    module: str, node: ast.FunctionDef | ast.AsyncFunctionDef, source: str, annotations: AnnotationReader
) -> PythonFunction:
    given = [*node.args.posonlyargs, *node.args.args]
    optional = [arg.arg for arg in given[len(given) - len(node.args.defaults) :]]
    defaults = dict(zip(optional, node.args.defaults, strict=True))
    for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        defaults |= {} if default is None else {arg.arg: default}
    parameters = [*given, *node.args.kwonlyargs]
    words = parameter_descriptions(_docstring(node), [arg.arg for arg in parameters])
    properties: dict[str, Any] = {}
    unread = None
    for arg in parameters:
        if arg.arg in properties:  # Python finds this only when it compiles
            raise SyntaxError
        schema = annotations.schema(arg.annotation)
        unread = unread or (arg.arg if schema is None else None)
        properties[arg.arg] = schema and _parameter_schema(
            schema, words.get(arg.arg), literal_default(defaults.get(arg.arg))
        )
    required = tuple(arg.arg for arg in parameters if arg.arg not in defaults)
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return PythonFunction(
        module=module,
        name=node.name,
        source=source,
        description=_first_paragraph(node),
        parameters=tuple(arg.arg for arg in parameters),
        required=required,
        takes_any=node.args.kwarg is not None,
        schema=None if unread or node.args.kwarg or node.args.vararg else schema,
        unreadable_parameter=unread,
        positional_only_parameter=next((arg.arg for arg in node.args.posonlyargs), None),
        takes_one=bool(node.decorator_list) or _takes_one(node.args),
        is_async=isinstance(node, ast.AsyncFunctionDef),
        types={name: kind for name, each in properties.items() if isinstance(kind := (each or {}).get("type"), str)},
    )


def _takes_one(args: ast.arguments) -> bool:
    given = len(args.posonlyargs) + len(args.args)
    needed = given - len(args.defaults)
    return (given > 0 or args.vararg is not None) and needed <= 1 and None not in args.kw_defaults


def _parameter_schema(schema: dict[str, Any], words: str | None, default: object) -> dict[str, Any]:
    """The schema of a parameter, with what is said about it in words and what it is when it is absent."""
    said = {} if words is None or not is_utf8_text(words) else {"description": words}
    return {**said, **schema, **({} if default is ... else {"default": default})}


def _first_paragraph(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    text = _docstring(node).split("\n\n")[0].replace("\n", " ").strip()
    return text if text and is_utf8_text(text) else None


def _docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return inspect.cleandoc(ast.get_docstring(node) or "")


# --- what a docstring says about the parameters of a function, in the three forms that people write -----------


MAX_PARAMETER_DESCRIPTION = 1000
"""Characters of what is said about one parameter."""
MAX_DOCSTRING_LINES = 500
MAX_DOCSTRING_LENGTH = 32 * 1024
"""Of a docstring no more is looked at."""


def _compile_re2(pattern: str) -> Any:
    return re2.compile(pattern)  # type: ignore[no-untyped-call]  # it has no types


_HEADING = _compile_re2(r"(?i)(?:(?:keyword )?arg(?:ument)?s|(?:other )?parameters):")
_UNDERLINED = _compile_re2(r"(?i)(?:other )?parameters")
_UNDERLINE = _compile_re2("-{3,}")
_GOOGLE = _compile_re2(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = _compile_re2(r"\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?")
_REST = _compile_re2(r":(?:param|parameter|arg|argument|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")


def parameter_descriptions(text: str, parameters: Collection[str]) -> dict[str, str]:
    """The descriptions of parameters. `text` is a docstring without its indentation."""
    lines = text[:MAX_DOCSTRING_LENGTH].expandtabs().splitlines()[:MAX_DOCSTRING_LINES]
    found: dict[str, str] = {}
    if not is_utf8_text(text):
        return found
    for read in (_google_style, _numpy_style, _sphinx_style):
        for name, words in read(lines):
            line = " ".join(" ".join(words).split())[:MAX_PARAMETER_DESCRIPTION]
            if name in parameters and line:
                found.setdefault(name, line)
    return found


def _google_style(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for start, line in enumerate(lines):
        if _HEADING.fullmatch(line.strip()):
            yield from _entries(list(_indented_lines(lines, start + 1, _indent(line))))


def _entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """`name: text`, with the lines that stand deeper."""
    own = min((_indent(line) for line in lines if line.strip()), default=0)
    name, words = "", list[str]()
    for line in lines:
        entry = _GOOGLE.fullmatch(line.strip()) if line.strip() and _indent(line) == own else None
        if entry is None:
            words.append(line)
            continue
        yield name, words
        name, words = entry[1], [entry[2]]
    yield name, words


def _numpy_style(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for start in range(len(lines) - 1):
        if _UNDERLINED.fullmatch(lines[start].strip()) and _UNDERLINE.fullmatch(lines[start + 1].strip()):
            own = _indent(lines[start])
            names, words = "", list[str]()
            for place, line in enumerate(lines[start + 2 :], start + 2):
                if not line.strip() or _indent(line) > own:
                    words.append(line)
                    continue
                entry = _NUMPY.fullmatch(line.strip())
                yield from ((name.strip(), words) for name in names.split(","))
                names, words = "", []
                if entry is None or (place + 1 < len(lines) and _UNDERLINE.fullmatch(lines[place + 1].strip())):
                    break
                names = entry[1]
            yield from ((name.strip(), words) for name in names.split(","))


def _sphinx_style(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for start, line in enumerate(lines):
        if entry := _REST.fullmatch(line.strip()):
            yield entry[1], [entry[2], *_indented_lines(lines, start + 1, _indent(line))]


def _indented_lines(lines: list[str], start: int, indent: int) -> Iterator[str]:
    """The lines that stand deeper, up to the first that does not."""
    for line in lines[start:]:
        if line.strip() and _indent(line) <= indent:
            return
        yield line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
