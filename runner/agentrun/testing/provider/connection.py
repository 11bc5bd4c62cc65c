"""One connection: reads requests and sends answers, each to the very byte."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from threading import Event
from typing import Protocol

from msgspec import Struct

from agentrun.testing.provider.formats import format_of
from agentrun.testing.provider.play import Answer, Play
from agentrun.wire import SCRIPTED

MAX_BODY = 64 * 1024 * 1024
SERVED = "…/chat/completions, …/responses, …/messages, …/models/NAME:generateContent, …:streamGenerateContent?alt=sse"


class Seen(Struct, frozen=True, kw_only=True):
    """A request, and how it is answered."""

    method: str
    path: str
    headers: dict[str, str]
    """Their names in small letters."""
    body: bytes
    provider: str | None
    """Whose format it is in; None when it is in none."""
    turn: int | None
    """The turn of the script, from 1."""
    status: int
    is_turn: bool
    """Whether it gets the turn's own reply, whole."""


class Host(Protocol):
    """Whom connections belong to."""

    @property
    def play(self) -> Play: ...

    @property
    def is_closing(self) -> Event: ...

    def saw(self, seen: Seen) -> None:
        """A request is about to be answered."""

    def answered(self, seen: Seen) -> None:
        """It was, as far as it went."""

    def keep(self, connection: socket.socket) -> None: ...

    def forget(self, connection: socket.socket) -> None: ...


class Gone(Exception):
    """The other side has left, or the server is being closed."""


class Connection(BaseHTTPRequestHandler):
    """Reads and answers until the other side leaves."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    host: Host

    def setup(self) -> None:
        super().setup()
        self.host.keep(self.connection)

    def finish(self) -> None:
        self.host.forget(self.connection)
        with suppress(OSError):
            super().finish()

    def do_POST(self) -> None:  # the name that the library looks for
        body = self._body()
        if isinstance(body, Answer):
            self.close_connection = True  # what is left of the body would be taken for the next request
            self._reply(body, b"", None)
            return
        format = format_of(self.path)
        answer = self.host.play.answer(format, self.path, body) if format else _plain(404, f"here are only {SERVED}")
        self._reply(answer, body, format.name if format else None)

    def do_GET(self) -> None:  # the name that the library looks for
        self._reply(_plain(404, f"here is only POST to {SERVED}"), b"", None)

    def log_message(self, format: str, *args: object) -> None:
        """What there is to say, `Seen` says."""

    def _body(self) -> bytes | Answer:
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return _plain(411, "a request needs a content-length here")
        if int(length[:20]) > MAX_BODY:
            return _plain(413, f"a request has at most {MAX_BODY} bytes here")
        return self.rfile.read(int(length))

    def _reply(self, answer: Answer, body: bytes, provider: str | None) -> None:
        seen = Seen(
            method=self.command,
            path=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            provider=provider,
            turn=answer.turn,
            status=answer.status,
            is_turn=answer.is_turn,
        )
        self.host.saw(seen)
        try:
            self._send(answer)
        except (Gone, OSError):
            self.close_connection = True
        self.host.answered(seen)

    def _send(self, answer: Answer) -> None:
        self._wait(answer.delay)
        self._send_head(answer)
        left = answer.cut
        for index, piece in enumerate(_filled(answer)):
            if index:
                self._wait(answer.gap)
            if left is not None and left < len(piece):
                self._send_piece(piece[:left], answer)
                self.close_connection = True
                return
            self._send_piece(piece, answer)
            left = None if left is None else left - len(piece)
        if answer.framing == "chunked":
            self.wfile.write(b"0\r\n\r\n")

    def _send_head(self, answer: Answer) -> None:
        ends = {
            "length": ("content-length", str(sum(map(len, answer.pieces)))),
            "chunked": ("transfer-encoding", "chunked"),
            "close": ("connection", "close"),
        }
        said = {"date": formatdate(usegmt=True), "server": SCRIPTED, "content-type": answer.content_type}
        own = {**said, **dict([ends[answer.framing]])}
        self.send_response_only(answer.status)
        for name, value in {**own, **{name.lower(): value for name, value in answer.headers.items()}}.items():
            self.send_header(name, value)  # of `connection: close` it takes note itself
        self.end_headers()

    def _send_piece(self, piece: bytes, answer: Answer) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if answer.framing == "chunked" else piece)

    def _wait(self, milliseconds: int) -> None:
        if milliseconds and self.host.is_closing.wait(milliseconds / 1000):
            raise Gone


def _filled(answer: Answer) -> Iterator[bytes]:
    """The pieces of a body. An endless one never comes to its last piece."""
    yield from answer.pieces[:-1]
    while answer.filler:
        yield answer.filler
    yield from answer.pieces[-1:]


def _plain(status: int, message: str) -> Answer:
    return Answer(status=status, content_type="text/plain; charset=utf-8", pieces=(f"{message}\n".encode(),))
