"""The log of a recording: a line for each interaction, appended when it ends. The cassette is made of it in the end.

    {"cassette": "support/default.yaml", …}                                     the header: what is recorded
    {"number": 1, "effect": "m1.1", "method": "POST", "json": {…}, …}           a request with its reply
    {"number": 3, "effect": "m2.1", "more": ["messages", [{…}, {…}]], …}        a request that continues an earlier one

Rule 1  Lines are in the order in which interactions end, because those that ended must survive the process. `number`
        is the order of the requests, which is that of the cassette.
Rule 2  A request that has new items at the end of one list is written with these. It continues the last line before it
        with the same path and address. So a line is as long as what is new.
Rule 3  `effect` is the id of the effect in the journal. A run that is resumed starts effects again that are not
        finished in its journal, so their lines are dropped. A line is appended before its fact is written to the
        journal.
Rule 4  Lines are redacted, and have only the headers that a cassette has. An incomplete last line is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from agentrun.canonical_json import NOT_JSON
from agentrun.cassette.interactions import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    Failure,
    Interaction,
    PackedCall,
    allowed_headers,
)
from agentrun.cassette.json_body import JsonBody
from agentrun.errors import StorageError
from agentrun.redactor import Redactor
from agentrun.wire import HttpCall, HttpReply


class RecordingFile(Protocol):
    def append(self, data: bytes) -> None:
        """Raises `storage.failed`."""

    def read(self) -> bytes: ...

    def rewrite(self, data: bytes) -> None:
        """Replace everything, completely or not at all."""

    def remove(self) -> None: ...


class LoggedInteraction(Struct, frozen=True):
    """An interaction, and what only its recording knows about it."""

    number: int
    interaction: Interaction
    effect: str = ""
    server: str | None = None
    """The `server` header of a model's reply. None: the request was not sent to a model, or is not new."""
    reused: int = 0
    """The number of the interaction in the earlier cassette. 0: it is new."""
    is_settled: bool = False
    """Whether a person gave the result of the call."""

    @property
    def key(self) -> tuple[str, str]:
        return self.interaction.path, self.effect


class _Content(Struct, frozen=True, omit_defaults=True):
    """A body. Base64 if it is not text."""

    text: str | None = None
    data: bytes = b""


class _Line(Struct, frozen=True, omit_defaults=True):
    number: int
    effect: str
    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: _Content | None = None
    json: Any = None
    more: tuple[str, list[Raw]] | None = None
    status: int = 200
    reply_headers: tuple[tuple[str, str], ...] = ()
    reply: _Content = _Content()
    chunks: tuple[int, ...] = ()
    start: int | None = None
    end: int | None = None
    path: str = ""
    failure: Failure | None = None
    stopped: bool = False
    server: str | None = None
    reused: int = 0
    settled: bool = False


_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(_Line).decode


class RecordingLog:
    def __init__(self, file: RecordingFile, header: bytes) -> None:
        """`header`: the first line of the file, without its end. It is in the file before the first interaction."""
        self._file = file
        self._header = header
        self.is_empty = True
        """Whether it has no interactions yet."""
        self._bodies: dict[tuple[str, str], JsonBody] = {}
        """The last request of each path and address in the file."""

    def append(self, logged: LoggedInteraction) -> None:
        """Raises `storage.failed`."""
        self._file.append(self._encode(logged))
        self.is_empty = False
        if isinstance(logged.interaction.request, PackedCall):
            logged.interaction.request.json.base = None  # otherwise every request would stay in memory

    def last_body(self, path: str, url: str) -> JsonBody | None:
        return self._bodies.get((path, url))

    def contains(self, search: Redactor) -> bool:
        """Whether a redactor finds something in the file."""
        return bool(search.changes(self._file.read()))

    def read(self) -> list[LoggedInteraction]:
        """All interactions, in the order of the file. Raises `storage.failed` if the file is damaged."""
        return list(read_log(self._file.read()))

    def rewrite(self, interactions: Iterable[LoggedInteraction]) -> None:
        """Replace all lines. Raises `storage.failed`."""
        self._bodies.clear()
        lines = list(map(self._encode, interactions))
        self._file.rewrite(b"".join([self._header, b"\n", *lines]))
        self.is_empty = not lines

    def remove(self) -> None:
        self._file.remove()

    def _encode(self, logged: LoggedInteraction) -> bytes:
        each = logged.interaction
        request, reply = each.request, each.reply
        line = _Line(
            number=logged.number,
            effect=logged.effect,
            method=request.method,
            url=request.url,
            headers=allowed_headers(request.headers, REQUEST_HEADERS),
            **self._encode_body(request, each.path),
            status=reply.status,
            reply_headers=allowed_headers(reply.headers, RESPONSE_HEADERS),
            reply=_content(reply.body),
            chunks=each.chunks,
            start=each.start,
            end=each.end,
            path=each.path,
            failure=each.failure,
            stopped=each.stopped,
            server=logged.server,
            reused=logged.reused,
            settled=logged.is_settled,
        )
        return _encode(line) + b"\n"

    def _encode_body(self, request: HttpCall | PackedCall, path: str) -> dict[str, Any]:
        if isinstance(request, HttpCall):
            return {"body": _content(request.body)}
        key, body = (path, request.url), request.json
        earlier, self._bodies[key] = self._bodies.get(key), body
        if earlier is not None and (added := body.added_to(earlier)) is not None:
            name, items = added
            return {"more": (name, list(map(Raw, items)))}
        return {"json": Raw(body.compact())}


def _content(data: bytes) -> _Content:
    try:
        return _Content(data.decode())
    except UnicodeDecodeError:
        return _Content(data=data)


def _bytes(content: _Content) -> bytes:
    return content.data if content.text is None else content.text.encode()


def read_header(data: bytes) -> bytes:
    return data.partition(b"\n")[0]


def read_log(data: bytes) -> Iterator[LoggedInteraction]:
    bodies: dict[tuple[str, str], JsonBody] = {}
    lines = data.split(b"\n")[1:-1]  # without the header and an incomplete line
    for line in lines:
        try:
            yield _decode(_decode_line(line), bodies)
        except (*NOT_JSON, msgspec.ValidationError, KeyError) as error:
            message = "the recording of the run is damaged"
            raise StorageError("storage.failed", message, fields={"path": "recording", "errno": None}) from error


def _decode(line: _Line, bodies: dict[tuple[str, str], JsonBody]) -> LoggedInteraction:
    request: HttpCall | PackedCall
    if line.body is not None:
        request = HttpCall(line.method, line.url, line.headers, _bytes(line.body))
    else:
        key = line.path, line.url
        if line.more is not None:
            name, items = line.more
            earlier = bodies[key]
            _ = earlier.digest  # the hash of the next one goes on from it
            body = earlier.with_more(name, list(map(bytes, items)))
        else:
            body = JsonBody.of(line.json)
        bodies[key] = body
        request = PackedCall(line.method, line.url, line.headers, body)
    interaction = Interaction(
        request,
        HttpReply(line.status, line.reply_headers, _bytes(line.reply)),
        line.start,
        line.end,
        path=line.path,
        chunks=line.chunks,
        failure=line.failure,
        stopped=line.stopped,
    )
    return LoggedInteraction(line.number, interaction, line.effect, line.server, line.reused, line.settled)
