"""The project that a spec belongs to, and its settings.

Rule 1  The project root is the nearest folder above a spec with `[tool.agentrun]` in its pyproject.toml or with
        `.git`, else the spec's own folder.
Rule 2  `[tool.agentrun]` can name only directories inside the project. Environment variables can name any directory.
Rule 3  Nothing is written if the spec was reached through a symbolic link from another project.
"""

from __future__ import annotations

import errno
import os
import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentrun.errors import AgentrunError, HostError, StorageError
from agentrun.files import ProjectTree
from agentrun.spec.problems import DocumentError, Problem, Source, SourcePlace, did_you_mean, place_at, quote_text
from agentrun.spec.source_files import FileRefused, display_path, read_text

OTHER_STORE = "set AGENTRUN_STORE to a directory that can be written, or to none if runs should not be stored"
DEFAULT_STORE = ".agentrun"
DEFAULT_CASSETTE_LIMIT = 64 * 1024 * 1024
DIRECTORY_VARIABLES = {"cassettes": "AGENTRUN_CASSETTES", "store": "AGENTRUN_STORE"}
"""Settings that name a directory, each with the environment variable that overrides it."""
LIMIT_VARIABLE = "AGENTRUN_CASSETTE_LIMIT"
_SIZE_HINT = 'write a size from 1 byte to 1 GiB, such as "64MiB"'
SETTING_NAMES = ("import_roots", "cassettes", "store", "cassette_limit", "secrets")
FORMER_SETTINGS = {"data": "store"}
FORMER_VARIABLES = {"AGENTRUN_DATA": "AGENTRUN_STORE"}
"""Names of earlier releases, each with its present name."""
NO_STORE = "none"
"""The value of AGENTRUN_STORE that turns the store off."""
_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_MAX_CASSETTE_LIMIT = 1024**3


class Project(Struct, frozen=True):
    root: Path
    import_roots: tuple[str, ...] = (".",)
    """Directories of the modules of Python tools, relative to the root."""
    cassettes: str = "cassettes"
    """The directory of cassettes: relative to the root, or absolute if it is from the environment variable."""
    store: str = DEFAULT_STORE
    """The directory of runs and locks, likewise. It has its own `.gitignore`."""
    stores_runs: bool = True
    """False: runs are not stored. Locks are still in the directory."""
    cassette_limit: int = DEFAULT_CASSETTE_LIMIT
    secrets: tuple[str, ...] = ()
    """Environment variables that are credentials, in addition to those that agentrun recognises."""
    link: str | None = None
    """If the spec was reached through a symbolic link from another project, a description of the link."""

    @property
    def cassette_directory(self) -> Path:
        return self.root / self.cassettes

    @property
    def store_directory(self) -> Path:
        return self.root / self.store

    @property
    def cassette_tree(self) -> ProjectTree:
        return self._tree("cassette", "cassettes", self.cassettes)

    @property
    def store_tree(self) -> ProjectTree:
        return replace(self._tree("store", "store", self.store), private=True, hint=OTHER_STORE)

    def source_tree(self, kind: str) -> ProjectTree:
        return self._tree(kind, "", "")

    def _tree(self, kind: str, setting: str, directory: str) -> ProjectTree:
        if self.link is not None:
            hint = "use the real path of the spec, or replace the link by a copy"
            message = f"{self.link}; agentrun does not write to another project through a link"
            raise StorageError("storage.failed", message, hint=hint, fields={"path": kind, "errno": errno.ELOOP})
        if os.path.isabs(directory):
            return ProjectTree(Path(directory), kind)
        return ProjectTree(self.root, kind, os.path.normpath(directory), setting, DIRECTORY_VARIABLES.get(setting, ""))


def project_root(spec_path: Path) -> Path:
    folder = Path(os.path.realpath(spec_path.parent))
    return _nearest_project(folder) or folder


def _nearest_project(folder: Path) -> Path | None:
    candidates = (folder, *folder.parents)
    return next((at for at in candidates if os.path.lexists(at / ".git") or _may_have_settings(at)), None)


def _may_have_settings(folder: Path) -> bool:
    try:
        return _settings_text(folder) is not None
    except FileRefused:  # it is reported when the settings are read
        return True


