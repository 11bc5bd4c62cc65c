"""Python functions as tools, hooks and assertions. They are read from their source; nothing is imported.

Rule 1  A module is a file under the project's import roots, found by its path. Modules of Python's standard library are
        refused, even if the project has a file of that name, because an import would load Python's own module.
Rule 2  The source is parsed, never run. Arguments whose annotations cannot be read must be declared as `args:`.
Rule 3  A module is parsed once, and only up to a size that people write, because a syntax tree takes a thousand times
        the memory of its text.
"""

from __future__ import annotations

import ast
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
from agentrun.spec.problems import Problem, ProblemError, Source, SourcePlace, did_you_mean, is_utf8_text, quote_text
from agentrun.spec.project import Project
from agentrun.spec.source_files import FileRefused, read_project_file

MAX_MODULE_WORDS = 40_000
"""Tokens in one module: about 4,000 lines."""

_word = re.compile(r"\w+|[^\w\s]|\n")
MAX_PARAMETER_DESCRIPTION = 1000
MAX_DOCSTRING_LINES = 500
MAX_DOCSTRING_LENGTH = 32 * 1024
"""The rest of a longer docstring is ignored."""


class FunctionRefused(ProblemError):
    """Why a function cannot be used."""


class PythonFunction(Struct, frozen=True):
    module: str
    name: str
    source: str
    """Hash of the module's source."""
    description: str | None
    parameters: tuple[str, ...]
    required: tuple[str, ...]
    takes_any: bool
    """Whether it has **kwargs."""
    schema: dict[str, Any] | None
    """The schema of its arguments; None if an annotation cannot be read."""
    unreadable_parameter: str | None = None
    unreadable_class: str | None = None
    """Its annotation, if that is the name of a class."""
    positional_only_parameter: str | None = None
    """A parameter that cannot be passed by name."""
    defaults: dict[str, Any] = {}
    """The default of each parameter that has one that can be written as JSON, except null."""
    types: dict[str, str] = {}
    """The JSON type of each parameter with exactly one type."""
    takes_one: bool = True
    is_async: bool = False


def find_function(project: Project, reference: str) -> PythonFunction:
    """Return the function that `module:function` names. Raises `FunctionRefused`."""
    module, _, name = reference.partition(":")
    source = module_source(project, module)
    functions = _functions(module, source.display_name, source.text)
    if isinstance(functions, FunctionRefused):
        raise functions
    if name not in functions:
        hint = did_you_mean(name, functions) or "define it at the top level of the module"
        raise FunctionRefused("spec.python", f"{source.display_name} has no function {quote_text(name)}", hint)
    function = functions[name]
    if function.positional_only_parameter is not None:
        parameter = quote_text(function.positional_only_parameter)
        message = f"{quote_text(reference)} has the positional-only parameter {parameter}"
        raise FunctionRefused("spec.python", message, "arguments are passed by name; remove the / from its parameters")
    return function


def callback_problems(project: Project, reference: str, place: SourcePlace, parameter: str) -> Iterator[Problem]:
    """Check that a function exists and can be called with one argument, like hooks and assertions."""
    try:
        function = find_function(project, reference)
    except FunctionRefused as refused:
        yield refused.problem(place)
        return
    if not function.takes_one:
        message = f"{quote_text(reference)} must take exactly one argument"
        yield Problem(place, "spec.python", message, f"write it as def {function.name}({parameter})")


def module_source(project: Project, module: str) -> Source:
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        raise FunctionRefused("spec.python", f"{quote_text(module)} is not the name of a module")
    if parts[0] in sys.stdlib_module_names:
        hint = "use a function of your project, in a module with another name"
        raise FunctionRefused("spec.python", f"{quote_text(parts[0])} is a module of Python's standard library", hint)
    path, near = "/".join(parts), ""
    for root in project.import_roots:
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            try:
                return read_project_file(project.root, project.root / root, candidate)
            except FileRefused as refused:
                if refused.code != "spec.file_missing":
                    raise FunctionRefused(refused.code, refused.message, refused.hint) from None
                near = near or (f"{refused.hint} agentrun " if refused.hint else "")
    roots = ", ".join(project.import_roots)
    hint = f"{near}looked for {path}.py under {roots} (import_roots of [tool.agentrun] in pyproject.toml)"
    raise FunctionRefused("spec.python", f"module {quote_text(module)} is not in this project", hint)


def count_words(text: str) -> int:
    """Count the words and symbols of a module, up to one more than allowed."""
    return sum(1 for _ in islice(_word.finditer(text), MAX_MODULE_WORDS + 1))


