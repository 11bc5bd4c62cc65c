"""The modules of Python tools: found by path, held to their pins, imported under their own names.

Rule 1  A module is found as the compiler finds it. Nothing is imported before its source was compared with the pin.
Rule 2  What was compared is what runs: neither old bytecode nor a file that changes in between is used instead. Only a
        module that the program itself, or another module, has imported already is taken as it is.
Rule 3  Where its name means something else in this process (another file, another folder for its package), it is
        refused: the function of another file never runs.
Rule 4  The import roots stand first on `sys.path`, so that a module finds its neighbours.
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
from agentrun.errors import ToolError
from agentrun.spec.problems import Source, quote_text
from agentrun.spec.project import Project

PinKind: TypeAlias = Literal["tool", "hook", "assertion"]
RECOMPILE_HINT = "compile the spec again, and read what changed"


class FunctionPin(Protocol):
    """A function, and the source that it was compiled from: of a tool, or of a hook."""

    @property
    def module(self) -> str: ...

    @property
    def function(self) -> str: ...

    @property
    def source(self) -> str:
        """Hash of the module's source."""


class _PinOwner(NamedTuple):
    """Whose function it is."""

    what: PinKind
    name: str
    pin: FunctionPin


class ImportFailed(Exception):
    """A module raised while it was imported."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(type(error)))
        self.error = error


class _PinnedLoader(SourceFileLoader):
    """Loads a module from the text that was compared with its pin."""

    def __init__(self, module: str, source: Source) -> None:
        super().__init__(module, str(source.path))
        self.source = source
        self.pin = text_hash(source.text)

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  # Python's signature
        return self.source_to_code(self.source.text, self.path)


class _PinnedFinder:
    """Finds the modules that were compared with their pins. Python's own locks keep imports at once in order."""

    def __init__(self) -> None:
        self.loaders: dict[str, _PinnedLoader] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002  # Python's signature
        loader = self.loaders.get(name)
        return None if loader is None else spec_from_file_location(name, loader.path, loader=loader)


_finder = _PinnedFinder()
"""There is one `sys.modules`, so there is one of these."""


def read_pinned_source(roots: Sequence[Path], name: str, pin: FunctionPin, what: PinKind = "tool") -> Source:
    """The source of a module. Raises `tool.drift` when it is not the one that was pinned. Nothing is imported."""
    source = _find_source(roots, pin.module)
    found = None if source is None else text_hash(source.text)
    if source is None or found != pin.source:
        why = "is not in this project any more" if source is None else "is not the one that was compiled"
        by = "" if what == "tool" else f" ({what} {name})"
        raise _drift_error(
            _PinOwner(what, name, pin), found, f"the module {quote_text(pin.module)}{by} {why}", RECOMPILE_HINT
        )
    return source


def import_function(roots: Sequence[Path], name: str, pin: FunctionPin, what: PinKind = "tool") -> Callable[..., Any]:
    """The function of a tool. Raises `ToolError` when it is not the one that was pinned, `ImportFailed`."""
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
        message = f"the module {quote_text(tool.pin.module)} has no function {wanted} once it is imported"
        raise ToolError("tool.execution", message, fields={what: name})
    return function


def _find_source(roots: Sequence[Path], module: str) -> Source | None:
    for root in roots:
        try:
            return module_source(Project(root), module)
        except FunctionRefused as refused:
            if refused.code != "spec.python":  # it is there and not read; the compiler looks no further either
                return None
    return None


def _prepend_roots(roots: Sequence[Path]) -> None:
    for root in reversed(roots):
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _refuse_other_packages(tool: _PinOwner, source: Source) -> None:
    """Each package that the module is in must have the module's own folder."""
    parts = tool.pin.module.split(".")
    folder = source.path.parent.parent if source.path.name == "__init__.py" else source.path.parent
    folders = (folder, *folder.parents)
    invalidate_caches()  # a folder may be newer than what Python remembers of it
    for length in range(1, len(parts)):
        package = ".".join(parts[:length])
        if str(folders[len(parts) - 1 - length]) not in map(os.path.realpath, _package_folders(package)):
            raise _name_taken_error(tool, package)


def _package_folders(package: str) -> Iterable[str]:
    """Where Python looks for the modules of a package. This imports the packages above it, which were looked at."""
    imported = sys.modules.get(package)
    if imported is not None:
        return list(getattr(imported, "__path__", ()))
    try:
        spec = find_spec(package)
    except BaseException as error:  # noqa: BLE001  # a package may do anything when it is imported
        raise ImportFailed(error) from None
    return (spec and spec.submodule_search_locations) or ()


def _import_pinned(module: str, source: Source) -> ModuleType:
    if module not in sys.modules:
        _finder.loaders[module] = _PinnedLoader(module, source)
    try:
        return import_module(module)
    except BaseException as error:  # noqa: BLE001  # and so may a module, such as call sys.exit
        raise ImportFailed(error) from None


def _name_taken_error(tool: _PinOwner, module: str) -> ToolError:
    message = (
        f"{quote_text(module)} is another module in this process, so {quote_text(tool.pin.module)} cannot be imported"
    )
    return _drift_error(tool, None, message, "give the module or its folder a name that nothing else has")


def _drift_error(tool: _PinOwner, found: str | None, message: str, hint: str) -> ToolError:
    fields = {tool.what: tool.name, "pinned": tool.pin.source, "found": found}
    return ToolError("tool.drift", message, hint=hint, fields=fields)
