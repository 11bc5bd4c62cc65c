"""Cassette files: VCR's YAML, version 1, read and written without vcrpy.

    version: 1
    metadata: {recorded_at: '2026-01-31T12:00:00Z', …}      free for us; vcrpy keeps it
    interactions:
    - request: {method, uri, headers: {name: [value]}, body}
      response:
        status: {code, message}
        headers: {name: [value]}
        body: {string}
        agentrun: {start: 0, end: 812, …}                   what VCR has no place for, see below

`response.agentrun` holds `start` and `end` (milliseconds since recorded_at), `chunks` (the sizes of the pieces in which
the body came), `path` (the call whose sub-agent asked), `failure` (why there is no whole reply: what had come of it
stands in the body) and `stopped` (it was given up before it was answered).

Rule 1  Plain vcrpy reads what is written here, and what vcrpy writes is read here.
Rule 2  A file that is not a cassette is an error with its line; it is never taken for an empty one. A path that is not
        a regular file is an error too; it is never taken for a cassette that is missing.
Rule 3  Request bodies are written as pretty JSON, response bodies exactly as they came.
Rule 4  Only headers of the allow-list are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from errno import EFBIG, EINVAL, EISDIR
from http import HTTPStatus
from pathlib import Path
from stat import S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFMT, S_IFSOCK, S_ISDIR, S_ISREG
from typing import Any

import msgspec
import yaml

from agentrun.canon import pretty, text_hash
from agentrun.cassette.events import Refused, read
from agentrun.cassette.reader import cassette
from agentrun.cassette.tape import Cassette, Interaction
from agentrun.errors import CassetteError, StorageError
from agentrun.files import ProjectTree
from agentrun.spec.files import shown_path
from agentrun.spec.project import CASSETTE_LIMIT

TO_RAISE_LIMIT = "cassette_limit of [tool.agentrun] in pyproject.toml may be larger"
NO_REPLY = 599
"""The status of an interaction without a reply: to a client that knows nothing of `agentrun` it is a failure too."""

_KINDS = {
    S_IFDIR: "a directory",
    S_IFIFO: "a named pipe",
    S_IFSOCK: "a socket",
    S_IFCHR: "a device",
    S_IFBLK: "a device",
}
REQUEST_HEADERS = frozenset({"accept", "content-type"})
RESPONSE_HEADERS = frozenset({"content-type", "date", "location", "retry-after"})


def cassette_exists(path: Path) -> bool:
    """Whether there is a cassette to read. Raises `storage.failed` for a path that is not a regular file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        if path.is_symlink():
            raise _unreadable(path, error, "it is a link to a file that does not exist") from error
        return False
    except OSError as error:
        raise _unreadable(path, error) from error
    if not S_ISREG(mode):
        number = EISDIR if S_ISDIR(mode) else EINVAL
        raise _unreadable(path, OSError(number, ""), f"it is {_KINDS.get(S_IFMT(mode), 'not a regular file')}")
    return True


def load(path: Path, limit: int = CASSETTE_LIMIT) -> Cassette:
    """Read a cassette of at most `limit` bytes.

    Raises `cassette.miss` without a file and `cassette.damaged` for one that is none.
    """
    data = _bytes(path, limit)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _damaged(path, data.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from error
    try:
        return cassette(read(text), text_hash(data))
    except Refused as refused:
        raise _damaged(path, refused.line, refused.message) from refused


def _bytes(path: Path, limit: int) -> bytes:
    if not cassette_exists(path):  # asked first: opening a pipe would wait for a writer
        fields = {
            "turn": None,
            "nearest": None,
            "difference": "there is no cassette",
            "file": path.as_posix(),
        }
        raise CassetteError("cassette.miss", f"there is no cassette {shown_path(path)}", fields=fields)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > limit:
        raise _damaged(path, 1, f"it has more than {limit} bytes", TO_RAISE_LIMIT)
    return data


def _unreadable(path: Path, error: OSError, why: str | None = None) -> StorageError:
    return StorageError(
        "storage.failed",
        f"the cassette {shown_path(path)} cannot be read: {why or error.strerror}",
        hint="put a readable cassette file there, or remove what is there and record the case again",
        fields={"path": "cassette", "errno": error.errno},
    )


def _damaged(path: Path, line: int, why: str, hint: str = "restore the file, or record it again") -> CassetteError:
    return CassetteError(
        "cassette.damaged",
        f"{shown_path(path)}:{line}: this is not a cassette: {why}",
        hint=hint,
        fields={"file": path.as_posix(), "line": line, "reason": why},
    )


def save(tree: ProjectTree, path: Path, text: str, limit: int) -> None:
    """Write a cassette as a whole. Raises `storage.failed`, also for one that `load` would refuse under that limit."""
    data = text.encode()
    if len(data) > limit:
        message = f"{shown_path(path)} is not written: it would have {len(data)} bytes, and replay reads {limit}"
        raise StorageError("storage.failed", message, hint=TO_RAISE_LIMIT, fields={"path": "cassette", "errno": EFBIG})
    tree.write(path, data)


def dump(interactions: Iterable[Interaction], metadata: Mapping[str, Any]) -> str:
    """The text of a cassette file: block style, one value per line."""
    data: dict[str, Any] = {"version": 1}
    if metadata:
        data["metadata"] = dict(metadata)
    data["interactions"] = [_written(interaction) for interaction in interactions]
    text: str = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**30
    )
    return text


def _written(interaction: Interaction) -> dict[str, Any]:
    call, reply = interaction.call, interaction.reply
    response = {
        "status": {"code": reply.status, "message": _reason(reply.status)},
        "headers": _listed(reply.headers, RESPONSE_HEADERS),
        "body": {"string": _text(reply.body)},
    }
    if ours := _ours(interaction):
        response["agentrun"] = ours
    return {
        "request": {
            "method": call.method,
            "uri": call.url,
            "headers": _listed(call.headers, REQUEST_HEADERS),
            "body": _readable(call.body),
        },
        "response": response,
    }


def _ours(interaction: Interaction) -> dict[str, Any]:
    failure = interaction.failure
    given = {
        "path": interaction.path or None,
        "start": interaction.start,
        "end": interaction.end,
        "chunks": _OneLine(interaction.chunks) if len(interaction.chunks) > 1 else None,
        "failure": None if failure is None else msgspec.to_builtins(failure),
        "stopped": interaction.stopped or None,
    }
    return {key: value for key, value in given.items() if value is not None}


def _reason(status: int) -> str:
    if status == NO_REPLY:
        return "No Reply"
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""


def _listed(headers: Iterable[tuple[str, str]], allowed: frozenset[str]) -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for name, value in headers:
        if name.lower() in allowed:
            listed.setdefault(name.lower(), []).append(value)
    return listed


def _readable(body: bytes) -> str | bytes | None:
    try:
        return pretty(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _text(body) or None


def _text(body: bytes) -> str | bytes:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


class _OneLine(list[int]):
    """A list that is written on one line."""


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as lines. In pure Python: it writes the same with and without libyaml."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.split("\n")
    style = "|" if len(lines) > 1 else None
    if not all(line.isprintable() for line in lines):
        style = '"'  # the one style that keeps every character as it is
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_line(dumper: yaml.SafeDumper, items: _OneLine) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(_OneLine, _represent_line)
