"""A template together with the files that it includes: one text in a package, compiled once.

Rule 1  In a package the files follow the template in a comment. So the text is complete, and the fingerprint covers it.
Rule 2  Compiled templates are kept in memory, the last used ones, and enough for the largest package. On disk they
        would be code that a repository could bring.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from jinja2 import nodes

from agentrun.compiler.template_grammar import ParsedTemplate, read_template
from agentrun.compiler.template_meter import RenderStopped
from agentrun.compiler.template_parser import MAX_TEMPLATE_TOKENS
from agentrun.compiler.template_sandbox import CompiledTemplate, compile_template

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
