"""Text templates: Jinja renders them in its sandbox, with a limit on all work.

Rule 1  Values are data. They are inserted into the text once and never interpreted as a template.
Rule 2  The text is that of `jinja2.Environment(undefined=StrictUndefined, keep_trailing_newline=True)`, or the render
        stops. Filters, tests, functions and methods are listed, and each pays for its work before it runs.
Rule 3  A missing value stops the render, unless the template tests it with `is defined` or `|default`.
Rule 4  The result depends only on source and values, not on clock, locale, hash seed, files or environment.
Rule 5  In a package the files that a template includes follow it in a comment. So the text is complete, and the
        fingerprint covers it.
Rule 6  Compiled templates are kept in memory, the last used ones, and enough for the largest package. On disk they
        would be code that a repository could bring.
"""

from __future__ import annotations

import json
import re
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from jinja2 import TemplateError, UndefinedError, nodes
from jinja2.exceptions import FilterArgumentError
from msgspec import Struct

from agentrun.compiler.template_grammar import IncludedNames, NameCheck, ParsedTemplate, read_template
from agentrun.compiler.template_meter import Bounds, Json, RenderStopped
from agentrun.compiler.template_parser import MAX_TEMPLATE_TOKENS, TemplateProblem, is_template, normalize_newlines
from agentrun.compiler.template_sandbox import CompiledTemplate, compile_template, new_environment

__all__ = [
    "IncludedNames",
    "Json",
    "RenderedLine",
    "TemplateProblem",
    "TemplateRenderError",
    "bundle_template",
    "check_template",
    "included_files",
    "is_template",
    "render_template",
    "render_template_lines",
]


_BOUNDS = Bounds()
MAX_TRACED_PARTS = 20_000
"""A part of a line takes 250 bytes, and a miss can need ten traced renders."""
RENDER_ERRORS = (
    *(RenderStopped, TemplateError, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError),
    *(MemoryError, TypeError, ValueError),
)
_SAFE_WORDS = frozenset(
    {"str", "int", "float", "bool", "list", "dict", "tuple", "NoneType", "range", "<", ">", "<=", ">=", "in <string>"}
)
"""What Python quotes in a message about types; something else may be a value."""
_SAFE_MESSAGES = ("not enough values to unpack", "too many values to unpack", "range() arg 3", "slice step cannot be")
NodeMarks: TypeAlias = Callable[[str, ParsedTemplate], Mapping[int, str]]
"""Returns the marks for the nodes of a file, as `compile_template` takes them."""
TOO_DEEP: Final = "the template is nested too deeply"
# The grammar limits the depth; this is for macros that call themselves, and for callers deep in the call stack.
TOO_LARGE: Final = "the template needs too much memory"
TOO_MANY_TOKENS: Final = (
    f"the template and the files that it includes have more than {MAX_TEMPLATE_TOKENS} parts together"
)
_FILES: Final = "{# files: "
_END: Final = " #}"
_INCLUDES: Final = re.compile(r"\{%[-+]?\s*(?:include|import|from)\b")
_MAX_KEPT: Final = 64 << 20
_BYTES_PER_TOKEN: Final = 128


def check_template(
    source: str,
    names: Mapping[str, Collection[str] | None],
    included: IncludedNames | None = None,
) -> list[TemplateProblem]:
    """Return all mistakes in a template, in order.

    `names`: the variables that the template can use, with their known fields (None: any field).
    `included`: gets the files that it includes.
    """
    try:
        reading = read_template(source)
        faults = reading.faults.copy()
        if reading.tree is not None:
            found = NameCheck(names, faults, reading.tree).included
            if included is not None:
                included.update(found)
    except RecursionError:
        return [TemplateProblem(1, 1, 1, "template_syntax", TOO_DEEP, None)]
    return faults.sorted()


def render_template(source: str, values: Mapping[str, Json]) -> str:
    if len(source) <= _BOUNDS.output >> 2 and not is_template(source):
        return normalize_newlines(source)  # compiling it would take a millisecond
    return "".join(_pieces(compile_bundle(source), values))


def render_template_lines(source: str, values: Mapping[str, Json]) -> list[RenderedLine]:
    """Render a template and return each line with the lines of the templates that it came from.

    Raises TemplateRenderError, for example for very many parts."""
    bundle = compile_bundle(source, traced=True)
    sources = {name: normalize_newlines(text) for name, text in bundle.sources.items()}
    return _trace_lines(sources, _pieces(bundle, values))


