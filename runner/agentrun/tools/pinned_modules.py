"""Import the modules of Python tools and hooks, after a comparison with their pins.

Rule 1  A module is found in the same way as by the compiler. It is imported only after its source matches the pin.
Rule 2  The compared source is what runs: neither old bytecode nor a file that changes in between is used. Only a module
        that was already imported by other code is used as it is.
Rule 3  If its name belongs to another file or package folder in this process, the module is refused, so that a function
        of another file never runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from agentrun.canonical_json import text_hash
from agentrun.compiler.python_functions import FunctionRefused, module_source
from agentrun.core import model_texts as texts
from agentrun.errors import ToolError
from agentrun.spec.problems import Source, quote_text
from agentrun.spec.project import Project

PinKind: TypeAlias = Literal["tool", "hook", "assertion"]
RECOMPILE_HINT = "review the change, then compile the spec again"


class FunctionPin(Protocol):
    """The function of a tool or hook, and the hash of its source."""

    @property
    def module(self) -> str: ...

    @property
    def function(self) -> str: ...

    @property
    def source(self) -> str:
        """The hash of the module's source."""


class _PinOwner(NamedTuple):
    what: PinKind
    name: str
    pin: FunctionPin


class ImportFailed(Exception):
    """A module raised an exception during its import."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(type(error)))
        self.error = error


class _PinnedLoader(SourceFileLoader):
    """Loads a module from the source that was compared with its pin."""

    def __init__(self, module: str, source: Source) -> None:
        super().__init__(module, str(source.path))
        self.source = source
        self.pin = text_hash(source.text)

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  # Python's signature
        return self.source_to_code(self.source.text, self.path)


class _PinnedFinder:
    """Finds the modules that were compared with their pins. Python's import locks serialise parallel imports."""

    def __init__(self) -> None:
        self.loaders: dict[str, _PinnedLoader] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002  # Python's signature
        loader = self.loaders.get(name)
        return None if loader is None else spec_from_file_location(name, loader.path, loader=loader)


_finder = _PinnedFinder()


def read_pinned_source(roots: Sequence[Path], name: str, pin: FunctionPin, what: PinKind = "tool") -> Source:
    """Read the source of a module without importing it. Raises `tool.drift` if it does not match the pin."""
    source = find_module_source(roots, pin.module)
    found = None if source is None else text_hash(source.text)
    if source is None or found != pin.source:
        why = "is not in this project any more" if source is None else "is not the one that was compiled"
        by = "" if what == "tool" else f" ({what} {name})"
        raise _drift_error(
            _PinOwner(what, name, pin), found, f"the module {quote_text(pin.module)}{by} {why}", RECOMPILE_HINT
        )
    return source


def import_function(roots: Sequence[Path], name: str, pin: FunctionPin, what: PinKind = "tool") -> Callable[..., Any]:
    """Import a function. Raises `ToolError` if it does not match its pin, and `ImportFailed`."""
    source = read_pinned_source(roots, name, pin, what)
    tool = _PinOwner(what, name, pin)
    _prepend_roots(roots)
    _refuse_other_packages(tool, source)
    module = _import_pinned(tool.pin.module, source)
    if os.path.realpath(getattr(module, "__file__", None) or "") != str(source.path):
        raise _name_taken_error(tool, tool.pin.module)
    loader = getattr(module, "__loader__", None)
    if isinstance(loader, _PinnedLoader) and loader.pin != tool.pin.source:
        message = f"this process has imported the module {quote_text(tool.pin.module)} as it was before it changed"
        raise _drift_error(tool, loader.pin, message, "start a new process")
    function: Callable[..., Any] | None = getattr(module, tool.pin.function, None)
    if function is None or not callable(function):
        wanted = quote_text(tool.pin.function)
        message = texts.FUNCTION_MISSING.format(quote_text(tool.pin.module), wanted)
        raise ToolError("tool.execution", message, fields={what: name})
    return function


def find_module_source(roots: Sequence[Path], module: str) -> Source | None:
    for root in roots:
        try:
            return module_source(Project(root), module)
        except FunctionRefused as refused:
            if refused.code != "spec.python":  # it exists but cannot be read; the compiler stops here too
                return None
    return None


def _prepend_roots(roots: Sequence[Path]) -> None:
    for root in reversed(roots):
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _refuse_other_packages(tool: _PinOwner, source: Source) -> None:
    """Refuse a module whose package has another folder in this process."""
    parts = tool.pin.module.split(".")
    folder = source.path.parent.parent if source.path.name == "__init__.py" else source.path.parent
    folders = (folder, *folder.parents)
    invalidate_caches()  # a folder may be newer than Python's cache of it
    for length in range(1, len(parts)):
        package = ".".join(parts[:length])
        if str(folders[len(parts) - 1 - length]) not in map(os.path.realpath, _package_folders(package)):
            raise _name_taken_error(tool, package)


def _package_folders(package: str) -> Iterable[str]:
    """The folders of a package. This imports its parent packages, which were checked before."""
    imported = sys.modules.get(package)
    if imported is not None:
        return list(getattr(imported, "__path__", ()))
    try:
        spec = find_spec(package)
    except BaseException as error:  # noqa: BLE001  # a package may raise anything during its import
        raise ImportFailed(error) from None
    return (spec and spec.submodule_search_locations) or ()


def _import_pinned(module: str, source: Source) -> ModuleType:
    if module not in sys.modules:
        _finder.loaders[module] = _PinnedLoader(module, source)
    try:
        return import_module(module)
    except BaseException as error:  # noqa: BLE001  # also SystemExit
        raise ImportFailed(error) from None


def _name_taken_error(tool: _PinOwner, module: str) -> ToolError:
    message = (
        f"{quote_text(module)} is another module in this process, so {quote_text(tool.pin.module)} cannot be imported"
    )
    return _drift_error(tool, None, message, "give the module or its folder a name that nothing else has")


def _drift_error(tool: _PinOwner, found: str | None, message: str, hint: str) -> ToolError:
    fields = {tool.what: tool.name, "pinned": tool.pin.source, "found": found}
    return ToolError("tool.drift", message, hint=hint, fields=fields)
