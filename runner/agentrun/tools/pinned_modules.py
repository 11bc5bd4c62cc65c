"""Import the modules of Python tools and hooks, after a comparison with their pins.

Rule 1  A module is found in the same way as by the compiler. It is imported only after its source matches the pin.
Rule 2  The compared source is what runs: neither old bytecode nor a file that changes in between is used. Only a module
        that was already imported by other code is used as it is.
Rule 3  A function of another file never runs. `project_modules.py` loads modules of the same name side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from agentrun.canonical_json import text_hash
from agentrun.compiler.python_functions import FunctionRefused, module_source
from agentrun.core import model_texts as texts
from agentrun.errors import ToolError
from agentrun.spec.problems import Source, quote_text
from agentrun.spec.project import Project
from agentrun.tools.project_modules import NameTaken, PinnedLoader, modules_of_project

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
    module = _import_module(roots, _PinOwner(what, name, pin), source)
    loader = getattr(module, "__loader__", None)
    if isinstance(loader, PinnedLoader) and loader.pin != pin.source:
        message = f"this process has imported the module {quote_text(pin.module)} as it was before it changed"
        raise _drift_error(_PinOwner(what, name, pin), loader.pin, message, "start a new process")
    function: Callable[..., Any] | None = getattr(module, pin.function, None)
    if function is None or not callable(function):
        message = texts.FUNCTION_MISSING.format(quote_text(pin.module), quote_text(pin.function))
        raise ToolError("tool.execution", message, fields={what: name})
    return function


def _import_module(roots: Sequence[Path], owner: _PinOwner, source: Source) -> ModuleType:
    try:
        module = modules_of_project(roots).load(owner.pin.module, source)
    except NameTaken as taken:
        raise _name_taken_error(owner, str(source.path), taken.imported) from None
    except BaseException as error:  # noqa: BLE001  # a module may raise anything during its import, also SystemExit
        raise ImportFailed(error) from None
    file = str(getattr(module, "__file__", None))
    if os.path.realpath(file) != str(source.path):
        raise _name_taken_error(owner, str(source.path), file)
    return module


def find_module_source(roots: Sequence[Path], module: str) -> Source | None:
    for root in roots:
        try:
            return module_source(Project(root), module)
        except FunctionRefused as refused:
            if refused.code != "spec.python":  # it exists but cannot be read; the compiler stops here too
                return None
    return None


def _name_taken_error(owner: _PinOwner, file: str, imported: str) -> ToolError:
    message = f"this program has imported another file under that name: {imported}, and not {file}"
    isolation = "set `isolation: process` for the tool, or " if owner.what == "tool" else ""
    fields = {owner.what: owner.name, "file": file, "imported": imported}
    return ToolError("tool.execution", message, hint=f"{isolation}rename one of the two modules", fields=fields)


def _drift_error(tool: _PinOwner, found: str | None, message: str, hint: str) -> ToolError:
    fields = {tool.what: tool.name, "pinned": tool.pin.source, "found": found}
    return ToolError("tool.drift", message, hint=hint, fields=fields)