def find_project(spec_path: Path) -> Project:
    """Raises `DocumentError` if the settings are invalid, and `host.missing` if a variable is."""
    root = project_root(spec_path)
    return _read_project(root, _link_into(spec_path, root))


def find_working_project(folder: Path) -> Project:
    """The project of a command without a spec: the nearest folder with a store, settings or `.git`. Raises the errors
    of `find_project`."""
    real = Path(os.path.realpath(folder))
    stores = (at for at in (real, *real.parents) if (at / DEFAULT_STORE).is_dir())
    found = [at for at in (next(stores, None), _nearest_project(real)) if at is not None]
    return _read_project(max(found, key=lambda at: len(at.parts), default=real), None)


def working_secrets() -> tuple[str, ...]:
    """The variables that the project of the working directory adds to the credentials."""
    try:
        return find_working_project(Path.cwd()).secrets
    except (AgentrunError, DocumentError, OSError):
        return ()


def _read_project(root: Path, link: str | None) -> Project:
    chosen: dict[str, Any] = {"link": link}
    for former, variable in FORMER_VARIABLES.items():
        if os.environ.get(former, "").strip():
            hint = f"set {variable} instead, and remove {former}"
            raise HostError("host.missing", f"{former} is no longer a setting", hint=hint, fields={"name": former})
    for setting, variable in DIRECTORY_VARIABLES.items():
        directory = os.environ.get(variable, "").strip()
        if setting == "store" and directory == NO_STORE:
            chosen["stores_runs"] = False
        elif directory:
            chosen[setting] = os.path.realpath(directory)
    if size := os.environ.get(LIMIT_VARIABLE, "").strip():
        chosen["cassette_limit"] = _parse_limit(size)
        if chosen["cassette_limit"] is None:
            raise HostError("host.missing", f"{LIMIT_VARIABLE} is not a valid size", hint=_SIZE_HINT)
    path = root / "pyproject.toml"
    try:
        text = _settings_text(root)
    except FileRefused as refused:
        place = SourcePlace(Source(path, display_path(path, root), ""), 1, 1)
        raise DocumentError([refused.problem(place)]) from None
    if text is None:
        return Project(root, **chosen)
    source = Source(path, display_path(path, root), text)
    try:
        table = _agentrun_table(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        at = re.search(r"line (\d+), column (\d+)", str(error))
        place = SourcePlace(source, int(at[1]), int(at[2])) if at else SourcePlace(source, 1, 1)
        raise DocumentError([Problem(place, "spec.project", "pyproject.toml is not valid TOML")]) from None
    if problems := list(_setting_problems(source, root, table)):
        raise DocumentError(problems)
    lists = {"import_roots": tuple(table.get("import_roots", (".",))), "secrets": tuple(table.get("secrets", ()))}
    limit = _parse_limit(table["cassette_limit"]) if "cassette_limit" in table else DEFAULT_CASSETTE_LIMIT
    return Project(root, **{**table, **lists, "cassette_limit": limit, **chosen})


def declared_settings(root: Path) -> frozenset[str]:
    """The names of the settings in the pyproject.toml of a project, which is valid."""
    text = _settings_text(root)
    return frozenset() if text is None else frozenset(_agentrun_table(text))


def cassette_limit_for(cassette: Path) -> int:
    """The limit of the project that a cassette is in."""
    try:
        return find_project(cassette).cassette_limit
    except DocumentError:
        return DEFAULT_CASSETTE_LIMIT


def _link_into(spec_path: Path, root: Path) -> str | None:
    """Describe the symbolic link through which a spec was reached from another project, if there is one."""
    folder = Path(os.path.abspath(spec_path.parent))
    real = os.path.realpath(folder)
    apparent = _nearest_project(folder) if real != str(folder) else None
    if apparent is None or Path(os.path.realpath(apparent)) == root:
        return None
    return f"{display_path(folder)} is a symbolic link to {real}"


def _settings_text(folder: Path) -> str | None:
    """Return the text of a pyproject.toml with `[tool.agentrun]`, valid or not; None for any other. Raises
    `FileRefused` if there is one that cannot be read: it may have settings."""
    try:
        text = read_text(folder / "pyproject.toml", "pyproject.toml")
    except FileRefused as refused:
        if refused.code == "spec.file_unreadable" and os.path.isfile(folder / "pyproject.toml"):
            raise
        return None
    return text if has_agentrun_table(text) else None


def has_agentrun_table(text: str) -> bool:
    """Whether a pyproject.toml has `[tool.agentrun]`, valid or not."""
    if "agentrun" not in text:
        return False
    try:
        return _agentrun_table(text) is not None
    except (tomllib.TOMLDecodeError, RecursionError):  # it is reported when the settings are read
        return re.search(r"^\s*\[\s*tool\s*\.\s*agentrun\b", text, re.MULTILINE) is not None


@lru_cache(maxsize=8)
def _agentrun_table(text: str) -> Any:
    """Cached, because a command looks up the project of many files."""
    tool = tomllib.loads(text).get("tool")
    return tool.get("agentrun") if isinstance(tool, dict) else None


def _setting_problems(source: Source, root: Path, table: Any) -> Iterator[Problem]:
    def problem(key: str, message: str, hint: str | None = None) -> Problem:
        section = re.search(r"^\s*\[\s*tool\s*\.\s*agentrun\b", source.text, re.MULTILINE)
        start = section.start() if section else 0
        found = re.compile(rf"""(?<![\w.-])["']?({re.escape(key)})["']?\s*[=\].]""").search(source.text, start)
        place = place_at(source, found.start(1), len(key)) if found else place_at(source, start)
        return Problem(place, "spec.project", message, hint)

    if not isinstance(table, dict):
        yield problem("agentrun", "[tool.agentrun] must be a table")
        return
    for key, value in table.items():
        paths = value if key == "import_roots" else [value]
        if key not in SETTING_NAMES:
            hint = did_you_mean(key, SETTING_NAMES) or f"known: {', '.join(SETTING_NAMES)}"
            if key in FORMER_SETTINGS:
                hint = f"the setting is now called {FORMER_SETTINGS[key]}"
            yield problem(key, f"unknown setting {quote_text(key)}", hint)
        elif key == "secrets":
            if not isinstance(value, list) or not all(
                isinstance(name, str) and _variable.fullmatch(name) for name in value
            ):
                yield problem(key, f"{quote_text(key)} must be a list of names of environment variables")
        elif key == "cassette_limit":
            if _parse_limit(value) is None:
                yield problem(key, f"{quote_text(key)} is not a valid size", _SIZE_HINT)
        elif not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            wanted = "a list of folders" if key == "import_roots" else "the name of a folder"
            yield problem(key, f"{quote_text(key)} must be {wanted}")
        elif key == "store" and os.path.normpath(value) == ".":
            yield problem(key, '"store" cannot be the project root', "its .gitignore would ignore the whole project")
        elif key == "store" and value == NO_STORE:
            yield problem(key, '"store" must name a folder', "to store no runs, set AGENTRUN_STORE=none")
        else:
            for path in paths:
                if not _is_inside_project(root, path):
                    message = f"{quote_text(path)} is not a folder inside the project"
                    hint = "write a path relative to pyproject.toml, with /"
                    if key in DIRECTORY_VARIABLES:
                        hint += f"; {DIRECTORY_VARIABLES[key]} may name any directory"
                    yield problem(key, message, hint)


def _parse_limit(value: Any) -> int | None:
    """Return a size such as `64MiB` or 5000 in bytes, or None if it is invalid or out of range."""
    found = re.fullmatch(r"(\d{1,12}) ?(KiB|MiB|GiB|)", str(value)) if not isinstance(value, bool) else None
    size = int(found[1]) * _UNITS[found[2]] if found else 0
    return size if 1 <= size <= _MAX_CASSETTE_LIMIT else None


def _is_inside_project(root: Path, path: str) -> bool:
    if not path.strip() or "\0" in path or "\\" in path or path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return False
    lexical = os.path.normpath(path).split(os.sep)[0] != ".."
    return lexical and Path(os.path.realpath(root / path)).is_relative_to(os.path.realpath(root))
