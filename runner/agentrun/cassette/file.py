"""Cassette files: VCR's YAML, version 1. `writer.py` writes them with vcrpy; this reader is faster than vcrpy's.

    version: 1
    metadata: {recorded_at: '2026-01-31T12:00:00Z', …}      ours; vcrpy keeps it
    interactions:
    - request: {method, uri, headers: {name: [value]}, body}
      response:
        status: {code, message}
        headers: {name: [value]}
        body: {string}
        agentrun: {start: 0, end: 812, …}                   fields that VCR does not have, see below

`response.agentrun` has `start` and `end` (milliseconds since recorded_at), `chunks` (the sizes of the chunks in which
the body arrived), `path` (the call whose sub-agent sent the request), `failure` (why the reply is incomplete; the body
has the part that arrived), `stopped` (the request was cancelled before it was answered) and `sha256_of_whole_request`
(the body of the request is packed, see `packing.py`).

Rule 1  This module can read the files that vcrpy writes.
Rule 2  A file that is not a cassette is an error with its line, never an empty cassette. A path that is not a regular
        file is an error too, never a missing cassette.
"""

from __future__ import annotations

from datetime import UTC, datetime
from errno import EFBIG, EINVAL, EISDIR
from os import fstat
from pathlib import Path
from stat import S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFMT, S_IFSOCK, S_ISDIR, S_ISREG
from typing import Any

from agentrun.cassette.interactions import Cassette, Failure, Interaction, PackedCall, is_recordable_failure
from agentrun.cassette.packing import PACKED_KEY, Expander, PackingError
from agentrun.cassette.yaml_loader import CassetteFormatError, LinedMapping, load_yaml
from agentrun.errors import CassetteError, ProviderError, StorageError
from agentrun.files import ProjectTree
from agentrun.net.reply_body import ReplyBody
from agentrun.spec.project import DEFAULT_CASSETTE_LIMIT
from agentrun.spec.source_files import display_path
from agentrun.wire import HttpCall, HttpReply

RAISE_LIMIT_HINT = "raise cassette_limit in [tool.agentrun] of pyproject.toml"

_FILE_KINDS = {
    S_IFDIR: "a directory",
    S_IFIFO: "a named pipe",
    S_IFSOCK: "a socket",
    S_IFCHR: "a device",
    S_IFBLK: "a device",
}
_EXTRA_KEYS = frozenset({"start", "end", "path", "chunks", "failure", "stopped", PACKED_KEY})
_PLAIN = ("", "identity")
MAX_RECORDING_TIME = 400 * 24 * 60 * 60 * 1000