@lru_cache(maxsize=128)
def _functions(module: str, shown: str, text: str) -> dict[str, PythonFunction] | FunctionRefused:
    """Return the functions at the top level of a module by name, or why it cannot be read."""
    if count_words(text) > MAX_MODULE_WORDS:
        hint = f"move the functions to a module with fewer than {MAX_MODULE_WORDS:,} tokens"
        return FunctionRefused("spec.python", f"{shown} is too large", hint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about escapes are not our concern
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


def _class_name(annotation: ast.expr | None) -> str | None:
    """The name in an annotation such as `Order` or `models.Order`, by the usual spelling of classes."""
    name = ast.unparse(annotation) if isinstance(annotation, ast.Name | ast.Attribute) else ""
    return name if name.rpartition(".")[2][:1].isupper() else None


def _function(
    module: str, node: ast.FunctionDef | ast.AsyncFunctionDef, source: str, annotations: AnnotationReader
) -> PythonFunction:
    positional = [*node.args.posonlyargs, *node.args.args]
    optional = [arg.arg for arg in positional[len(positional) - len(node.args.defaults) :]]
    defaults = dict(zip(optional, node.args.defaults, strict=True))
    for arg, written in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        defaults |= {} if written is None else {arg.arg: written}
    parameters = [*positional, *node.args.kwonlyargs]
    docstring = ast.get_docstring(node) or ""
    words = parameter_descriptions(docstring, [arg.arg for arg in parameters])
    properties: dict[str, Any] = {}
    unread: ast.arg | None = None
    found: dict[str, Any] = {}
    for arg in parameters:
        if arg.arg in properties:  # Python reports this only when it compiles the module
            raise SyntaxError
        schema = annotations.schema(arg.annotation)
        unread = unread or (arg if schema is None else None)
        default = literal_default(defaults.get(arg.arg))
        found |= {} if default is ... else {arg.arg: default}
        properties[arg.arg] = schema and _parameter_schema(schema, words.get(arg.arg), default)
    required = tuple(arg.arg for arg in parameters if arg.arg not in defaults)
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return PythonFunction(
        module=module,
        name=node.name,
        source=source,
        description=_first_paragraph(docstring),
        parameters=tuple(arg.arg for arg in parameters),
        required=required,
        takes_any=node.args.kwarg is not None,
        schema=None if unread or node.args.kwarg or node.args.vararg else schema,
        unreadable_parameter=None if unread is None else unread.arg,
        unreadable_class=_class_name(unread.annotation) if unread is not None else None,
        positional_only_parameter=next((arg.arg for arg in node.args.posonlyargs), None),
        takes_one=bool(node.decorator_list) or _takes_one(node.args),
        is_async=isinstance(node, ast.AsyncFunctionDef),
        defaults=found,
        types={name: kind for name, each in properties.items() if isinstance(kind := (each or {}).get("type"), str)},
    )


def _takes_one(args: ast.arguments) -> bool:
    positional = len(args.posonlyargs) + len(args.args)
    needed = positional - len(args.defaults)
    return (positional > 0 or args.vararg is not None) and needed <= 1 and None not in args.kw_defaults


def _parameter_schema(schema: dict[str, Any], words: str | None, default: object) -> dict[str, Any]:
    """The schema that the model reads. Of the defaults, it has numbers, booleans and texts that are not empty."""
    description = {} if words is None or not is_utf8_text(words) else {"description": words}
    is_shown = isinstance(default, int | float | str) and default != ""
    return {**description, **schema, **({"default": default} if is_shown else {})}


def _first_paragraph(docstring: str) -> str | None:
    text = docstring.partition("\n\n")[0].replace("\n", " ").strip()
    return text if text and is_utf8_text(text) else None


def _compile_re2(pattern: str) -> Any:
    return re2.compile(pattern)  # type: ignore[no-untyped-call]  # it has no types


_HEADING = _compile_re2(r"(?i)(?:(?:keyword )?arg(?:ument)?s|(?:other )?parameters):")
_UNDERLINED = _compile_re2(r"(?i)(?:other )?parameters")
_UNDERLINE = _compile_re2("-{3,}")
_GOOGLE = _compile_re2(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = _compile_re2(r"\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?")
_REST = _compile_re2(r":(?:param|parameter|arg|argument|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")


def parameter_descriptions(text: str, parameters: Collection[str]) -> dict[str, str]:
    """Return the descriptions of parameters. `text`: a docstring without indentation."""
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
    """Yield each `name: text` with the lines that are indented below it."""
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
    is_underline = [bool(_UNDERLINE.fullmatch(line.strip())) for line in [*lines, ""]]
    for start, heading in enumerate(lines):
        if not _UNDERLINED.fullmatch(heading.strip()) or not is_underline[start + 1]:
            continue
        own = _indent(heading)
        for place, line in enumerate(lines[start + 2 :], start + 2):
            if not line.strip() or _indent(line) > own:
                continue
            entry = _NUMPY.fullmatch(line.strip())
            if entry is None or is_underline[place + 1]:
                break
            words = list(_indented_lines(lines, place + 1, own))
            yield from ((name.strip(), words) for name in entry[1].split(","))


def _sphinx_style(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for start, line in enumerate(lines):
        if entry := _REST.fullmatch(line.strip()):
            yield entry[1], [entry[2], *_indented_lines(lines, start + 1, _indent(line))]


def _indented_lines(lines: list[str], start: int, indent: int) -> Iterator[str]:
    """Yield the following lines that are indented more than `indent`."""
    for line in lines[start:]:
        if line.strip() and _indent(line) <= indent:
            return
        yield line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
