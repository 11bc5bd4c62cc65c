"""Compare two journals, snapshots or cassettes, or two folders of them and of specs file by file.

Rule 1  The content of a file decides what it is, not its name.
Rule 2  Everything read is redacted before it is compared.
Rule 3  A file that cannot be read is an error. It is never reported as gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from agentrun.core.facts import Record, RunStarted
from agentrun.errors import StorageError
from agentrun.journal.canonical import plain_facts
from agentrun.journal.records import JOURNAL_PREFIX
from agentrun.journal.storage import child_journal_paths, is_child_journal, is_child_journal_of, read_journal_file
from agentrun.journal.yaml_text import YamlTextError
from agentrun.redactor import Redactor
from agentrun.report.cassette_diff import compare_cassettes
from agentrun.report.change import ChangeStatus, RunChange
from agentrun.report.journal_diff import compare_journal_facts
from agentrun.report.snapshot_form import parse_snapshot
from agentrun.spec.safe_text import short_text
from agentrun.spec.source_files import walk_folders

if TYPE_CHECKING:  # `report` and `cassette` are in one layer, so only types are imported
    from agentrun.cassette.parsed_interaction import ParsedCassette

FileKind: TypeAlias = Literal["journal", "snapshot", "cassette", "agent", "folder"]
"""agent: a spec or a package."""

_HEAD = 65_536
_DOCUMENT = re.compile(r"^[\"']?agentrun[\"']?[ ]*:", re.MULTILINE)
_CASSETTE = re.compile(r"^[\"']?interactions[\"']?[ ]*:", re.MULTILINE)
_CASES = (".cases.yaml", ".cases.yml")
_SNAPSHOT = b"- run_started:"
_SPEC = re.compile(r"^[\"']?instructions[\"']?[ ]*:", re.MULTILINE)
_COMPARED_KINDS: tuple[FileKind, ...] = ("snapshot", "journal", "cassette", "agent")
_NAMES: dict[FileKind, str] = {"agent": "spec"}


class NotComparable(Exception):
    """Two folders that cannot be compared. The text is a message for the user."""


class Comparison(Struct, frozen=True):
    kind: FileKind
    a: Path
    b: Path
    changes: tuple[RunChange, ...]
    name: str = ""
    """The path inside the folders, if folders are compared."""


def file_kind(path: Path) -> FileKind | None:
    """Return what a file is. None: it cannot be compared. Raises OSError."""
    if path.is_dir():
        return "folder"
    if not path.is_file():  # reading a pipe would never end
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(JOURNAL_PREFIX):
        return "journal"
    if head.startswith(_SNAPSHOT):
        return "snapshot"
    text = head.decode("utf-8", "replace")
    if _CASSETTE.search(text) and not _DOCUMENT.search(text):
        return "cassette"
    is_agent = path.suffix in (".json", ".yaml", ".yml") and not path.name.endswith(_CASES)
    return "agent" if is_agent else None


class FileDiff:
    def __init__(
        self,
        redactor: Redactor,
        load_cassette: Callable[[Path], ParsedCassette],
        compare_agents: Callable[[Path, Path], tuple[RunChange, ...]],
    ) -> None:
        self._redactor = redactor
        self._load_cassette = load_cassette
        self._compare_agents = compare_agents

    def compare_files(self, a: Path, b: Path, kind: FileKind, other: FileKind) -> tuple[RunChange, ...]:
        """Compare two specs, two cassettes, or two journals or snapshots in any mix, whose kinds are given."""
        if kind == "agent":
            return self._compare_agents(a, b)
        if kind == "cassette":
            return compare_cassettes(self._load_cassette(a), self._load_cassette(b))
        return compare_journal_facts(self._facts(a, kind), self._facts(b, other))

    def compare_folders(self, a: Path, b: Path) -> list[Comparison]:
        """Compare the files of two folders by their names. Raises `NotComparable`."""
        one, two = _find_files(a), _find_files(b)
        if not one and not two:
            raise NotComparable(f"{a} and {b} contain no specs, snapshots, journals or cassettes")
        found = []
        for name in sorted(one.keys() | two.keys()):
            kind = two[name] if name in two else one[name]
            if name not in one or name not in two:
                how: ChangeStatus = "new" if name in two else "gone"
                text = f"the {_NAMES.get(kind, kind)} is {how}"
                changes: tuple[RunChange, ...] = (RunChange(text=text, kind="run", how=how),)
            elif one[name] != two[name] and {one[name], two[name]} != {"journal", "snapshot"}:
                kinds = [_NAMES.get(each, each) for each in (one[name], two[name])]
                raise NotComparable(f"{short_text(name)} is a {kinds[0]} in {a} and a {kinds[1]} in {b}")
            else:
                changes = self.compare_files(a / name, b / name, one[name], two[name])
            found.append(Comparison(kind, a / name, b / name, changes, name))
        return found

    def _facts(self, path: Path, kind: FileKind) -> list[Any]:
        if kind == "snapshot":
            facts: list[Any] = self._redactor.redact_data(_snapshot(path))
            return facts
        records = _records(path)
        return list(plain_facts(records, _children(path, records), self._redactor.redact_text))


def _find_files(folder: Path) -> dict[str, FileKind]:
    """The files that can be compared, by their paths in the folder. A sub-agent's journal belongs to its parent's."""
    found: dict[str, FileKind] = {}
    for here, names in walk_folders(folder, on_error=_refuse):
        for path in (here / name for name in names if not name.startswith(".")):
            try:
                kind = file_kind(path)
                is_other_document = kind == "agent" and not _is_spec(path)
            except OSError as error:
                raise _unreadable(path, error) from None
            siblings = path.parent.glob(f"*{path.suffix}") if kind == "journal" and is_child_journal(path) else ()
            if is_other_document or any(is_child_journal_of(other, path) for other in siblings):
                continue
            if kind in _COMPARED_KINDS:
                found[path.relative_to(folder).as_posix()] = kind
    return found


def _is_spec(path: Path) -> bool:
    """Whether a document is a spec: not a shared part, a schema or any other YAML or JSON file."""
    if path.suffix == ".json":
        return False
    with path.open("rb") as file:
        text = file.read(_HEAD).decode("utf-8", "replace")
    return _DOCUMENT.search(text) is not None and _SPEC.search(text) is not None


def _refuse(error: OSError) -> None:
    raise _unreadable(Path(error.filename), error)


def _unreadable(path: Path, error: OSError) -> StorageError:
    fields = {"path": "comparison", "errno": error.errno}
    return StorageError("storage.failed", f"{path} cannot be read: {error.strerror}", fields=fields)


def _records(path: Path) -> list[Record]:
    """Read a journal. Errors name its file, because several are read."""
    try:
        return list(read_journal_file(path))
    except StorageError as error:
        message = f"{path}: {error.message}"
        raise StorageError(error.code, message, hint=error.hint, fields=error.fields) from None


def _snapshot(path: Path) -> list[Any]:
    hint = "write it again: agentrun test --update"
    try:
        return parse_snapshot(path.read_text(encoding="utf-8"))
    except YamlTextError as error:
        raise StorageError("journal.damaged", f"{path}: {error}", hint=hint, fields={"line": error.line}) from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise StorageError("journal.damaged", f"{path}: {why}", hint=hint) from None


def _children(path: Path, records: list[Record]) -> dict[str, list[Record]]:
    first = records[0].fact if records else None
    run = first.run if isinstance(first, RunStarted) else ""
    return {f"{run}.{each.stem[len(path.stem) + 1 :]}": _records(each) for each in child_journal_paths(path)}