def _pieces(bundle: CompiledBundle, values: Mapping[str, Json]) -> Iterator[Any]:
    try:
        yield from new_environment().stream(bundle.templates, values, _BOUNDS)
    except RENDER_ERRORS as error:
        file, line, column = _error_place(error, bundle)
        raise TemplateRenderError(_describe(error), line, column, file) from None


def _error_place(error: BaseException, bundle: CompiledBundle) -> tuple[str, int, int]:
    """Return file, line and column of the innermost piece that was being rendered."""
    place = "", 1, 1
    trace = error.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if filename.startswith("<template "):
            name = filename[len("<template ") : -1]
            offset = bundle.templates[name].offset(trace.tb_lineno)
            place = name, *read_template(bundle.sources[name]).faults.place(offset)
        trace = trace.tb_next
    return place


def _describe(error: BaseException) -> str:
    """Return the reason of an error without any value."""
    match error:
        case RenderStopped():
            return str(error)
        case UndefinedError():
            return error.message or "a value is missing"
        case RecursionError():
            return TOO_DEEP
        case MemoryError():
            return TOO_LARGE
        case ZeroDivisionError():
            return "division by zero"
        case TypeError() if set(re.findall(r"'([^']*)'", str(error))) <= _SAFE_WORDS:
            return f"a value has the wrong type: {error}"
        case ValueError() if str(error).startswith(_SAFE_MESSAGES):
            return str(error)
        case FilterArgumentError():
            return error.message or "an argument of a filter is wrong"
    return f"a value cannot be used here ({type(error).__name__})"


class RenderedLine(Struct, frozen=True):
    text: str
    parts: tuple[tuple[int, int], ...]
    """For each part: its first column, from 0, and its line in the template, from 1."""
    files: tuple[str, ...] = ()
    """For each part the name of the included file, or nothing if all come from the template itself."""

    def origin(self, column: int = 0) -> int:
        """Return the line of the template for a column; past the end, the line of the last part."""
        return self.parts[self._part(column)][1]

    def file(self, column: int = 0) -> str:
        """Return the name of the included file for a column, or an empty text."""
        return self.files[self._part(column)] if self.files else ""

    def _part(self, column: int) -> int:
        return max(0, bisect_right(self.parts, column, key=lambda part: part[0]) - 1)


def _trace_lines(sources: Mapping[str, str], pieces: Iterator[Any]) -> list[RenderedLine]:
    """Return the lines of a text that was rendered in these pieces, each after its place."""
    lines: list[RenderedLine] = []
    texts: list[str] = []
    parts: list[tuple[int, int, str]] = []
    width, end, traced = 0, (1, ""), 0

    def finish() -> RenderedLine:
        found = parts or [(0, *end)]
        files = tuple(file for _, _, file in found)
        return RenderedLine("".join(texts), tuple((at, line) for at, line, _ in found), files if any(files) else ())

    for text, at, ended in _split_pieces(sources, pieces):
        if text or (ended and not parts):
            if not parts or parts[-1][1:] != at:
                parts.append((width, *at))
                traced += 1
                if traced > MAX_TRACED_PARTS:
                    raise TemplateRenderError(f"more than {MAX_TRACED_PARTS} parts are not traced", at[0], 1, at[1])
            texts.append(text)
            width += len(text)
        if ended:
            lines.append(finish())
            texts, parts, width = [], [], 0
        end = at
    return [*lines, finish()]


def _split_pieces(sources: Mapping[str, str], pieces: Iterator[Any]) -> Iterator[tuple[str, tuple[int, str], bool]]:
    """Split pieces at line ends: the text, its line and file, and whether a line ends here."""
    ends = {name: [offset for offset, char in enumerate(text) if char == "\n"] for name, text in sources.items()}
    name, line, moves = "", 1, False
    for piece in pieces:
        if isinstance(piece, tuple):
            name, offset, moves = piece
            line = bisect_left(ends[name], offset) + 1
            continue
        cut = piece.split("\n")
        for index, part in enumerate(cut):
            yield part, (line + (index if moves else 0), name), index < len(cut) - 1


class TemplateRenderError(Exception):
    """A render that failed, with the place and the reason but never a value."""

    def __init__(self, message: str, line: int, column: int = 1, file: str = "") -> None:
        super().__init__(f"{file + ', ' if file else ''}line {line}: {message}")
        self.message = message
        self.line = line
        self.column = column
        self.file = file
        """The included file, or an empty text for the template itself."""