def cassette_exists(path: Path) -> bool:
    """Whether there is a cassette to read. Raises `storage.failed` for a path that is not a regular file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        if path.is_symlink():
            raise _unreadable_error(path, error, "it is a link to a file that does not exist") from error
        return False
    except OSError as error:
        raise _unreadable_error(path, error) from error
    if not S_ISREG(mode):
        kind = _FILE_KINDS.get(S_IFMT(mode), "not a regular file")
        raise _unreadable_error(path, OSError(EISDIR if S_ISDIR(mode) else EINVAL, ""), f"it is {kind}")
    return True


def load_cassette(path: Path, limit: int = DEFAULT_CASSETTE_LIMIT) -> Cassette:
    """Read a cassette of at most `limit` bytes. Raises `cassette.miss` (there is no file) or `cassette.damaged`."""
    data = _bytes(path, limit)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _damaged_error(path, data.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from error
    try:
        return parse_cassette_text(text)
    except CassetteFormatError as error:
        raise _damaged_error(path, error.line, error.message) from error


def _bytes(path: Path, limit: int) -> bytes:
    if not cassette_exists(path):  # checked first: opening a pipe would wait for a writer
        fields = {"turn": None, "nearest": None, "difference": "there is no cassette", "file": path.as_posix()}
        raise CassetteError("cassette.miss", f"there is no cassette {display_path(path)}", fields=fields)
    try:
        with path.open("rb") as file:
            size = min(fstat(file.fileno()).st_size, limit)
            data = file.read(size + 1)  # memory for all of the limit would take longer than the rest
            if len(data) > size:  # it grows, or its size is not known
                data += file.read(limit - size)
    except OSError as error:
        raise _unreadable_error(path, error) from error
    if len(data) > limit:
        raise _damaged_error(path, 1, f"it has more than {limit} bytes", RAISE_LIMIT_HINT)
    return data


def _unreadable_error(path: Path, error: OSError, why: str | None = None) -> StorageError:
    return StorageError(
        "storage.failed",
        f"the cassette {display_path(path)} cannot be read: {why or error.strerror}",
        hint="make it a readable file, or remove it and record the case again",
        fields={"path": "cassette", "errno": error.errno},
    )


def _damaged_error(path: Path, line: int, why: str, hint: str = "restore the file or record it again") -> CassetteError:
    return CassetteError(
        "cassette.damaged",
        f"{display_path(path)}:{line}: this is not a cassette: {why}",
        hint=hint,
        fields={"file": path.as_posix(), "line": line, "reason": why},
    )


def save_cassette(tree: ProjectTree, path: Path, text: str, limit: int) -> None:
    """Write a cassette atomically. Raises `storage.failed`, for example if `load_cassette` would not read it."""
    data = text.encode()
    if len(data) > limit:
        message = f"{display_path(path)} was not written: it has {len(data)} bytes, and the limit is {limit}"
        fields = {"path": "cassette", "errno": EFBIG}
        raise StorageError("storage.failed", message, hint=RAISE_LIMIT_HINT, fields=fields)
    tree.write(path, data)


def parse_cassette_text(text: str) -> Cassette:
    """Raises `CassetteFormatError`."""
    top = _mapping(load_yaml(text), 1, "the document")
    if _get(top, "version", int) != 1:
        raise CassetteFormatError("its version is not 1", top.line)
    metadata = _mapping(top.get("metadata") or {}, top.line, "metadata")
    expander = Expander()
    interactions = tuple(
        _interaction(_mapping(item, top.line, "an interaction"), expander) for item in _get(top, "interactions", list)
    )
    recorded_at = _milliseconds(metadata.get("recorded_at"), top.line)
    return Cassette(interactions=interactions, metadata=dict(metadata), recorded_at=recorded_at)


def _interaction(data: LinedMapping, expander: Expander) -> Interaction:
    request, response = _get(data, "request", LinedMapping), _get(data, "response", LinedMapping)
    extra = _mapping(response.get("agentrun") or {}, response.line, "response.agentrun")
    if unknown := sorted(extra.keys() - _EXTRA_KEYS):
        raise CassetteFormatError(f"unknown key response.agentrun.{unknown[0]}", response.line)
    method, uri = _get(request, "method", str), _get(request, "uri", str)
    headers, body, reply = _headers(request), _body(request, "body"), _reply(response)
    if (digest := _optional(extra, PACKED_KEY, str, "", response.line)) == "":
        call: HttpCall | PackedCall = HttpCall(method, uri, headers, body)
        expander.add(body, reply.body)
    else:
        try:
            whole = expander.expand(body, digest)
        except PackingError as error:
            raise CassetteFormatError(str(error), request.line) from error
        call = PackedCall(method, uri, headers, whole)
        expander.add(whole, reply.body)
    return Interaction(
        request=call,
        reply=reply,
        start=_offset(extra, "start", response.line),
        end=_offset(extra, "end", response.line, extra.get("start")),
        line=data.line,
        path=_path(extra, response.line),
        chunks=_chunks(_optional(extra, "chunks", list, [], response.line), len(reply.body), response.line),
        failure=_failure(extra, response.line),
        stopped=_optional(extra, "stopped", bool, False, response.line),
    )


def _reply(response: LinedMapping) -> HttpReply:
    status, body = _get(response, "status", LinedMapping), _get(response, "body", LinedMapping)
    code, fields, data = _get(status, "code", int), _headers(response), _body(body, "string")
    if not 100 <= code <= 999:  # servers make up their own
        raise CassetteFormatError("the status must be a number from 100 to 999", status.line)
    if all(value.strip().lower() in _PLAIN for name, value in fields if name == "content-encoding"):
        return HttpReply(code, fields, data)
    try:
        whole = ReplyBody(fields)
        whole.feed(data)
        data = whole.end(code)
    except ProviderError as error:
        raise CassetteFormatError(f"cannot decompress the body: {error.message}", response.line) from error
    return HttpReply(code, tuple(field for field in fields if field[0] != "content-encoding"), data)


def _failure(extra: LinedMapping, line: int) -> Failure | None:
    if extra.get("failure") is None:
        return None
    data = _mapping(extra["failure"], line, "response.agentrun.failure")
    code, message, fields = data.get("code"), data.get("message"), data.get("fields", {})
    if isinstance(code, str) and isinstance(message, str) and isinstance(fields, dict) and is_recordable_failure(code):
        return Failure(code, message, dict(fields))
    raise CassetteFormatError("response.agentrun.failure needs a message and the code of a failed request", data.line)


def _chunks(sizes: list[Any], length: int, line: int) -> tuple[int, ...]:
    if not all(type(size) is int and size > 0 for size in sizes) or (sizes and sum(sizes) != length):
        raise CassetteFormatError(f"response.agentrun.chunks does not add up to the {length} bytes of the body", line)
    return tuple(sizes)


def _optional(extra: LinedMapping, key: str, kind: type[Any], default: Any, line: int) -> Any:
    value = extra.get(key, default)
    if type(value) is not kind:
        raise CassetteFormatError(f"response.agentrun.{key} has the wrong type", line)
    return value


def _mapping(value: Any, line: int, what: str) -> LinedMapping:
    if value == {}:
        value = LinedMapping()
        value.line = line
    if not isinstance(value, LinedMapping):
        raise CassetteFormatError(f"{what} is not a mapping", line)
    return value


def _get(data: LinedMapping, key: str, kind: type[Any]) -> Any:
    value = data.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CassetteFormatError(f"{key!r} is missing or has the wrong type", data.line)
    return value


def _headers(data: LinedMapping) -> tuple[tuple[str, str], ...]:
    headers = []
    for name, values in _mapping(data.get("headers") or {}, data.line, "headers").items():
        for value in values if isinstance(values, list) else [values]:
            if not isinstance(value, str):
                raise CassetteFormatError(f"the value of header {name!r} is not a string", data.line)
            headers.append((name.lower(), value))
    return tuple(headers)


def _body(data: LinedMapping, key: str) -> bytes:
    value = data.get(key)
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise CassetteFormatError(f"{key!r} is neither text nor binary", data.line)
    return value


def _path(extra: LinedMapping, line: int) -> str:
    path: str = _optional(extra, "path", str, "", line)
    if not (path.isascii() and path.isprintable()):
        raise CassetteFormatError("response.agentrun.path has characters that are not printable ASCII", line)
    return path


def _offset(extra: LinedMapping, key: str, line: int, least: int | None = None) -> int | None:
    value = extra.get(key)
    if value is not None and (type(value) is not int or not (least or 0) <= value <= MAX_RECORDING_TIME):
        raise CassetteFormatError(f"response.agentrun.{key} is not a valid number of milliseconds", line)
    return value


def _milliseconds(text: Any, line: int) -> int:
    if text is None:
        return 0
    try:
        time = datetime.fromisoformat(text)
        moment = round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError) as error:
        raise CassetteFormatError("metadata.recorded_at is not a date and time", line) from error
    if moment < 0:
        raise CassetteFormatError("metadata.recorded_at is before 1970", line)
    return moment
