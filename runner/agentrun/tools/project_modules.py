"""Load the modules of several projects into one process.

Rule 1  A file that the program has imported, under whatever name, is not loaded again: its module is used.
Rule 2  If Python finds every module of the import roots of a project under its own name, they are imported under these
        names, as the program itself would import them. Otherwise the names of the project are private: its `tools` is
        `agentrun_project_1f3a….tools` in `sys.modules`.
Rule 3  A module with a private name has its own `__import__`, which finds the modules of its project first. Functions
        keep it, so it does not matter when and in which thread they import. `sys.path` and the imports of the program
        are not changed.
Rule 4  A process that belongs to agentrun puts the import roots of its first project at the start of `sys.path`.
Rule 5  A function is refused if the program has imported another file under the name of its module.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from pkgutil import iter_modules
from threading import Lock, RLock
from types import CodeType, ModuleType
from typing import Any

from agentrun.canonical_json import text_hash
from agentrun.spec.problems import Source
from agentrun.tools import process_owner

PRIVATE_PREFIX = "agentrun_project_"
LOCK_SECONDS = 10.0
"""Seconds that the import of a function waits for another one of its project."""


class NameTaken(Exception):
    """The program has imported another file under the name of a module."""

    def __init__(self, imported: str) -> None:
        super().__init__(imported)
        self.imported = imported
        """That file, or the folder of a package without `__init__.py`."""


class PinnedLoader(SourceFileLoader):
    """Loads a module from the source that was compared with its pin."""

    def __init__(self, module: str, source: Source) -> None:
        super().__init__(module, str(source.path))
        self.source = source
        self.pin = text_hash(source.text)

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  # Python's signature
        return self.source_to_code(self.source.text, self.path)


class _ModuleFinder:
    """Finds the modules that were compared with their pins, and those with private names. Python's import locks
    serialise parallel imports."""

    def __init__(self) -> None:
        self.loaders: dict[str, PinnedLoader] = {}
        self.projects: dict[tuple[str, ...], ProjectModules] = {}
        self.by_name: dict[str, ProjectModules] = {}
        self.lock = Lock()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002  # Python's signature
        if (loader := self.loaders.get(name)) is not None:
            return spec_from_file_location(name, loader.path, loader=loader)
        project = self.by_name.get(name.partition(".")[0])
        return None if project is None else project.find_spec(name, path)

    def forget_projects(self) -> None:
        """For tests."""
        self.loaders.clear()
        self.projects.clear()
        self.by_name.clear()


finder = _ModuleFinder()


def modules_of_project(roots: Iterable[Path]) -> ProjectModules:
    """`roots`: the import roots of the project."""
    folders = tuple(os.path.realpath(root) for root in roots)
    with finder.lock:
        if finder not in sys.meta_path:
            sys.meta_path.insert(0, finder)
        if folders not in finder.projects:
            if process_owner.is_owned and not finder.projects:
                sys.path[:] = [*folders, *(entry for entry in sys.path if entry not in folders)]
            importlib.invalidate_caches()  # a folder may be newer than Python's cache of it
            project = ProjectModules(folders)
            finder.projects[folders] = finder.by_name[project.name] = project
        return finder.projects[folders]


class ProjectModules:
    """The modules below the import roots of one project."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self.roots = roots
        self.name = PRIVATE_PREFIX + text_hash("\0".join(roots)).rpartition(":")[2][:12]
        """The package that contains the modules with private names."""
        self._imported_earlier = frozenset(sys.modules)
        self._lock = RLock()
        self._loaded: dict[tuple[str, str], str] = {}
        """The name in `sys.modules` of each loaded module, by its own name and its file."""
        self._foreign: set[str] = set()
        """Top-level names that are not of this project."""
        self._builtins = _Builtins(self._import_statement)
        self._importlib = _Importlib(self)
        package = ModuleType(self.name)
        package.__path__ = list(roots)
        package.__spec__ = ModuleSpec(self.name, None, is_package=True)
        sys.modules[self.name] = package
        names = [each.name for each in iter_modules(roots) if each.name not in sys.stdlib_module_names]
        self._has_own_names = all(map(self._is_found_by_python, names))

    def load(self, module: str, source: Source) -> ModuleType:
        """Import a module from its pinned source. Raises `NameTaken`, and what the module raises."""
        file = str(source.path)
        name = self._loaded.get((module, file))
        if name in sys.modules:
            return sys.modules[name]
        # One import at a time: of a circle of modules that two threads import at once, one would be used half-finished.
        is_locked = self._lock.acquire(timeout=LOCK_SECONDS)  # an import may hang, which must not stop the others
        try:
            importlib.invalidate_caches()
            name = _imported_name(module, file) or self._prepare_import(module, source)
            found = importlib.import_module(name)
        finally:
            if is_locked:
                self._lock.release()
        self._loaded[module, file] = name
        return found

    def _prepare_import(self, module: str, source: Source) -> str:
        """The name under which a module will be imported, from the pinned source."""
        if f"{self.name}.{module}" not in sys.modules:
            self._refuse_taken_name(module)
        name = self._name_for(module, str(source.path))
        if name not in sys.modules:
            loader = finder.loaders[name] = PinnedLoader(name, source)
            if name.startswith(PRIVATE_PREFIX):
                loader.create_module = self._new_module  # type: ignore[method-assign]  # Python calls it
        return name

    def _refuse_taken_name(self, module: str) -> None:
        taken = sys.modules.get(module)
        if taken is None:
            return
        file = next(iter(_places(taken)), repr(taken))
        if not any(project.has_imported(module, os.path.realpath(file)) for project in finder.projects.values()):
            raise NameTaken(file)

    def has_imported(self, module: str, file: str) -> bool:
        """Whether a module of this project was imported by agentrun or after the first import by agentrun."""
        folders = tuple(root + os.sep for root in self.roots)
        return module not in self._imported_earlier and file.startswith(folders)

    def _name_for(self, module: str, file: str) -> str:
        """The name under which a module is imported. Its package is imported now."""
        parent, _, leaf = module.rpartition(".")
        if not parent:
            is_plain = self._has_own_names and self._is_found_by_python(module)
            return module if is_plain else f"{self.name}.{module}"
        package = importlib.import_module(f"{self.name}.{parent}")
        folder = os.path.dirname(os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file)
        if folder not in map(os.path.realpath, _places(package)):
            raise ImportError(f"the package {parent} is in {', '.join(_places(package))}, and {file} is not")
        return f"{package.__name__}.{leaf}"

    def _is_found_by_python(self, name: str) -> bool:
        """Whether Python finds a module or folder of the import roots under its name."""
        own = PathFinder.find_spec(name, self.roots)
        try:
            found = find_spec(name)
        except (ImportError, ValueError):  # ValueError: the program has put something else in `sys.modules`
            return False
        if own is None or found is None:
            return False
        if own.origin is None:
            folders = set(map(os.path.realpath, own.submodule_search_locations or ()))
            return found.origin is None and folders <= set(
                map(os.path.realpath, found.submodule_search_locations or ())
            )
        return found.origin is not None and os.path.realpath(found.origin) == os.path.realpath(own.origin)

    # --- private names ------------------------------------------------------------------------------------------------

    def find_spec(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        parent, _, leaf = name.rpartition(".")
        package = sys.modules[parent].__name__
        if package != parent:  # a package of the program
            return ModuleSpec(name, _LoaderOfImported(f"{package}.{leaf}"))
        if parent == self.name and self._has_own_names and self._is_found_by_python(leaf):
            return ModuleSpec(name, _LoaderOfImported(leaf))
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None:
            return spec
        imported = _imported_name(name.partition(".")[2], os.path.realpath(spec.origin))
        if imported is not None:
            return ModuleSpec(name, _LoaderOfImported(imported))
        if isinstance(spec.loader, SourceFileLoader | SourcelessFileLoader):
            spec.loader.create_module = self._new_module  # type: ignore[method-assign]  # Python calls it
        return spec

    def _new_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__dict__["__builtins__"] = self._builtins
        return module

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """`importlib.import_module`, as the modules with private names see it."""
        is_own = not name.startswith(".") and self._has(name)
        try:
            return importlib.import_module(f"{self.name}.{name}" if is_own else name, package)
        except ModuleNotFoundError as error:
            self._remove_private_name(error)
            raise

    def _import_statement(
        self,
        name: str,
        globals: dict[str, Any] | None = None,
        locals: dict[str, Any] | None = None,
        fromlist: Sequence[str] | None = None,
        level: int = 0,
    ) -> Any:
        """`__import__`, as the modules with private names see it."""
        names, top = fromlist or (), name.partition(".")[0]
        is_own = level == 0 and self._has(name, names)
        if level > 0:
            _refuse_import_above(str((globals or {}).get("__package__")), level)
        try:
            full = f"{self.name}.{name}" if is_own else name
            found: Any = builtins.__import__(full, globals, locals, names, level)
        except ModuleNotFoundError as error:
            self._remove_private_name(error)
            raise
        if is_own:
            return found if names else sys.modules[f"{self.name}.{top}"]
        if level == 0 and not any(os.path.lexists(os.path.join(root, top)) for root in self.roots):
            self._foreign.add(top)
        return self._importlib if found is importlib else found

    def _has(self, name: str, fromlist: Sequence[str] = ()) -> bool:
        """Whether an absolute import finds a module of this project."""
        top, _, rest = name.partition(".")
        if top in self._foreign or top in sys.stdlib_module_names:
            return False
        if getattr(sys.modules.get(f"{self.name}.{top}"), "__file__", None):
            return True
        own = PathFinder.find_spec(top, self.roots)
        if own is None or own.origin is not None:
            return own is not None
        try:
            other = find_spec(top)
        except ValueError:  # the program has put something else in `sys.modules`
            other = None
        if other is None or other.origin is not None:  # a package anywhere wins over a folder without `__init__.py`
            return other is None
        inner = [rest.partition(".")[0]] if rest else fromlist
        folders = own.submodule_search_locations or ()
        return not inner or any(PathFinder.find_spec(each, folders) is not None for each in inner)

    def _remove_private_name(self, error: ModuleNotFoundError) -> None:
        """Make the error what it would be without private names. A tool may show it to the model."""
        prefix = f"{self.name}."
        if isinstance(error.name, str) and error.name.startswith(prefix):
            error.name = error.name.removeprefix(prefix)
            error.msg = error.msg.replace(prefix, "")
            error.args = (error.msg,)


class _Builtins(dict[str, Any]):
    """The builtins of a module with a private name. Those that programs add or replace are looked up when they are
    used; with all of them this would take too long."""

    def __init__(self, import_statement: Callable[..., Any]) -> None:
        for name, value in vars(builtins).items():
            if getattr(value, "__module__", None) == "builtins" and name not in ("input", "print"):
                self[name] = value
        self["__import__"] = import_statement

    def __missing__(self, name: str) -> Any:
        return vars(builtins)[name]


class _Importlib(ModuleType):
    """`importlib`, as the modules with private names see it."""

    def __init__(self, project: ProjectModules) -> None:
        super().__init__("importlib")
        self.import_module = project.import_module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)


class _LoaderOfImported(Loader):
    """Gives a module of the program a private name, too."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> None:
        """Python makes an empty module, which is replaced."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._name)


def _imported_name(module: str, file: str) -> str | None:
    """The name under which the program has imported a file: that of the module, or another one."""
    tail = os.sep.join(file.split(os.sep)[-2 if file.endswith("__init__.py") else -1 :])
    for name in (module, *sys.modules.copy()):
        imported = sys.modules.get(name)
        if isinstance(imported, ModuleType) and not name.startswith(PRIVATE_PREFIX):
            other = imported.__dict__.get("__file__")
            if isinstance(other, str) and other.endswith(tail) and os.path.realpath(other) == file:
                return name
    return None


def _places(module: ModuleType) -> list[str]:
    """The file of a module; the folders of a package."""
    file = getattr(module, "__file__", None)
    return list(getattr(module, "__path__", ())) or ([file] if file else [])


def _refuse_import_above(package: str, level: int) -> None:
    """Without this a module at the top of a project could import its neighbours with `from . import x`."""
    if package.count(".") < level:
        why = "beyond top-level package" if "." in package else "with no known parent package"
        raise ImportError(f"attempted relative import {why}")
