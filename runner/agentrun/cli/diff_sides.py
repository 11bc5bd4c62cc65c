"""What the files are that `agentrun diff` compares: known by what stands in them, not by their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from agentrun.cli.journal_file import JOURNAL_BEGINS

if TYPE_CHECKING:
    from agentrun.cassette.parsed import ParsedCassette
    from agentrun.cassette.tape import Interaction
    from agentrun.core.facts import Record
    from agentrun.report.change import Change

Side: TypeAlias = Literal["journal", "snapshot", "cassette", "agent", "folder"]
"""agent: a spec or a package."""

_HEAD = 65_536
_DOCUMENT = re.compile(r"^[\"']?agentrun[\"']?[ ]*:", re.MULTILINE)
_CASSETTE = re.compile(r"^[\"']?interactions[\"']?[ ]*:", re.MULTILINE)
_CASES = (".cases.yaml", ".cases.yml")
_SNAPSHOT = b"- run_started:"


def side_of(path: Path) -> Side | None:
    """What a file is. None: nothing that can be compared."""
    if path.is_dir():
        return "folder"
    if not path.is_file():  # a pipe would never end
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(JOURNAL_BEGINS):
        return "journal"
    if head.startswith(_SNAPSHOT):
        return "snapshot"
    text = head.decode("utf-8", "replace")
    if _CASSETTE.search(text) and not _DOCUMENT.search(text):
        return "cassette"
    is_agent = path.suffix in (".json", ".yaml", ".yml") and not path.name.endswith(_CASES)
    return "agent" if is_agent else None


def must_be_comparable(a: Path, b: Path) -> tuple[Side, Side]:
    """The sides of a comparison. Raises a usage error for two that have nothing in common."""
    one, two = _known(a), _known(b)
    if one == two or {one, two} == {"journal", "snapshot"}:
        return one, two
    kinds = f"{a} is {_WORDS[one]} and {b} is {_WORDS[two]}"
    raise click.UsageError(f"{kinds}: only two of a kind can be compared, or a journal and a snapshot")


def _known(path: Path) -> Side:
    try:
        side = side_of(path)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None
    if side is None:
        raise click.UsageError(f"{path} is no journal, snapshot, cassette, spec or package")
    return side


_WORDS: dict[Side, str] = {
    "journal": "a journal",
    "snapshot": "a snapshot",
    "cassette": "a cassette",
    "agent": "a spec or a package",
    "folder": "a folder",
}


def changes_in(a: Path, b: Path, side: Side, other: Side) -> tuple[Change, ...]:
    """How two files differ that are not specs. Raises what reading them raises."""
    if side == "cassette":
        from agentrun.report.cassette_diff import compare_cassettes

        return compare_cassettes(_cassette(a), _cassette(b))
    from agentrun.report.changes import changes_of

    return changes_of(_facts(a, side), _facts(b, other))


def _cassette(path: Path) -> ParsedCassette:
    """A recording, without what nobody may see."""
    from msgspec.structs import replace

    from agentrun.cassette.file import load
    from agentrun.cassette.parsed import parse_cassette
    from agentrun.cli.known import known
    from agentrun.spec.project import cassette_limit_near

    def clean(each: Interaction) -> Interaction:
        call = replace(each.call, url=known().text(each.call.url), body=known().raw(each.call.body))
        return replace(each, call=call, reply=replace(each.reply, body=known().raw(each.reply.body)))

    tape = load(path, cassette_limit_near(path))
    interactions = tuple(map(clean, tape.interactions))
    return parse_cassette(replace(tape, metadata=known().data(tape.metadata), interactions=interactions))


def _facts(path: Path, side: Side) -> list[Any]:
    """The facts of a journal or a snapshot, without what nobody may see."""
    from agentrun.cli.known import known

    if side == "snapshot":
        cleaned: list[Any] = known().data(_snapshot(path))
        return cleaned
    from agentrun.journal.canonical import plain_facts

    records = _records(path)
    return list(plain_facts(records, _children(path, records), known().text))


def _records(path: Path) -> list[Record]:
    """A journal. What is wrong is said with its file: there are two, and those of sub-agents."""
    from agentrun.errors import StorageError
    from agentrun.journal.file import read_file

    try:
        return list(read_file(path))
    except StorageError as error:
        message = f"{path}: {error.message}"
        raise StorageError(error.code, message, hint=error.hint, fields=error.fields) from None


def _snapshot(path: Path) -> list[Any]:
    from agentrun.errors import StorageError
    from agentrun.journal.laid_out import NotLaidOut
    from agentrun.report.changes import facts_in

    hint = "accept it anew: agentrun test --update"
    try:
        return facts_in(path.read_text(encoding="utf-8"))
    except NotLaidOut as error:
        raise StorageError("journal.damaged", f"{path}: {error}", hint=hint, fields={"line": error.line}) from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise StorageError("journal.damaged", f"{path}: {why}", hint=hint) from None


def _children(path: Path, records: list[Record]) -> dict[str, list[Record]]:
    """The journals of sub-agents that stand beside a journal, by run."""
    from agentrun.core.facts import RunStarted
    from agentrun.journal.places import child_files

    first = records[0].fact if records else None
    run = first.run if isinstance(first, RunStarted) else ""
    return {f"{run}.{each.stem[len(path.stem) + 1 :]}": _records(each) for each in child_files(path)}