def included_files(source: str) -> list[tuple[str, int]]:
    """Return the names of the files that a template includes, each with its offset."""
    tree = read_template(source).tree if _INCLUDES.search(source) else None
    found: Any = tree.find_all((nodes.Include, nodes.Import, nodes.FromImport)) if tree is not None else ()
    names = [each.template for each in found]
    return [(name.value, name.lineno) for name in names if isinstance(name, nodes.Const) and type(name.value) is str]


def bundle_template(source: str, files: Mapping[str, str]) -> str:
    """Return a template that is followed by the files that it includes."""
    used: dict[str, str] = {}
    pending = [source]
    while pending:
        for name, _ in included_files(pending.pop()):
            if name in files and name not in used:
                used[name] = files[name]
                pending.append(files[name])
    text = json.dumps(used, sort_keys=True, ensure_ascii=False).replace("#}", "#\\u007d")
    return f"{source}{_FILES}{text}{_END}" if used else source


def split_bundle(source: str) -> dict[str, str]:
    """Return a template under the name "", and the files that follow it."""
    template, found, rest = source.rpartition(_FILES)
    files: dict[str, str] = {}
    if found and rest.endswith(_END) and _INCLUDES.search(template):
        with suppress(msgspec.MsgspecError):  # a comment of the author
            files = msgspec.json.decode(rest.removesuffix(_END), type=dict[str, str])
    return {**files, "": template} if files else {"": source}


class CompiledBundle(NamedTuple):
    sources: Mapping[str, str]
    """The template under the name "", and the files."""
    templates: Mapping[str, CompiledTemplate]
    size: int
    """About the bytes it takes."""


def compile_bundle(source: str, *, traced: bool = False, marks: NodeMarks | None = None) -> CompiledBundle:
    """Compile a template and the files that follow it, or return them as they were compiled before.

    Raises TemplateRenderError. `traced`, `marks`: see `compile_template`."""
    return _KEPT.find((source, traced, marks), lambda: _compile_bundle(source, traced, marks))


def _compile_bundle(source: str, traced: bool, marks: NodeMarks | None) -> CompiledBundle:
    sources = split_bundle(source)
    compiled, tokens = {}, 0
    for name, text in sources.items():
        reading = _read(name, text)
        tokens += reading.tokens
        if tokens > MAX_TEMPLATE_TOKENS:
            raise TemplateRenderError(TOO_MANY_TOKENS, 1, 1, name)
        compiled[name] = _compile(name, reading, traced, marks(name, reading) if marks else {})
    return CompiledBundle(sources, compiled, len(source) + tokens * _BYTES_PER_TOKEN)


def _read(name: str, text: str) -> ParsedTemplate:
    try:
        reading = read_template(text)
    except RecursionError:
        raise TemplateRenderError(TOO_DEEP, 1, 1, name) from None
    if reading.faults:
        fault = reading.faults.sorted()[0]
        raise TemplateRenderError(fault.message, fault.line, fault.column, name)
    return reading


def _compile(name: str, reading: ParsedTemplate, traced: bool, marks: Mapping[int, str]) -> CompiledTemplate:
    assert reading.tree is not None, "there is a fault"
    try:
        return compile_template(reading.tree, name, traced=traced, marks=marks)
    except (RecursionError, SyntaxError):  # of Python's own compiler: too many loops in loops
        raise TemplateRenderError(TOO_DEEP, 1, 1, name) from None
    except RenderStopped as stopped:
        raise TemplateRenderError(str(stopped), 1, 1, name) from None
    except (MemoryError, SystemError):  # Python's compiler raises either
        raise TemplateRenderError(TOO_LARGE, 1, 1, name) from None


class _KeptBundles:
    """The bundles that were used last, up to a size."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, bool, NodeMarks | None], CompiledBundle] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def find(self, key: tuple[str, bool, NodeMarks | None], compile_it: Callable[[], CompiledBundle]) -> CompiledBundle:
        with self._lock:
            if (found := self._found.get(key)) is not None:
                self._found.move_to_end(key)
                return found
        bundle = compile_it()
        with self._lock:
            if key not in self._found:
                self._size += bundle.size
            self._found[key] = bundle
            while self._size > _MAX_KEPT:
                self._size -= self._found.popitem(last=False)[1].size
        return bundle


_KEPT: Final = _KeptBundles()
