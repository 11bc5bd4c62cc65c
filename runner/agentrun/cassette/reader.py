"""Plain data as a cassette: the shape of VCR's format, checked. Anything else is `Refused` with its line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agentrun.cassette.events import Lined, Refused
from agentrun.cassette.match import spelling_of
from agentrun.cassette.tape import Cassette, Failure, Interaction, may_fail
from agentrun.errors import ProviderError
from agentrun.net.body import Body
from agentrun.wire import HttpCall, HttpReply

_OURS = frozenset({"start", "end", "path", "chunks", "failure", "stopped"})
_PLAIN = ("", "identity")
LONGEST = 400 * 24 * 60 * 60 * 1000
"""Milliseconds that a recording may have taken: more than a year."""


def cassette(data: Any, file_hash: str) -> Cassette:
    top = _mapping(data, 1, "the document")
    if _get(top, "version", int) != 1:
        raise Refused("its version is not 1", top.line)
    metadata = top.get("metadata") or Lined()
    metadata = _mapping(metadata, top.line, "metadata")
    interactions = tuple(
        _interaction(_mapping(item, top.line, "an interaction")) for item in _get(top, "interactions", list)
    )
    return Cassette(
        interactions=interactions,
        metadata=dict(metadata),
        recorded_at=_milliseconds(metadata.get("recorded_at"), top.line),
        hash=file_hash,
        keys=tuple(spelling_of(each.call, each.path) for each in interactions),
    )


def _interaction(data: Lined) -> Interaction:
    request, response = _get(data, "request", Lined), _get(data, "response", Lined)
    ours = _mapping(response.get("agentrun") or {}, response.line, "response.agentrun")
    if unknown := sorted(ours.keys() - _OURS):
        raise Refused(f"response.agentrun.{unknown[0]} is not known", response.line)
    reply = _reply(response)
    return Interaction(
        call=HttpCall(
            _get(request, "method", str), _get(request, "uri", str), _headers(request), _body(request, "body")
        ),
        reply=reply,
        start=_offset(ours, "start", response.line),
        end=_offset(ours, "end", response.line, ours.get("start")),
        line=data.line,
        path=_path(ours, response.line),
        chunks=_chunks(_optional(ours, "chunks", list, [], response.line), len(reply.body), response.line),
        failure=_failure(ours, response.line),
        stopped=_optional(ours, "stopped", bool, False, response.line),
    )


def _reply(response: Lined) -> HttpReply:
    """The reply as a client reads it: nothing of it is compressed any more."""
    status, body = _get(response, "status", Lined), _get(response, "body", Lined)
    code, fields, data = _get(status, "code", int), _headers(response), _body(body, "string")
    if not 100 <= code <= 999:  # servers make up their own
        raise Refused("a status is a number from 100 to 999", status.line)
    if all(value.strip().lower() in _PLAIN for name, value in fields if name == "content-encoding"):
        return HttpReply(code, fields, data)
    try:
        whole = Body(fields)
        whole.feed(data)
        data = whole.end(code)
    except ProviderError as error:
        raise Refused(f"a compressed body: {error.message}", response.line) from error
    return HttpReply(code, tuple(field for field in fields if field[0] != "content-encoding"), data)


def _failure(ours: Lined, line: int) -> Failure | None:
    if ours.get("failure") is None:
        return None
    data = _mapping(ours["failure"], line, "response.agentrun.failure")
    code, message, fields = data.get("code"), data.get("message"), data.get("fields", {})
    if not (isinstance(code, str) and isinstance(message, str) and isinstance(fields, dict)) or not may_fail(code):
        raise Refused("response.agentrun.failure has no code that a request fails with, or no message", data.line)
    return Failure(code, message, dict(fields))


def _chunks(sizes: list[Any], length: int, line: int) -> tuple[int, ...]:
    if not all(type(size) is int and size > 0 for size in sizes) or (sizes and sum(sizes) != length):
        raise Refused(f"response.agentrun.chunks does not add up to the {length} bytes of the body", line)
    return tuple(sizes)


def _optional(ours: Lined, key: str, kind: type[Any], default: Any, line: int) -> Any:
    value = ours.get(key, default)
    if type(value) is not kind:
        raise Refused(f"response.agentrun.{key} is of the wrong kind", line)
    return value


def _mapping(value: Any, line: int, what: str) -> Lined:
    if value == {}:
        value = Lined()
        value.line = line
    if not isinstance(value, Lined):
        raise Refused(f"{what} is no mapping", line)
    return value


def _get(data: Lined, key: str, kind: type[Any]) -> Any:
    value = data.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Refused(f"{key!r} is missing or of the wrong kind", data.line)
    return value


def _headers(data: Lined) -> tuple[tuple[str, str], ...]:
    found = []
    for name, values in _mapping(data.get("headers") or {}, data.line, "headers").items():
        for value in values if isinstance(values, list) else [values]:
            if not isinstance(value, str):
                raise Refused(f"the header {name!r} is no text", data.line)
            found.append((name.lower(), value))
    return tuple(found)


def _body(data: Lined, key: str) -> bytes:
    value = data.get(key)
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise Refused(f"{key!r} is neither text nor binary", data.line)
    return value


def _path(ours: Lined, line: int) -> str:
    path: str = _optional(ours, "path", str, "", line)
    if not (path.isascii() and path.isprintable()):
        raise Refused("response.agentrun.path is no path of a run", line)
    return path


def _offset(ours: Lined, key: str, line: int, least: int | None = None) -> int | None:
    value = ours.get(key)
    if value is not None and (type(value) is not int or not (least or 0) <= value <= LONGEST):
        raise Refused(f"response.agentrun.{key} is no number of milliseconds, or before its start", line)
    return value


def _milliseconds(text: Any, line: int) -> int:
    if text is None:
        return 0
    try:
        time = datetime.fromisoformat(text)
        moment = round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused("metadata.recorded_at is no date with a time", line) from error
    if moment < 0:
        raise Refused("metadata.recorded_at is before 1970", line)
    return moment
